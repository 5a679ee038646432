"""Error budgets per output: its formats, FP32's own noise in it, and whether the reference's
outputs can be judged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.contracts.lab import Answers, Pair, Reached, Subject
from mezzo.contracts.sequences.step_feeds import count_steps
from mezzo.formats.dtypes import FORMATS, QUANTIZED, DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.data_checks import ALL_NOISE, AnswerWatch, DataWatch, Unknown, judge_noise
from mezzo.numerics.measures import Comparison, Deviation
from mezzo.numerics.metrics.language import LanguageTallies
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.statistics.intervals import lone
from mezzo.numerics.statistics.noise import Shaker, measure_noise
from mezzo.numerics.verdicts import choose_budget, floor_of, judge_output

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch

# Weights beyond this size are not copied to measure the noise; only inputs are perturbed then.
_SHAKEN_BYTES = 1 << 30
# A small output may stay unchanged by chance: it is perturbed more often.
_FEW, _SHAKES = 64, 3
# Noise worth a note: FP32 has lost more than half of its digits.
_LOUD = 1e-3


class Standards:
    """Meters of two models' outputs, each with its own budget and noise."""

    def __init__(
        self, pair: Pair, first: "Batch", low: DType | None, sums: DType | None,
        known: Comparison | None = None,
    ) -> None:  # fmt: skip
        """`low`: the format of default budgets for outputs that depend on it; `sums`: the
        accumulation type. `known`: an earlier comparison on the same data, with its noise.
        """
        self._reference = pair.reference
        reached = pair.reached(first.feeds.keys())
        self.lowest = lowest_formats(reached, low, sums)
        self._steady = frozenset(name for name, (ours, _) in reached.items() if not ours.reads_data)
        tables = tables_of(self._reference.inputs.slots)
        labels = labels_of(reached)
        self._language = LanguageTallies(tables)
        self.meters = {
            name: Meter(name, lowest, tables=tables, are_labels=name in labels)
            for name, lowest in self.lowest.items()
        }
        self._caches: list[str] = []
        self._is_sequence = False
        self._data, self._answers = DataWatch(), AnswerWatch()
        self._noise: Mapping[str, float] | None = None
        if known is not None:
            self._noise = {output.name: output.noise or 0.0 for output in known.outputs}

    def add(self, batch: "Batch", answers: tuple[Answers, Answers]) -> None:
        """Add one batch of outputs to the meters."""
        self._is_sequence = count_steps(batch.feeds) is not None
        self._data.add(self._reference.inputs.typed(batch.feeds), batch.samples, batch.origin)
        expected = {name: answers[0][name] for name in self.meters}
        self._answers.add(expected, batch.samples, batch.origin)
        ids = None if batch.tokens is None else batch.feeds[batch.tokens]
        if ids is not None and self._noise is None:
            # The logits are judged without the caches that are outputs too.
            self._caches = sorted(self._language.caches(batch.feeds, expected, ids))
            for name in self._caches:
                del self.meters[name]
        for name, meter in self.meters.items():
            pair = expected[name], answers[1][name]
            if ids is None or not self._language.are_logits(expected[name], ids):
                meter.add(*pair, batch.samples)
                continue
            meter.add(*pair, batch.samples, tokens=ids.shape[1])
            self._language.add(name, *pair, ids)
        if self._noise is None:
            self._noise = measure_noises(self._reference, batch, expected)

    @property
    def faults(self) -> tuple[str, ...]:
        """Reasons why the data allows no verdict."""
        return self._data.faults()

    def results(self, max_error: float | None, *, parts_decide: bool) -> tuple[Deviation, ...]:
        """The outputs, each judged within `max_error` or its default budget. `parts_decide`: an
        output with a lost part fails; otherwise it gets a warning.
        """
        unknown = self._answers.unknown(self._data, self._steady)
        return tuple(
            self._judge(name, meter, unknown.get(name), max_error, parts_decide)
            for name, meter in self.meters.items()
        )

    def _judge(
        self,
        name: str,
        meter: Meter,
        unknown: Unknown | None,
        max_error: float | None,
        parts_decide: bool,
    ) -> Deviation:
        noise = (self._noise or {}).get(name, 0.0)
        result, budget = meter.result(), choose_budget(max_error, self.lowest[name], noise)
        if unknown is None or not unknown.is_blind:
            floor = floor_of(self.lowest[name], noise)
            loud = judge_noise(noise, floor, budget.error, result.relative_l2.estimate)
            unknown = loud or unknown
            # Noise does not explain NaN or infinities, so that fault stays.
            if loud is not None and loud.is_blind:
                result = replace(result, fault=meter.broken)
            else:
                result = with_losses(meter, budget.error, noise, parts_decide=parts_decide)
        if self._data.is_repeated:
            result = replace(result, relative_l2=lone(result.relative_l2.estimate))
        steps = meter.step_errors() if self._is_sequence else None
        if steps is not None:
            # The whole's interval, around the worst step.
            whole = result.relative_l2
            scale = steps.worst / whole.estimate if whole.estimate else 1.0
            worst = replace(
                whole, estimate=steps.worst, low=whole.low * scale, high=whole.high * scale
            )
            result = replace(result, steps=steps, relative_l2=worst)
        result = replace(result, next_tokens=self._language.result(name))
        return judge_output(result, budget, noise, unknown)

    def notes(self) -> list[str]:
        """Notes for the reader about the data and the reference's outputs."""
        notes = []
        if self._data.is_repeated:
            notes.append(
                f"all {self._data.samples} samples are one and the same, so they count as one"
            )
        if self._caches:
            notes.append(
                f"{len(self._caches)} caches, such as {self._caches[0]!r}, are not judged by"
                " themselves: the logits of later tokens are made of them"
            )
        notes += [
            f"output {name!r} of the reference moves by {noise:.2g} when its numbers move by half a"
            " unit in the last place: it is ill-conditioned on this data, or draws random numbers"
            for name, noise in (self._noise or {}).items()
            if noise > _LOUD
        ]
        return notes


