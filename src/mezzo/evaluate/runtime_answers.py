"""Answers of files on the runtime of a target, beside those of a reference to the same feeds.

Kernels of a runtime may depend on the number of samples per call: where that is open, several are run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from mezzo.common.errors import MezzoError
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import EMULATED, Answers, Feeds, Reached, Run
from mezzo.contracts.reading import Artifact
from mezzo.conversion.results import lab_of
from mezzo.evaluate.standards import labels_of, lowest_of, measure_noises, tables_of, with_losses
from mezzo.evaluate.timed_inputs import batch_axis, cut_rows
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.measures import Comparison, DataSource, Deviation, Ruling
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.verdicts import Budget, choose_budget, judge, judge_output

_log = logging.getLogger(__name__)
# Samples per call that are run beside those of the data: kernels differ most for few rows.
_SIZES = (1, 2, 4, 8)
# A number of samples per call counts where its error is so many times that of the batch that it repeats.
_WORSE = 2.0
# Batches of the data that are run, and the bytes of their feeds past which no more are: they are kept in memory.
_CALLS, _BYTES = 16, 1 << 26


class Fed(NamedTuple):
    """Feeds of one call, and how many samples they hold. `size`: the number that a batch was cut or repeated to; None
    for a batch as it came.
    """

    feeds: Feeds
    samples: int
    size: int | None = None


def first_batches(data: Iterable[Batch]) -> list[Batch]:
    """The batches at the beginning of the data that a runtime is asked for: one or more, whatever its size."""
    batches: list[Batch] = []
    for batch in data:
        if not batch.samples:
            continue
        if batches and len(batches) * _bytes_of(batch) > _BYTES:
            break
        batches.append(batch)
        if len(batches) == _CALLS:
            break
    return batches


def _bytes_of(batch: Batch) -> int:
    return sum(getattr(feed, "nbytes", 0) for feed in batch.feeds.values())


def feeds_of_sizes(batches: Sequence[Batch], slots: Sequence[Slot]) -> list[Fed]:
    """Batches as they are, and where the first axis is open, the first of them cut or repeated to few samples."""
    axis, first = batch_axis(slots), batches[0]
    parts = [Fed(batch.feeds, batch.samples) for batch in batches]
    if axis:
        for size in _SIZES:
            if size != first.samples:
                feeds = {name: cut_rows(feed, size) if name in axis else feed for name, feed in first.feeds.items()}
                parts.append(Fed(feeds, size, size))
    return parts


class Reference:
    """A reference's answers to feeds, each asked for once. `every` are those that it answers: a length that is open may
    not be free.
    """

    def __init__(self, model: Model, every: Sequence[Fed], run: Run | None = None) -> None:
        """`run`: what answers for the reference; by default its own runtime here. Raises MezzoError: the first feeds
        fail.
        """
        answering = run or lab_of(model).native()
        self._model = model
        self.answers = [answering(every[0].feeds)]
        try:
            for fed in every[1:]:
                self.answers.append(answering(fed.feeds))
        except MezzoError as error:
            _log.debug("%s was not run with other numbers of samples: %s", model.name, error)
        self.every = every[: len(self.answers)]

    def noises(self) -> Mapping[str, float]:
        """What FP32 itself makes of each output."""
        fed = self.every[0]
        batch = Batch(fed.feeds, {}, "", fed.samples)
        return measure_noises(lab_of(self._model).subject(), batch, lab_of(self._model).native()(fed.feeds))


def compare_on_runtime(
    reference: Reference,
    model: Model,
    candidate: Artifact,
    found: Callable[[Feeds], Answers],
    source: DataSource,
    held: Mapping[str, Deviation] | None = None,
) -> Comparison:
    """Compare what a runtime answers with the reference's answers, each output within the budget of `held`, or else the
    default one of its formats. Of several sizes the worst counts, and the verdict names it.

    Raises:
        InputError: inputs or outputs of the two do not match, or the reference fails.
        ContractError: the runtime fails.
    """
    pair, every = lab_of(model).pair(candidate, EMULATED), reference.every
    reached = pair.reached(every[0].feeds.keys())
    lowest, tables, labels = _lowest(reached), tables_of(pair.reference.inputs.slots), labels_of(reached)
    meters: dict[tuple[str, int | None], Meter] = {}
    first: dict[str, Meter] = {}  # of the first batch alone, which other numbers of samples repeat
    for fed, wanted in zip(every, reference.answers, strict=True):
        answers = found(fed.feeds)
        for name, own in pair.outputs.items():
            if own in answers:
                begin = partial(Meter, name, lowest[name], tables=tables, are_labels=name in labels)
                added = [meters.setdefault((name, fed.size), begin())]
                if fed is every[0]:
                    added.append(first.setdefault(name, begin()))
                for meter in added:
                    meter.add(wanted[name], answers[own], fed.samples)
    standards = _standards(lowest, held or {}, {})
    outputs = _judge_all(meters, first, standards)
    if held is None and any(output.ruling is Ruling.DIFFERENT for output in outputs):
        outputs = _judge_all(meters, first, _standards(lowest, {}, reference.noises()))
    return Comparison(data=source, run="native", outputs=outputs, layers=(), verdict=judge(outputs, ()))


def _lowest(reached: Mapping[str, tuple[Reached, Reached]]) -> dict[str, DType]:
    """The coarsest format that each output depends on and the reference does not."""
    return {
        name: lowest_of([(ours.formats | theirs.formats) - (ours.formats & QUANTIZED)])
        for name, (ours, theirs) in reached.items()
    }


class _Standard(NamedTuple):
    """What an output is held to: its budget, and FP32's own noise in it."""

    budget: Budget
    noise: float


