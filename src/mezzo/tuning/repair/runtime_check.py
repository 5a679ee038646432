"""Check of a result on its target's runtime, if installed: it is loaded, its INT8 kernels are
counted in the runtime's optimized graph, its outputs are compared with FP32's, and it is timed
against FP32 where times mean anything.

Deviations from the plan are repaired in a bounded number of rounds. A quantized unit with which the
runtime fails or has wrong outputs returns to floats, and low floats of one operator type to FP32. A
matmul or convolution that the runtime leaves in floats becomes dynamically quantized if the target
supports it, otherwise float. If INT8 is slower than floats alone, the half of the units with the
least expected gain returns, then half of the rest, then all. If dynamic quantization of all layers
is faster, it is used.
"""

import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import MezzoError
from mezzo.common.message_style import option
from mezzo.conversion.conversion import convert_model
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.runtime_answers import first_batches
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.formats.precision_line import float_of
from mezzo.ir.nodes import Kind
from mezzo.numerics.data.data_checks import NO_SAMPLE
from mezzo.numerics.measures import Comparison, Measured, Ruling, RuntimeCheck, Timing
from mezzo.numerics.statistics.speeds import Difference, judge_speed
from mezzo.planner.options import Options
from mezzo.report.layout.numbers import spell_count
from mezzo.tuning.repair.float_fallback import without_format
from mezzo.tuning.repair.runtime_runs import (
    RuntimeRuns,
    Seen,
    find_runtime,
    is_slower,
    times_of_floats,
)
from mezzo.tuning.timing.final_benchmark import summarise_times

if TYPE_CHECKING:
    from mezzo.analysis.fusion.quantized import QuantizedUnit
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided
    from mezzo.numerics.data.datasets import Dataset