@dataclass(frozen=True, slots=True)
class Telling:
    """Whether a model's own outputs on data allow a verdict. `faults`: reasons why the data does
    not; `outputs`: per output, why it cannot be judged.
    """

    faults: tuple[str, ...]
    outputs: Mapping[str, Unknown]

    @property
    def blind(self) -> frozenset[str]:
        """Outputs that cannot even reveal an error."""
        return frozenset(name for name, unknown in self.outputs.items() if unknown.is_blind)

    @property
    def unknown(self) -> tuple[str, ...]:
        """All reasons as text."""
        return (
            *self.faults,
            *(f"output {name!r} {unknown.because}" for name, unknown in self.outputs.items()),
        )


def find_telling(
    subject: Subject, batches: "Iterable[Batch]", answer: "Callable[[Batch], Answers]"
) -> Telling:
    """Check whether a model's own outputs, by `answer`, on data allow a verdict."""
    data, answers = DataWatch(), AnswerWatch()
    noise: dict[str, float] | None = None
    fed: Sequence[str] = ()
    for batch in batches:
        if batch.samples == 0:
            continue
        data.add(subject.inputs.typed(batch.feeds), batch.samples, batch.origin)
        outputs = answer(batch)
        answers.add(outputs, batch.samples, batch.origin)
        if noise is None:
            noise, fed = measure_noises(subject, batch, outputs), tuple(batch.feeds)
    steady = frozenset(
        name for name, reached in subject.reached(fed).items() if not reached.reads_data
    )
    unknown = answers.unknown(data, steady)
    unknown |= {
        name: Unknown("is noise: FP32's last bits decide what it is", True)
        for name, moved in (noise or {}).items()
        if moved >= ALL_NOISE and name not in unknown
    }
    return Telling(data.faults(), unknown)


def tables_of(slots: Iterable[Slot]) -> frozenset[int]:
    """The fixed numbers of rows of lookup tables that inputs index."""
    return frozenset(slot.below for slot in slots if isinstance(slot.below, int))


def labels_of(reached: Mapping[str, tuple[Reached, Reached]]) -> frozenset[str]:
    """Outputs that are indices of the largest numbers (ArgMax, TopK) in both models."""
    return frozenset(
        name for name, (ours, theirs) in reached.items() if ours.are_labels and theirs.are_labels
    )


def with_losses(
    meter: Meter, budget: float, noise: float, *, parts_decide: bool = True
) -> Deviation:
    """A meter's result, with parts of the output that are lost or decisions that changed, whatever
    the overall error: a fault or a doubt where `parts_decide`, else a worry.
    """
    result, lost, changed = meter.result(), meter.lost(budget, noise), meter.changed(budget, noise)
    fault = result.fault or (lost.fault or changed.fault if parts_decide else None)
    if fault is not None:
        return replace(result, fault=fault)
    worry = lost.fault or changed.fault or changed.doubt or lost.worry
    return replace(result, worry=worry, doubt=changed.doubt if parts_decide else None)


def measure_noises(subject: Subject, batch: "Batch", answers: Answers) -> dict[str, float]:
    """How far each output moves when inputs and weights move by half an FP32 unit in the last
    place.

    The largest of a few perturbations counts.
    """
    shaker = Shaker()
    few = any(getattr(answer, "size", _FEW) < _FEW for answer in answers.values())
    noise = dict.fromkeys(answers, 0.0)
    try:
        run = subject.moved(shaker.shake, _SHAKEN_BYTES)
        for _ in range(_SHAKES if few else 1):
            shaken = run(shaker.shake_feeds(batch.feeds))
            for name, answer in answers.items():
                meter = Meter(name, DType.FLOAT32, is_output=False)
                meter.add(answer, shaken[name], batch.samples)
                noise[name] = max(noise[name], measure_noise(meter))
    except InputError:  # the model's weights or inputs cannot be perturbed
        return noise
    return noise


def lowest_formats(
    reached: Mapping[str, tuple[Reached, Reached]],
    low: DType | None = None,
    sums: DType | None = None,
) -> dict[str, DType]:
    """The coarsest format that each output depends on in either model."""
    lowest = {}
    for name, (ours, theirs) in reached.items():
        formats = ours.formats | theirs.formats
        formats -= ours.formats & QUANTIZED  # the reference's own quantization adds no error
        more = {dtype for dtype in (sums, low if low in formats else None) if dtype is not None}
        lowest[name] = lowest_of([formats, frozenset(more)])
    return lowest


def lowest_of(formats: Sequence[frozenset[DType]]) -> DType:
    """The coarsest of the known float formats; FP32 if there is none."""
    known_formats = frozenset().union(*formats) & FORMATS.keys()
    return max(known_formats, key=lambda dtype: FORMATS[dtype].eps, default=DType.FLOAT32)
