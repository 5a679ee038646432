"""What each output of a model is held to: its formats, FP32's own noise in it, and what its reference can show."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.contracts.lab import Answers, Pair, Reached, Subject
from mezzo.formats.dtypes import FORMATS, QUANTIZED, DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.data_checks import ALL_NOISE, AnswerWatch, DataWatch, Unknown, judge_noise
from mezzo.numerics.measures import Deviation
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.statistics.intervals import lone
from mezzo.numerics.statistics.noise import Shaker, measure_noise
from mezzo.numerics.verdicts import choose_budget, floor_of, judge_output

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch

# Weights beyond this are not copied to measure the noise; moved inputs have to do.
_SHAKEN_BYTES = 1 << 30
# An output of few numbers may stay where it is by chance: it is shaken more often.
_FEW, _SHAKES = 64, 3
# Noise worth a word: FP32 that has lost more than half its digits.
_LOUD = 1e-3


class Standards:
    """Meters of the outputs of two models, each with the budget and the noise that it alone is judged by."""

    def __init__(
        self, pair: Pair, first: "Batch", low: DType | None, sums: DType | None,
        noise: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """`low`: the format that default budgets are of where it reaches an output; `sums`: what is summed in. `noise`:
        that of each output, where it is known from the same data.
        """
        self._reference, self._low = pair.reference, low
        reached = pair.reached(first.feeds.keys())
        self.lowest = {name: _lowest(ours, theirs, low, sums) for name, (ours, theirs) in reached.items()}
        self._steady = frozenset(name for name, (ours, _) in reached.items() if not ours.reads_data)
        tables = tables_of(self._reference.inputs.slots)
        labels = labels_of(reached)
        self.meters = {
            name: Meter(name, lowest, tables=tables, are_labels=name in labels) for name, lowest in self.lowest.items()
        }
        self._data, self._answers = DataWatch(), AnswerWatch()
        self._noise = noise

    def add(self, batch: "Batch", answers: tuple[Answers, Answers]) -> None:
        """Compare one batch of outputs."""
        self._data.add(self._reference.inputs.typed(batch.feeds), batch.samples, batch.origin)
        wanted = {name: answers[0][name] for name in self.meters}
        self._answers.add(wanted, batch.samples, batch.origin)
        for name, meter in self.meters.items():
            meter.add(wanted[name], answers[1][name], batch.samples)
        if self._noise is None:
            self._noise = measure_noises(self._reference, batch, wanted)

    @property
    def faults(self) -> tuple[str, ...]:
        """Why nothing can be told from the data."""
        return self._data.faults()

    def results(self, max_error: float | None, *, parts_decide: bool) -> tuple[Deviation, ...]:
        """The outputs, each judged within `max_error` or its default budget. `parts_decide`: whether an output is wrong
        of which a part is lost; else that is told.
        """
        unknown = self._answers.unknown(self._data, self._steady)
        return tuple(
            self._judge(name, meter, unknown.get(name), max_error, parts_decide) for name, meter in self.meters.items()
        )

    def _judge(
        self, name: str, meter: Meter, unknown: Unknown | None, max_error: float | None, parts_decide: bool
    ) -> Deviation:
        noise = (self._noise or {}).get(name, 0.0)
        result, budget = meter.result(), choose_budget(max_error, self.lowest[name], noise)
        if unknown is None or not unknown.is_blind:
            floor = floor_of(self.lowest[name], noise)
            loud = judge_noise(noise, floor, budget.error, result.relative_l2.estimate)
            unknown = loud or unknown
            if (
                loud is not None and loud.is_blind
            ):  # it may come out flat, or not; what breaks it is a fault all the same
                result = replace(result, fault=meter.broken)
            else:
                result = with_losses(meter, budget.error, noise, parts_decide=parts_decide)
        if self._data.is_repeated:
            result = replace(result, relative_l2=lone(result.relative_l2.estimate))
        return judge_output(result, budget, noise, unknown)

    def notes(self) -> list[str]:
        """What a reader has to know of the data and of the reference's answers."""
        notes = []
        if self._data.is_repeated:
            notes.append(f"all {self._data.samples} samples are one and the same, so they count as one")
        notes += [
            f"output {name!r} of the reference moves by {noise:.2g} when its numbers move by half a unit in the last "
            "place: it is ill-conditioned on this data, or draws random numbers"
            for name, noise in (self._noise or {}).items()
            if noise > _LOUD
        ]
        return notes


