"""Comparison of converted files on a target's own runtime with a reference's outputs for the same
feeds.

A runtime may choose its kernels by the number of samples per call: where the batch axis is open,
several are run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from mezzo.common.errors import MezzoError
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import EMULATED, Answers, Feeds, Run
from mezzo.contracts.reading import Artifact
from mezzo.contracts.sequences.step_feeds import count_steps
from mezzo.evaluate.standards import (
    labels_of,
    lowest_formats,
    measure_noises,
    tables_of,
    with_losses,
)
from mezzo.evaluate.timed_inputs import batch_axis, cut_rows
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.measures import Comparison, DataSource, Deviation, Ruling
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.verdicts import Budget, choose_budget, judge, judge_output

_log = logging.getLogger(__name__)
# Samples per call that are run in addition to the data's: kernels differ most for few rows.
_SIZES = (1, 2, 4, 8)
# Another number of samples per call counts only if its error exceeds that of the batch it repeats
# by this factor.
_WORSE = 2.0
# Limits on batches to run and the total bytes of their feeds, which stay in memory.
_CALLS, _BYTES = 16, 1 << 26


class Fed(NamedTuple):
    """The feeds of one call and their number of samples. `size`: the number that a batch was cut or
    repeated to; None for a batch as it came.
    """

    feeds: Feeds
    samples: int
    size: int | None = None


def first_batches(data: Iterable[Batch]) -> list[Batch]:
    """The first batches with samples, within `_CALLS` and `_BYTES`, but at least one."""
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
    """The batches and, if the batch axis is open, the first one cut or repeated to few samples."""
    first = batches[0]
    axis = batch_axis(slots) if count_steps(first.feeds) is None else frozenset()
    parts = [Fed(batch.feeds, batch.samples) for batch in batches]
    if axis:
        for size in _SIZES:
            if size != first.samples:
                feeds = {
                    name: cut_rows(feed, size) if name in axis else feed
                    for name, feed in first.feeds.items()
                }
                parts.append(Fed(feeds, size, size))
    return parts


def replay(every: Sequence[Fed], answers: Sequence[Answers]) -> Run:
    """What gives these answers to these very feeds, without a run."""
    by_feeds = {id(fed.feeds): answer for fed, answer in zip(every, answers, strict=True)}
    return lambda feeds: by_feeds[id(feeds)]


class Reference:
    """A reference's outputs for feeds, each computed once. `every`: the feeds it can run, as a
    symbolic length may still not be free.
    """

    def __init__(self, model: Model, every: Sequence[Fed], run: Run | None = None) -> None:
        """`run`: runs the reference; by default its own runtime on this machine. Raises MezzoError:
        the first feeds fail.
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
        """FP32's own rounding noise in each output."""
        fed = self.every[0]
        batch = Batch(fed.feeds, {}, "", fed.samples)
        return measure_noises(
            lab_of(self._model).subject(), batch, lab_of(self._model).native()(fed.feeds)
        )


def compare_on_runtime(
    reference: Reference,
    model: Model,
    candidate: Artifact,
    found: Callable[[Feeds], Answers],
    source: DataSource,
    emulated: Mapping[str, Deviation] | None = None,
    standards: "Mapping[str, Standard] | None" = None,
) -> Comparison:
    """Compare a runtime's outputs with the reference's, each within its budget in `standards`, else
    in `emulated`, else within the default budget of its formats. Of several batch sizes the worst
    counts, and the verdict names it.

    Raises:
        InputError: inputs or outputs of the two do not match, or the reference fails.
        ContractError: the runtime fails.
    """
    pair, every = lab_of(model).pair(candidate, EMULATED), reference.every
    reached = pair.reached(every[0].feeds.keys())
    lowest, tables, labels = (
        lowest_formats(reached),
        tables_of(pair.reference.inputs.slots),
        labels_of(reached),
    )
    meters: dict[tuple[str, int | None], Meter] = {}
    # Of the first batch alone: the reference for the other batch sizes, which repeat it.
    first: dict[str, Meter] = {}
    for fed, expected in zip(every, reference.answers, strict=True):
        actual = found(fed.feeds)
        for name, own in pair.outputs.items():
            if own in actual:
                begin = partial(Meter, name, lowest[name], tables=tables, are_labels=name in labels)
                updated = [meters.setdefault((name, fed.size), begin())]
                if fed is every[0]:
                    updated.append(first.setdefault(name, begin()))
                for meter in updated:
                    meter.add(expected[name], actual[own], fed.samples)
    is_default = emulated is None and standards is None
    standards = standards or _standards(lowest, emulated or {}, {})
    outputs = _judge_all(meters, first, standards)
    if is_default and any(output.ruling is Ruling.DIFFERENT for output in outputs):
        outputs = _judge_all(meters, first, _standards(lowest, {}, reference.noises()))
    return Comparison(
        data=source, run="native", outputs=outputs, layers=(), verdict=judge(outputs, ())
    )


class Standard(NamedTuple):
    """The error budget of an output, and FP32's own noise in it."""

    budget: Budget
    noise: float


def _standards(
    lowest: Mapping[str, DType],
    earlier_outputs: Mapping[str, Deviation],
    noises: Mapping[str, float],
) -> dict[str, Standard]:
    """The standard of each output: that of an earlier comparison, else its format's default."""
    standards = {}
    for name, dtype in lowest.items():
        earlier = earlier_outputs.get(name)
        if earlier is not None and earlier.budget is not None:
            standards[name] = Standard(
                Budget(earlier.budget, earlier.budget_source or ""), earlier.noise or 0.0
            )
        else:
            noise = noises.get(name, 0.0)
            standards[name] = Standard(choose_budget(None, dtype, noise), noise)
    return standards


def _judge_all(
    meters: Mapping[tuple[str, int | None], Meter],
    first: Mapping[str, Meter],
    standards: Mapping[str, Standard],
) -> tuple[Deviation, ...]:
    """The worst judgement of each output: of all batches together, and of each other number of
    samples per call.

    The latter repeat the first batch. Where the first batch alone fails too, they count only if
    their error exceeds its own by `_WORSE`: a few samples may fail where the whole data does not.
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


def _is_worse(output: Deviation, other: Deviation) -> bool:
    """Whether the first differs, has a fault or a doubt where the second does not; if equal,
    whether its error is larger.
    """
    gravity, other_gravity = (
        (each.ruling is Ruling.DIFFERENT, each.fault is not None, each.doubt is not None)
        for each in (output, other)
    )
    if gravity != other_gravity:
        return gravity > other_gravity
    return not output.relative_l2.estimate <= other.relative_l2.estimate


def _judge(meter: Meter, standard: Standard, size: int | None) -> Deviation:
    budget = standard.budget
    judged = judge_output(
        with_losses(meter, budget.error, standard.noise), budget, standard.noise, None
    )
    if judged.ruling is Ruling.DIFFERENT and size is not None:
        fault = (
            judged.fault
            or f"off by {judged.relative_l2.estimate:.3g}, more than {budget.error:.3g}"
        )
        return replace(judged, fault=f"{fault}, with {size} samples a call")
    return judged
