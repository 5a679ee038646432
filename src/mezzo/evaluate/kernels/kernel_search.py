"""Search for the node whose kernel on a device differs from the model's own types.

The model is cut: a part runs alone on the device, from the values that the emulation has at its
border, and its outputs are compared with the emulation's. Marking inner values as outputs would
change the device's fusions, and hide the fault.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from mezzo.common.errors import ContractError, MezzoError
from mezzo.common.machine import find_temporary_folder
from mezzo.contracts.frontend import Model, Progress, lab_of
from mezzo.contracts.lab import Answers, Feeds
from mezzo.contracts.reading import Artifact
from mezzo.contracts.timings import Loading
from mezzo.conversion.results import open_source, store_of
from mezzo.evaluate.kernels.delta_debugging import Part, minimize
from mezzo.evaluate.kernels.kernel_noise import kernel_standards
from mezzo.evaluate.runtime_answers import Fed, Reference, compare_on_runtime, replay
from mezzo.numerics.blames import KernelFault
from mezzo.numerics.measures import Comparison, DataSource, Deviation
from mezzo.numerics.metrics.slices import LOST

if TYPE_CHECKING:
    from mezzo.contracts.plans import Accumulation
    from mezzo.tables.target import Target

_log = logging.getLogger(__name__)
# Runs of parts on the device. The fault of one node in a thousand takes about 20.
_MOST_RUNS = 100


def compare_with_emulation(
    model: Model,
    every: Sequence[Fed],
    expected: Sequence[Answers],
    actual: Sequence[Answers],
    source: DataSource,
) -> Comparison:
    """Compare a device's outputs with those of the model's emulation, beyond the noise of both.
    Outputs that roundings change by as much as they hold, such as one that underflows, are not
    judged.
    """
    standards = kernel_standards(model, every, expected)
    names = [name for name, standard in standards.items() if standard.budget.error < LOST]
    return compare_on_runtime(
        Reference(model, every, replay(every, [_as_numbers(each, each) for each in expected])),
        model,
        model.runnable(model.original),
        replay(every, [_as_numbers(each, names) for each in actual]),
        source,
        standards=standards,
    )


def _as_numbers(answers: Answers, names: Iterable[str]) -> Answers:
    """Some of the answers. Quantized values are floats, as a device may round a tie another way."""
    return {
        name: answers[name].astype(np.float32)
        if isinstance(answers[name], np.ndarray) and answers[name].dtype in (np.int8, np.uint8)
        else answers[name]
        for name in names
        if name in answers
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCase:
    """A part of a model as a model of its own, with feeds and the emulation's outputs for them.
    `comparison`: of the device's outputs with these; None if it does not run the part, then `fault`
    has its error.
    """

    nodes: Part
    artifact: Artifact
    feeds: Feeds
    expected: Answers
    comparison: Comparison | None
    fault: str | None = None


class KernelSearch:
    """A search of one model for a fault of its kernels on one target."""

    def __init__(
        self, model: Model, target: "Target", sums: "Accumulation | None", source: DataSource
    ) -> None:
        """`sums`: how the target sums; `source`: of the feeds."""
        profiler = lab_of(model).profiler
        assert profiler is not None, "its runtime was found"
        self._parts, self._model, self._target = profiler.parts(), model, target
        self._sums, self._source, self._runs = sums, source, 0

    def run(
        self, fed: Fed, *, must_run: bool, progress: Progress | None = None
    ) -> tuple[KernelFault, PartCase] | None:
        """The smallest part that shows the fault. None if the whole model, cut like a part, shows
        none. `must_run`: the device runs the whole model; then a part that it does not run, such as
        for a type at its border, shows nothing.
        """
        nodes = self._parts.closed(tuple(self._parts.nodes))
        last: PartCase | None = None

        def shows(part: Part) -> bool:
            nonlocal last
            if self._runs == _MOST_RUNS:
                return False
            self._runs += 1
            if progress is not None:
                progress(f"looking for the kernel, {len(last.nodes if last else nodes)} nodes left",
                         self._runs, 0)  # fmt: skip
            case = self._try(part, nodes if last is None else last.nodes, fed,
                             fed.feeds if last is None else last.feeds)  # fmt: skip
            if case is None or (case.comparison is None if must_run else case.fault is None):
                return False
            if case.comparison is not None and not case.comparison.is_wrong:
                return False
            last = case
            return True

        if shows(nodes):
            minimize(nodes, self._parts.closed, shows)
        return None if last is None else (self._describe(last), last)

    def _try(self, part: Part, within: Part, fed: Fed, feeds: Feeds) -> PartCase | None:
        """Run a part of another on the device, whose feeds are known; None if it cannot be cut."""
        try:
            cut = self._parts.extract(part)
            shown = [name for name in (*cut.inputs, *cut.outputs) if name not in feeds]
            outer = self._parts.extract(within, shown)
            with TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder()) as folder:
                emulated = lab_of(self._place(outer.part, Path(folder, "outer.onnx"))).emulated(
                    self._sums
                )
                known = {name: feeds[name] for name in outer.inputs if name in feeds}
                values = {**emulated(known), **known}
                model = self._place(cut.part, Path(folder, "part.onnx"))
                own = {name: values[name] for name in cut.inputs if name in values}
                expected = {name: values[name] for name in cut.outputs}
                comparison, fault = self._run(model, Fed(own, fed.samples), expected)
        except MezzoError as error:
            _log.debug("a part of %d nodes was not run: %s", len(part), error)
            return None
        return PartCase(
            nodes=part, artifact=cut.part, feeds=own, expected=expected, comparison=comparison,
            fault=fault,
        )  # fmt: skip

    def _run(
        self, model: Model, fed: Fed, expected: Answers
    ) -> tuple[Comparison | None, str | None]:
        try:
            answers = answers_on_device(model, self._target, [fed])
        except ContractError as error:
            return None, str(error)
        return compare_with_emulation(model, [fed], [expected], answers, self._source), None

    def _place(self, part: Artifact, path: Path) -> Model:
        store_of(self._model).write(part, path, overwrite=False)
        return open_source(path, False, None)

    def _describe(self, case: PartCase) -> KernelFault:
        worst = None if case.comparison is None else max(case.comparison.outputs, key=_badness)
        cut = self._parts.extract(case.nodes)
        return KernelFault(
            nodes=tuple(self._parts.nodes[node] for node in case.nodes),
            inputs=cut.inputs,
            outputs=cut.outputs,
            error=math.nan if worst is None else worst.relative_l2.estimate,
            budget=math.nan if worst is None or worst.budget is None else worst.budget,
            noise=math.nan if worst is None or worst.noise is None else worst.noise,
            fault=case.fault if worst is None else worst.fault,
            runs=self._runs,
            is_smallest=self._runs < _MOST_RUNS,
        )


def answers_on_device(model: Model, target: "Target", every: Sequence[Fed]) -> list[Answers]:
    """A model's outputs on a target's runtime. Raises ContractError: it does not run there."""
    profiler = lab_of(model).profiler
    assert profiler is not None, "its runtime was found"
    with (
        closing(profiler.stopwatch(target, every[0].feeds, Loading())) as watch,
        closing(watch.start()) as runner,
    ):
        return [runner.answer(fed.feeds) for fed in every]


def _badness(output: Deviation) -> tuple[bool, float]:
    error = output.relative_l2.estimate / output.budget if output.budget else math.inf
    return output.fault is not None, math.inf if math.isnan(error) else error