@dataclass(frozen=True, slots=True)
class Telling:
    """What a model's own answers on data can show. `faults`: why nothing can be told from the data; `outputs`: why an
    output cannot be judged, by name.
    """

    faults: tuple[str, ...]
    outputs: Mapping[str, Unknown]

    @property
    def blind(self) -> frozenset[str]:
        """Outputs that show nothing, not even an error."""
        return frozenset(name for name, unknown in self.outputs.items() if unknown.is_blind)

    @property
    def unknown(self) -> tuple[str, ...]:
        """All reasons in words."""
        return (*self.faults, *(f"output {name!r} {unknown.because}" for name, unknown in self.outputs.items()))


def find_telling(subject: Subject, batches: "Iterable[Batch]", answer: "Callable[[Batch], Answers]") -> Telling:
    """Look at what a model answers to data. `answer` runs it as it is."""
    data, answers = DataWatch(), AnswerWatch()
    noise: dict[str, float] | None = None
    fed: Sequence[str] = ()
    for batch in batches:
        if batch.samples == 0:
            continue
        data.add(subject.inputs.typed(batch.feeds), batch.samples, batch.origin)
        wanted = answer(batch)
        answers.add(wanted, batch.samples, batch.origin)
        if noise is None:
            noise, fed = measure_noises(subject, batch, wanted), tuple(batch.feeds)
    steady = frozenset(name for name, reached in subject.reached(fed).items() if not reached.reads_data)
    unknown = answers.unknown(data, steady)
    unknown |= {
        name: Unknown("is noise: FP32's last bits decide what it is", True)
        for name, moved in (noise or {}).items()
        if moved >= ALL_NOISE and name not in unknown
    }
    return Telling(data.faults(), unknown)


def tables_of(slots: Iterable[Slot]) -> frozenset[int]:
    """The numbers of rows of the tables that inputs pick rows of, where they are fixed."""
    return frozenset(slot.below for slot in slots if isinstance(slot.below, int))


def labels_of(reached: Mapping[str, tuple[Reached, Reached]]) -> frozenset[str]:
    """Outputs that hold places of the largest numbers in the reference and in the candidate."""
    return frozenset(name for name, (ours, theirs) in reached.items() if ours.are_labels and theirs.are_labels)


def with_losses(meter: Meter, budget: float, noise: float, *, parts_decide: bool = True) -> Deviation:
    """What a meter shows, with what of the output is lost, or decides otherwise, whatever its error as a whole is: a
    fault or a doubt where `parts_decide`, else a worry.
    """
    result, lost, changed = meter.result(), meter.lost(budget, noise), meter.changed(budget, noise)
    fault = result.fault or (lost.fault or changed.fault if parts_decide else None)
    if fault is not None:
        return replace(result, fault=fault)
    worry = lost.fault or changed.fault or changed.doubt or lost.worry
    return replace(result, worry=worry, doubt=changed.doubt if parts_decide else None)


def measure_noises(subject: Subject, batch: "Batch", answers: Answers) -> dict[str, float]:
    """What each of a model's answers moves by when its numbers move by half a unit in the last place of FP32.

    Of some shakings the largest counts.
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
    except InputError:  # the model bears no other numbers
        return noise
    return noise


def _lowest(ours: Reached, theirs: Reached, low: DType | None, sums: DType | None) -> DType:
    """The coarsest format that an output depends on."""
    formats = ours.formats | theirs.formats
    formats -= ours.formats & QUANTIZED  # what the reference came with costs nothing
    more = [dtype for dtype in (sums,) if dtype is not None]
    more += [low] if low in formats else []
    return lowest_of([formats, frozenset(more)])


def lowest_of(formats: Sequence[frozenset[DType]]) -> DType:
    """The coarsest of float formats; FP32 where there are none that mezzo has numbers of."""
    known = frozenset().union(*formats) & FORMATS.keys()
    return max(known, key=lambda dtype: FORMATS[dtype].eps, default=DType.FLOAT32)