RULE = "runtime"
# Rounds of returning layers that run in floats; number of failing parts that are searched, one
# after the other.
_ROUNDS, _CULPRITS = 3, 3
# Time limit of the search for failing parts, each step a conversion and a run; too short for some
# large models.
_LONGEST_SEARCH_S = 120.0
# Number of halves that return if all is slower than floats, before the rest does.
_HALVES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResult:
    """A result with its plan and options."""

    decided: "Decided"
    result: "Artifact"
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The outcome of a check: the final result, what was observed, and notes for the reader."""

    candidate: PlannedResult
    check: RuntimeCheck
    timing: Timing | None = None
    notes: tuple[str, ...] = ()


def check_on_runtime(
    model: "Model",
    first: PlannedResult,
    data: "Dataset | None",
    emulated: Comparison | None,
    *,
    may_change: bool,
) -> Checked | None:
    """Run a result on its target's runtime, and repair deviations from the plan if it may be
    changed. None if nothing is low precision, or the target's table promises no speedup to check.

    `data`: to compare outputs on; random if None. `emulated`: the emulated check.
    """
    profiler = None if model.given.lab is None else model.given.lab.profiler
    if profiler is None or not first.decided.may_gain:
        return None
    target = first.options.planning.target

    def unchecked(why_not: str, runtime: str | None = None) -> Checked:
        check = RuntimeCheck(target=target.name, runtime=runtime, why_not=why_not)
        return Checked(candidate=first, check=check)

    if not first.options.is_checked:
        return unchecked("--no-check")
    runtime = find_runtime(profiler, target)
    if runtime is None:
        return unchecked("no runtime here")
    try:
        batches = first_batches(
            data if data is not None else open_model_data(model.given, "random")
        )
        if not batches:
            return unchecked(NO_SAMPLE[0], runtime)
        outputs = None if emulated is None else {each.name: each for each in emulated.outputs}
        runs = RuntimeRuns(model, target, batches, outputs)
    except MezzoError as error:
        return unchecked(str(error), runtime)
    is_right = all(each.ruling is not Ruling.DIFFERENT for each in (outputs or {}).values())
    with closing(runs):
        return _Check(model=model, runtime=runtime, runs=runs, now=first).run(may_change, is_right)


def measured_without_data(
    model: "Model", first: PlannedResult, *, may_change: bool
) -> tuple[PlannedResult, Measured]:
    """Check a result on its runtime with random data; returns the measurements too."""
    checked = check_on_runtime(model, first, None, None, may_change=may_change)
    if checked is None:
        return first, Measured()
    check, notes = checked.check, checked.notes
    if first.decided.problem.in_blocks and check.fault is None and check.is_wrong:
        # The runtime is not at fault: few bits answer otherwise where no input is like another.
        assert check.comparison is not None, "its outputs are wrong"
        error = check.comparison.verdict.error.estimate
        check = replace(check, comparison=None)
        notes = (
            *notes,
            f"on random inputs the outputs are off by {error:.2g}, which judges no weights in few"
            f" bits: give {option('data')}",
        )
    return checked.candidate, Measured(runtime=check, timing=checked.timing, notes=notes)


@dataclass(frozen=True, slots=True)
class _Part:
    """Names of nodes that return together, and their current format."""

    nodes: tuple[str, ...]
    dtype: DType


@dataclass(kw_only=True)
class _Check:
    """The state of one check."""

    model: "Model"
    runtime: str
    runs: RuntimeRuns
    now: PlannedResult
    notes: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def run(self, may_change: bool, is_right: bool) -> Checked:
        """Check the current result. `is_right`: its emulated outputs are within budget."""
        outcome = self.runs.see(self.now.result)
        if may_change and is_right and outcome.because is not None:
            outcome = self._without_culprits(outcome)
        for _ in range(_ROUNDS if may_change and outcome.because is None else 0):
            if outcome.products is None or not outcome.products.in_floats:
                break
            outcome = self._without_floats(outcome)
        target = self.now.options.planning.target
        is_timed = target.runtime is not None and target.runtime.is_timed
        if may_change and outcome.because is None and is_timed:
            outcome = self._with_late_ranges(outcome)
        timing = None
        if outcome.because is None and is_timed:
            timing, outcome = self._time(outcome, may_change)
        check = RuntimeCheck(
            target=target.name,
            runtime=self.runtime,
            fault=outcome.fault,
            comparison=outcome.comparison,
            planned=None if outcome.products is None else len(outcome.products.planned),
            in_floats=() if outcome.products is None else outcome.products.in_floats,
            returned=tuple(self.returned),
        )
        return Checked(candidate=self.now, check=check, timing=timing, notes=tuple(self.notes))

    # -- failures and wrong outputs ----------------------------------------------------------------

    def _without_culprits(self, outcome: Seen) -> Seen:
        """Return parts to floats, each found by bisection, until the rest runs with right outputs;
        unchanged if that fails.
        """
        before, wrong = (self.now, outcome), outcome
        back: list[_Part] = []
        until_s = time.monotonic() + _LONGEST_SEARCH_S
        for _ in range(_CULPRITS):
            culprit = self._find_culprit(before[0], back, until_s)
            if culprit is None:
                break
            back.append(culprit)
            remade = self._remade(before[0], back, f"{self.runtime} fails with it: {wrong.because}")
            outcome = self.runs.see(remade.result)
            if outcome.because is None:
                self.now = remade
                self._tell(f"{self.runtime}: {before[1].because}", back)
                return outcome
        return before[1]

    def _find_culprit(
        self, candidate: PlannedResult, back: Sequence[_Part], until_s: float
    ) -> _Part | None:
        """The first failing part, floats before quantized units, by bisection over prefixes; None
        if the fault is elsewhere, or time runs out.
        """
        parts = [
            part for part in (*self._floats(candidate), *self._units(candidate)) if part not in back
        ]

        def fails(count: int) -> bool:
            remade = self._remade(candidate, [*back, *parts[count:]], "tried")
            return self.runs.see(remade.result).because is not None

        if not parts or fails(0):
            return None
        right, wrong = 0, len(parts)
        while wrong - right > 1:
            if time.monotonic() > until_s:
                self.notes.append(
                    f"what {self.runtime} fails with was looked for {_LONGEST_SEARCH_S:.0f} s, in"
                    " vain"
                )
                return None
            middle = (right + wrong) // 2
            right, wrong = (right, middle) if fails(middle) else (middle, wrong)
        return parts[wrong - 1]

    # -- layers that run in floats -----------------------------------------------------------------

    def _without_floats(self, outcome: Seen) -> Seen:
        """Make the layers that the runtime computes in floats dynamically quantized, if that was
        not tried yet; otherwise return them to floats.
        """
        assert outcome.products is not None, "they were counted"
        names, candidate = {*outcome.products.in_floats}, self.now
        late = frozenset(names) - (candidate.options.planning.dynamic or frozenset())
        other = at_run_time(self.model, candidate, late) if late else None
        if other is not None:
            dynamic_outcome = self.runs.see(other.result)
            if (
                dynamic_outcome.because is None
                and dynamic_outcome.products is not None
                and not dynamic_outcome.products.in_floats
            ):
                self.now = other
                self.notes.append(
                    f"{self.runtime} computes {_count(names)} in floats: they find ranges at run"
                    " time"
                )
                return dynamic_outcome
        units = [unit for unit in self._units(candidate) if unit.nodes[0] in names]
        if not units:
            return replace(outcome, products=None)
        because = f"{self.runtime} computes it in floats all the same"
        self.now = self._remade(candidate, units, because)
        self._tell(because, units)
        return self.runs.see(self.now.result)

    # -- speed -------------------------------------------------------------------------------------

    def _with_late_ranges(self, outcome: Seen) -> Seen:
        """Use dynamic quantization where supported, if measurably faster than static."""
        names = static_products(self.now)
        # Fewer than half would not decide the timing.
        is_most = 2 * len(names) > sum(map(_has_weight, self.now.decided.quantized_units))
        late = at_run_time(self.model, self.now, names) if is_most else None
        if late is None:
            return outcome
        dynamic_outcome = self.runs.see(late.result)
        if dynamic_outcome.because is not None or (
            dynamic_outcome.products is not None and dynamic_outcome.products.in_floats
        ):
            return outcome
        times = self.runs.speed(late.result, self.now.result)
        if times is None or judge_speed(times) is not Difference.FASTER:
            return outcome
        self.now = late
        ends = (
            f"{times.estimate:.2f} times as fast as with ranges of data, {times.low:.2f} to"
            f" {times.high:.2f}"
        )
        self.notes.append(
            f"{self.runtime}: {_count(names)} find ranges at run time, which makes the model {ends}"
        )
        return dynamic_outcome

    def _time(self, outcome: Seen, may_change: bool) -> tuple[Timing | None, Seen]:
        """Time the result against FP32, and against floats alone if the plan has a low float. If it
        is slower than those, half of the units return to floats, then half of the rest, then all.
        Returns the timing of the final result, and its outcome.
        """
        whole, units = self.now, self._by_gain(self.now) if may_change else []
        has_float = len(whole.options.planning.line.other_dtypes) > 1
        alone = self._without(whole, units) if units and has_float else None
        floats = None if alone is None else alone.result
        timings = self.runs.time(whole.result, floats)
        if not (units and is_slower(timings)):
            return summarise_times(timings), outcome
        than = (
            f"{self.runtime} runs it in {units[0].dtype} slower than"
            f" {'floats alone' if has_float else 'FP32'}"
        )
        for count in (len(units) >> half for half in range(1, _HALVES + 1)):
            if not count:
                break
            self.now = self._without(whole, units[:-count])
            outcome = self.runs.see(self.now.result)
            if outcome.because is not None:
                continue
            timings = self.runs.time(self.now.result, floats)
            if not is_slower(timings):
                self._tell(than, units[:-count])
                return summarise_times(timings), outcome
        self.now = alone or self._without(whole, units)
        self._tell(than, units)
        return None if alone is None else times_of_floats(timings), self.runs.see(self.now.result)

    def _without(self, candidate: PlannedResult, units: Sequence[_Part]) -> PlannedResult:
        """The result with some units in floats, as they are slower."""
        return self._remade(
            candidate, units, f"{self.runtime} is slower with it in {units[0].dtype}, measured here"
        )

    # -- plans -------------------------------------------------------------------------------------

    def _units(self, candidate: PlannedResult) -> list[_Part]:
        """The quantized units, in graph order."""
        return _parts(candidate, candidate.decided.quantized_units)

    def _by_gain(self, candidate: PlannedResult) -> list[_Part]:
        """The quantized units, by rising gain in the target's table."""
        problem = candidate.decided.problem
        units = candidate.decided.quantized_units
        gains = problem.gains[problem.line.quantized] if units else ()
        return _parts(
            candidate, sorted(units, key=lambda unit: sum(int(gains[node]) for node in unit.nodes))
        )

    def _floats(self, candidate: PlannedResult) -> list[_Part]:
        """Nodes in a low float, one part per operator type: a runtime without a kernel for one node
        has none for the others.
        """
        line, decided = candidate.options.planning.line, candidate.decided
        low = float_of(line)
        names: dict[str, list[str]] = {}
        for node, level in zip(decided.reading.graph.nodes, decided.levels, strict=True):
            if node.kind is Kind.OP and line.dtypes[level] is low and low not in QUANTIZED:
                names.setdefault(node.op, []).append(node.name)
        return [_Part(tuple(nodes), low) for nodes in names.values()]

    def _remade(
        self, candidate: PlannedResult, back: Iterable[_Part], because: str
    ) -> PlannedResult:
        """The result with some parts barred from their format, for a reason."""
        returned = [(name, part.dtype) for part in back for name in part.nodes]
        return convert_planned(
            self.model, without_format(candidate.options, returned, RULE, because)
        )

    def _tell(self, because: str, parts: Sequence[_Part]) -> None:
        products = [part.nodes[0] for part in parts if part.dtype in QUANTIZED]
        floats = [name for part in parts if part.dtype not in QUANTIZED for name in part.nodes]
        self.returned += products + floats
        texts = [because]
        if products:
            texts.append(f"{_count(products)} went back to floats: {', '.join(products[:4])}")
        if floats:
            texts.append(
                f"{spell_count(len(floats), 'node')} went back to FP32: {', '.join(floats[:4])}"
            )
        self.notes.append("; ".join(texts))