def _standards(
    lowest: Mapping[str, DType], held: Mapping[str, Deviation], noises: Mapping[str, float]
) -> dict[str, _Standard]:
    standards = {}
    for name, dtype in lowest.items():
        known = held.get(name)
        if known is not None and known.budget is not None:
            standards[name] = _Standard(Budget(known.budget, known.budget_source or ""), known.noise or 0.0)
        else:
            noise = noises.get(name, 0.0)
            standards[name] = _Standard(choose_budget(None, dtype, noise), noise)
    return standards


def _judge_all(
    meters: Mapping[tuple[str, int | None], Meter], first: Mapping[str, Meter], standards: Mapping[str, _Standard]
) -> tuple[Deviation, ...]:
    """Each output's worst judgement: of all batches together, and of each other number of samples per call.

    These repeat the first batch. Where the first batch alone is judged wrong too, they count only if their error is
    larger than its own by a factor: a few samples may be wrong where the whole data is not.
    """
    worst: dict[str, Deviation] = {}
    for (name, size), meter in meters.items():
        output = _judge(meter, standards[name], size)
        if size is not None and output.ruling is Ruling.DIFFERENT:
            alone = _judge(first[name], standards[name], None)
            is_worse = output.relative_l2.estimate > _WORSE * alone.relative_l2.estimate
            if alone.ruling is Ruling.DIFFERENT and not is_worse:
                continue
        if name not in worst or _is_worse(output, worst[name]):
            worst[name] = output
    return tuple(worst.values())


def _is_worse(one: Deviation, other: Deviation) -> bool:
    """Whether the first differs, has a fault or a doubt where the second does not; else errs by more."""
    gravity, other_gravity = (
        (each.ruling is Ruling.DIFFERENT, each.fault is not None, each.doubt is not None) for each in (one, other)
    )
    if gravity != other_gravity:
        return gravity > other_gravity
    return not one.relative_l2.estimate <= other.relative_l2.estimate


def _judge(meter: Meter, standard: _Standard, size: int | None) -> Deviation:
    budget = standard.budget
    judged = judge_output(with_losses(meter, budget.error, standard.noise), budget, standard.noise, None)
    if judged.ruling is Ruling.DIFFERENT and size is not None:
        fault = judged.fault or f"off by {judged.relative_l2.estimate:.3g}, more than {budget.error:.3g}"
        return replace(judged, fault=f"{fault}, with {size} samples a call")
    return judged
