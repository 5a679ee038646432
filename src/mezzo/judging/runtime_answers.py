"""Answers of files on the runtime of a target, beside those of a reference to the same feeds.

Kernels of a runtime may depend on the number of samples per call: where that is open, several are run.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mezzo.converting.results import lab_of
from mezzo.core.frontend import Model
from mezzo.core.lab import EMULATED, Answers, Feeds, Pair, Run
from mezzo.core.reading import Artifact
from mezzo.core.slots import Slot
from mezzo.dtypes import QUANTIZED, DType
from mezzo.errors import MezzoError
from mezzo.judging.standards import lowest_of, measure_noises
from mezzo.judging.timed_inputs import batch_axis, cut_rows
from mezzo.numerics.datasets import Batch
from mezzo.numerics.measures import Comparison, DataSource, Deviation, Ruling
from mezzo.numerics.metrics import Meter
from mezzo.numerics.verdicts import Budget, choose_budget, judge, judge_output

_log = logging.getLogger(__name__)
# Samples per call that are run beside those of the data: kernels differ most for few rows.
_SIZES = (1, 2, 4, 8)


class Fed(NamedTuple):
    """Feeds of one call, and how many samples they hold."""

    feeds: Feeds
    samples: int


def feeds_of_sizes(batch: Batch, slots: Sequence[Slot]) -> list[Fed]:
    """A batch as it is, and where its first axis is open, cut or repeated to few samples."""
    axis = batch_axis(slots)
    parts = [Fed(batch.feeds, batch.samples)]
    if axis:
        for size in _SIZES:
            if size != batch.samples:
                feeds = {name: cut_rows(feed, size) if name in axis else feed for name, feed in batch.feeds.items()}
                parts.append(Fed(feeds, size))
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
    lowest = _lowest(pair, every[0])
    worst: dict[str, tuple[Deviation, int]] = {}
    for fed, wanted in zip(every, reference.answers, strict=True):
        answers = found(fed.feeds)
        for name, own in pair.outputs.items():
            if own not in answers:
                continue
            meter = Meter(name, lowest[name])
            meter.add(wanted[name], answers[own], fed.samples)
            output = meter.result()
            if name not in worst or _is_worse(output, worst[name][0]):
                worst[name] = output, fed.samples
    budgets = _budgets(lowest, held or {}, {})
    if held is None and any(_is_past(output, budgets[name]) for name, (output, _) in worst.items()):
        budgets = _budgets(lowest, {}, reference.noises())
    outputs = tuple(_judge(output, budgets[name], size, len(every)) for name, (output, size) in worst.items())
    return Comparison(data=source, run="native", outputs=outputs, layers=(), verdict=judge(outputs, ()))


def _lowest(pair: Pair, fed: Fed) -> dict[str, DType]:
    """The coarsest format that each output depends on and the reference does not."""
    reached = pair.reached(fed.feeds.keys())
    return {
        name: lowest_of([(ours.formats | theirs.formats) - (ours.formats & QUANTIZED)])
        for name, (ours, theirs) in reached.items()
    }


def _budgets(
    lowest: Mapping[str, DType], held: Mapping[str, Deviation], noises: Mapping[str, float]
) -> dict[str, Budget]:
    found = {}
    for name, dtype in lowest.items():
        known = held.get(name)
        if known is not None and known.budget is not None:
            found[name] = Budget(known.budget, known.budget_source or "")
        else:
            found[name] = choose_budget(None, dtype, noises.get(name, 0.0))
    return found


def _is_worse(one: Deviation, other: Deviation) -> bool:
    if (one.fault is None) != (other.fault is None):
        return one.fault is not None
    return not one.relative_l2.estimate <= other.relative_l2.estimate


def _is_past(output: Deviation, budget: Budget) -> bool:
    return output.fault is not None or not output.relative_l2.estimate <= budget.error


def _judge(output: Deviation, budget: Budget, size: int, sizes: int) -> Deviation:
    judged = judge_output(output, budget, 0.0, None)
    if judged.ruling is Ruling.DIFFERENT and sizes > 1:
        fault = judged.fault or f"off by {judged.relative_l2.estimate:.3g}, more than {budget.error:.3g}"
        return replace(judged, fault=f"{fault}, with {size} samples a call")
    return judged