def _parts(candidate: PlannedResult, units: "Sequence[QuantizedUnit]") -> list[_Part]:
    nodes, dtype = (
        candidate.decided.reading.graph.nodes,
        candidate.options.planning.line.quantized_format,
    )
    return [
        _Part(tuple(nodes[number].name for number in unit.nodes), dtype)
        for unit in units
        if dtype is not None
    ]


def convert_planned(model: "Model", options: Options) -> PlannedResult:
    """Plan and convert a model."""
    decided, result = convert_model(model, options, None)
    return PlannedResult(decided=decided, result=result, options=options)


def static_products(planned: PlannedResult) -> frozenset[str]:
    """The statically quantized layers that the target could quantize dynamically."""
    planning, decided = planned.options.planning, planned.decided
    nodes, dtype = decided.reading.graph.nodes, planning.line.quantized_format
    names = set[str]()
    for unit in filter(_has_weight, decided.quantized_units):
        node = nodes[unit.nodes[0]]
        assert dtype is not None, "units run quantized"
        kernels = planning.target.quantized_kernels(
            dtype, *node.signature.operator, node.attributes
        )
        if not unit.kernel.is_dynamic and any(kernel.is_dynamic for kernel in kernels):
            names.add(node.name)
    return frozenset(names)


def at_run_time(
    model: "Model", planned: PlannedResult, names: frozenset[str]
) -> PlannedResult | None:
    """The result with these layers dynamically quantized; None if the target does not support it
    for all of them.
    """
    planning = planned.options.planning
    quantized = planning.line.quantized_format
    if quantized is None or planning.is_dynamic or not planning.target.finds_ranges(quantized):
        return None
    dynamic = (planning.dynamic or frozenset(planned.decided.plan.dynamic)) | names
    dynamic_result = convert_planned(
        model, replace(planned.options, planning=replace(planning, dynamic=dynamic))
    )
    return dynamic_result if names <= {*dynamic_result.decided.plan.dynamic} else None


def _has_weight(unit: "QuantizedUnit") -> bool:
    return any(read.operand.is_weight for read in unit.reads)


def _count(names: "Collection[str]") -> str:
    return spell_count(len(names), "product")
