"""A result on the runtime of its target, where that is installed: it is loaded there, its products are counted in the
graph that the runtime makes of it, its answers are compared with FP32's, and it is timed beside FP32.

What the runtime does otherwise than planned goes back, in a bounded number of rounds: a quantized unit with which it
fails or answers wrong to floats, low floats of one operator to FP32; a product that it leaves in floats to a form that
finds ranges at run time, where the target has one, else to floats; and of what is slower than floats alone the half
that was to gain least, then half of the rest, then all. Where that form is faster for all products, they take it.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import MezzoError
from mezzo.conversion.conversion import convert_model
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.runtime_answers import first_batches
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.formats.precision_line import float_of
from mezzo.ir.nodes import Kind
from mezzo.numerics.data.data_checks import NO_SAMPLE
from mezzo.numerics.measures import Deviation, Measured, Ruling, RuntimeCheck, Timing
from mezzo.numerics.statistics.speeds import Difference, judge_speed
from mezzo.planner.options import Options
from mezzo.report.layout.numbers import spell_count
from mezzo.tuning.repair.float_fallback import without_format
from mezzo.tuning.repair.runtime_runs import RuntimeRuns, Seen, find_runtime, is_slower, times_of_floats
from mezzo.tuning.timing.final_benchmark import summarise_times

if TYPE_CHECKING:
    from mezzo.analysis.fusion.quantized import QuantizedUnit
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided
    from mezzo.numerics.data.datasets import Dataset

RULE = "runtime"
# Rounds in which products that run in floats go back; units that fail or answer wrong, found one after the other.
_ROUNDS, _CULPRITS = 3, 3
# So long what fails is looked for, each step a conversion and a run; of a large model it may not be found then.
_LONGEST_SEARCH_S = 120.0
# Halves that go back where all is slower than floats, before the rest does.
_HALVES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResult:
    """A result with the plan and the options that made it."""

    decided: "Decided"
    result: "Artifact"
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a check came to: the result that is left, what was seen of it, and what a reader has to know."""

    candidate: PlannedResult
    check: RuntimeCheck
    timing: Timing | None = None
    notes: tuple[str, ...] = ()


def check_on_runtime(
    model: "Model",
    first: PlannedResult,
    data: "Dataset | None",
    held: Mapping[str, Deviation] | None,
    *,
    may_change: bool,
) -> Checked | None:
    """Run a result on its target, and give back what does not do there as planned, if it may be changed. None where
    nothing runs low, or the target's table knows of no gain that could be checked.

    `data` is what answers are compared on, drawn where there is none; `held` are the outputs of the emulated check.
    """
    profiler = None if model.given.lab is None else model.given.lab.profiler
    if profiler is None or not first.decided.may_gain:
        return None
    target = first.options.planning.target
    if not first.options.is_checked:
        return Checked(candidate=first, check=RuntimeCheck(target=target.name, why_not="--no-check"))
    runtime = find_runtime(profiler, target)
    if runtime is None:
        return Checked(candidate=first, check=RuntimeCheck(target=target.name, why_not="no runtime here"))
    try:
        batches = first_batches(data if data is not None else open_model_data(model.given, "random"))
        if not batches:
            return Checked(
                candidate=first, check=RuntimeCheck(target=target.name, runtime=runtime, why_not=NO_SAMPLE[0])
            )
        runs = RuntimeRuns(model, target, batches, held)
    except MezzoError as error:
        return Checked(candidate=first, check=RuntimeCheck(target=target.name, runtime=runtime, why_not=str(error)))
    is_right = all(output.ruling is not Ruling.DIFFERENT for output in (held or {}).values())
    with closing(runs):
        return _Check(model=model, runtime=runtime, runs=runs, now=first).run(may_change, is_right)


def measured_without_data(model: "Model", first: PlannedResult, *, may_change: bool) -> tuple[PlannedResult, Measured]:
    """A result that no data has judged, checked on drawn data as of `check_on_runtime`, with what that showed."""
    checked = check_on_runtime(model, first, None, None, may_change=may_change)
    if checked is None:
        return first, Measured()
    return checked.candidate, Measured(runtime=checked.check, timing=checked.timing, notes=checked.notes)


@dataclass(frozen=True, slots=True)
class _Part:
    """Nodes that go back together, by name, and the format that they run in until then."""

    nodes: tuple[str, ...]
    dtype: DType


@dataclass(kw_only=True)
class _Check:
    """One check, on its way."""

    model: "Model"
    runtime: str
    runs: RuntimeRuns
    now: PlannedResult
    notes: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def run(self, may_change: bool, is_right: bool) -> Checked:
        """See what the runtime makes of the result; `is_right`: emulated, its answers are."""
        seen = self.runs.see(self.now.result)
        if may_change and is_right and seen.because is not None:
            seen = self._without_culprits(seen)
        for _ in range(_ROUNDS if may_change and seen.because is None else 0):
            if seen.products is None or not seen.products.in_floats:
                break
            seen = self._without_floats(seen)
        if may_change and seen.because is None:
            seen = self._with_late_ranges(seen)
        timing = None
        if seen.because is None:
            timing, seen = self._time(seen, may_change)
        check = RuntimeCheck(
            target=self.now.options.planning.target.name,
            runtime=self.runtime,
            fault=seen.fault,
            comparison=seen.comparison,
            planned=None if seen.products is None else len(seen.products.planned),
            in_floats=() if seen.products is None else seen.products.in_floats,
            returned=tuple(self.returned),
        )
        return Checked(candidate=self.now, check=check, timing=timing, notes=tuple(self.notes))

    # -- what fails, or answers wrong -------------------------------------------------------------------------------

    def _without_culprits(self, seen: Seen) -> Seen:
        """Give parts back, each found by halving, until the rest runs and answers right; all as it was where that is
        not reached.
        """
        before, wrong = (self.now, seen), seen
        back: list[_Part] = []
        until_s = time.monotonic() + _LONGEST_SEARCH_S
        for _ in range(_CULPRITS):
            culprit = self._find_culprit(before[0], back, until_s)
            if culprit is None:
                break
            back.append(culprit)
            found = self._remade(before[0], back, f"{self.runtime} fails with it: {wrong.because}")
            seen = self.runs.see(found.result)
            if seen.because is None:
                self.now = found
                self._tell(f"{self.runtime}: {before[1].because}", back)
                return seen
        return before[1]

    def _find_culprit(self, candidate: PlannedResult, back: Sequence[_Part], until_s: float) -> _Part | None:
        """The first part, floats before what is quantized, with which those before it fail; None where the fault is
        elsewhere, or the search takes too long.
        """
        parts = [part for part in (*self._floats(candidate), *self._units(candidate)) if part not in back]

        def fails(count: int) -> bool:
            found = self._remade(candidate, [*back, *parts[count:]], "tried")
            return self.runs.see(found.result).because is not None

        if not parts or fails(0):
            return None
        right, wrong = 0, len(parts)
        while wrong - right > 1:
            if time.monotonic() > until_s:
                self.notes.append(f"what {self.runtime} fails with was looked for {_LONGEST_SEARCH_S:.0f} s, in vain")
                return None
            middle = (right + wrong) // 2
            right, wrong = (right, middle) if fails(middle) else (middle, wrong)
        return parts[wrong - 1]

    # -- what runs in floats ----------------------------------------------------------------------------------------

    def _without_floats(self, seen: Seen) -> Seen:
        """Give back the products that the runtime computes in floats: to a form that finds ranges at run time where
        they have not had one, else to floats.
        """
        assert seen.products is not None, "they were counted"
        names, candidate = {*seen.products.in_floats}, self.now
        late = frozenset(names) - (candidate.options.planning.dynamic or frozenset())
        other = self._at_run_time(candidate, late) if late else None
        if other is not None:
            found = self.runs.see(other.result)
            if found.because is None and found.products is not None and not found.products.in_floats:
                self.now = other
                self.notes.append(f"{self.runtime} computes {_count(names)} in floats: they find ranges at run time")
                return found
        units = [unit for unit in self._units(candidate) if unit.nodes[0] in names]
        if not units:
            return replace(seen, products=None)
        because = f"{self.runtime} computes it in floats all the same"
        self.now = self._remade(candidate, units, because)
        self._tell(because, units)
        return self.runs.see(self.now.result)

    def _at_run_time(self, candidate: PlannedResult, names: frozenset[str]) -> PlannedResult | None:
        """The result with some products in the form that finds ranges at run time; None where the target has none, or
        some are not taken up by it.
        """
        planning = candidate.options.planning
        quantized = planning.line.quantized_format
        if quantized is None or planning.is_dynamic or not planning.target.finds_ranges(quantized):
            return None
        dynamic = (planning.dynamic or frozenset(candidate.decided.plan.dynamic)) | names
        found = _convert(self.model, replace(candidate.options, planning=replace(planning, dynamic=dynamic)))
        return found if names <= {*found.decided.plan.dynamic} else None

    # -- speed ------------------------------------------------------------------------------------------------------

    def _with_late_ranges(self, seen: Seen) -> Seen:
        """Let products find ranges at run time where all that can are faster so than with ranges of data, measured."""
        names = self._static_products()
        late = self._at_run_time(self.now, names) if names else None
        if late is None:
            return seen
        found = self.runs.see(late.result)
        if found.because is not None or (found.products is not None and found.products.in_floats):
            return seen
        times = self.runs.speed(late.result, self.now.result)
        if times is None or judge_speed(times) is not Difference.FASTER:
            return seen
        self.now = late
        ends = f"{times.estimate:.2f} times as fast as with ranges of data, {times.low:.2f} to {times.high:.2f}"
        self.notes.append(f"{self.runtime}: {_count(names)} find ranges at run time, which makes the model {ends}")
        return found

    def _static_products(self) -> frozenset[str]:
        """The products with ranges of data for which the target has kernels that find them at run time; none where
        these are less than half of all: the rest would decide alone.
        """
        planning, decided = self.now.options.planning, self.now.decided
        nodes, dtype = decided.reading.graph.nodes, planning.line.quantized_format
        products = [unit for unit in decided.quantized_units if any(read.operand.is_weight for read in unit.reads)]
        names = set[str]()
        for unit in products:
            node = nodes[unit.nodes[0]]
            assert dtype is not None, "units run quantized"
            kernels = planning.target.quantized_kernels(dtype, *node.signature.operator, node.attributes)
            if not unit.kernel.is_dynamic and any(kernel.is_dynamic for kernel in kernels):
                names.add(node.name)
        return frozenset(names) if 2 * len(names) > len(products) else frozenset()

    def _time(self, seen: Seen, may_change: bool) -> tuple[Timing | None, Seen]:
        """Time the result beside FP32, and beside floats alone where the plan has a float beside what is quantized.
        Of what is slower than that half goes back, and half of the rest, then all. Returns the times of what is left,
        and what was seen of it.
        """
        whole, units = self.now, self._by_gain(self.now) if may_change else []
        has_float = len(whole.options.planning.line.beside) > 1
        alone = self._without(whole, units) if units and has_float else None
        floats = None if alone is None else alone.result
        timings = self.runs.time(whole.result, floats)
        if not (units and is_slower(timings)):
            return summarise_times(timings), seen
        than = f"{self.runtime} runs it in {units[0].dtype} slower than {'floats alone' if has_float else 'FP32'}"
        for count in (len(units) >> half for half in range(1, _HALVES + 1)):
            if not count:
                break
            self.now = self._without(whole, units[:-count])
            seen = self.runs.see(self.now.result)
            if seen.because is not None:
                continue
            timings = self.runs.time(self.now.result, floats)
            if not is_slower(timings):
                self._tell(than, units[:-count])
                return summarise_times(timings), seen
        self.now = alone or self._without(whole, units)
        self._tell(than, units)
        return None if alone is None else times_of_floats(timings), self.runs.see(self.now.result)

    def _without(self, candidate: PlannedResult, units: Sequence[_Part]) -> PlannedResult:
        """The result with some units in floats, as they gain nothing."""
        return self._remade(candidate, units, f"{self.runtime} is slower with it in {units[0].dtype}, measured here")

    # -- the plan ---------------------------------------------------------------------------------------------------

    def _units(self, candidate: PlannedResult) -> list[_Part]:
        """Each unit that runs quantized, in the graph's order."""
        return _parts(candidate, candidate.decided.quantized_units)

    def _by_gain(self, candidate: PlannedResult) -> list[_Part]:
        """The same, that first of which the target's table expects least."""
        problem = candidate.decided.problem
        units = candidate.decided.quantized_units
        gains = problem.gains[problem.line.quantized] if units else ()
        return _parts(candidate, sorted(units, key=lambda unit: sum(int(gains[node]) for node in unit.nodes)))

    def _floats(self, candidate: PlannedResult) -> list[_Part]:
        """What runs in a low float, an operator each: a runtime without a kernel for one has none for all its nodes."""
        line, decided = candidate.options.planning.line, candidate.decided
        low = float_of(line)
        names: dict[str, list[str]] = {}
        for node, level in zip(decided.reading.graph.nodes, decided.levels, strict=True):
            if node.kind is Kind.OP and line.dtypes[level] is low and low not in QUANTIZED:
                names.setdefault(node.op, []).append(node.name)
        return [_Part(tuple(nodes), low) for nodes in names.values()]

    def _remade(self, candidate: PlannedResult, back: Iterable[_Part], because: str) -> PlannedResult:
        """The result without the format of some parts, for a reason."""
        returned = [(name, part.dtype) for part in back for name in part.nodes]
        return _convert(self.model, without_format(candidate.options, returned, RULE, because))

    def _tell(self, because: str, parts: Sequence[_Part]) -> None:
        products = [part.nodes[0] for part in parts if part.dtype in QUANTIZED]
        floats = [name for part in parts if part.dtype not in QUANTIZED for name in part.nodes]
        self.returned += products + floats
        said = [because]
        if products:
            said.append(f"{_count(products)} went back to floats: {', '.join(products[:4])}")
        if floats:
            said.append(f"{spell_count(len(floats), 'node')} went back to FP32: {', '.join(floats[:4])}")
        self.notes.append("; ".join(said))


def _parts(candidate: PlannedResult, units: "Sequence[QuantizedUnit]") -> list[_Part]:
    nodes, dtype = candidate.decided.reading.graph.nodes, candidate.options.planning.line.quantized_format
    return [_Part(tuple(nodes[number].name for number in unit.nodes), dtype) for unit in units if dtype is not None]


def _convert(model: "Model", options: Options) -> PlannedResult:
    decided, result = convert_model(model, options, None)
    return PlannedResult(decided=decided, result=result, options=options)


def _count(names: "Collection[str]") -> str:
    return spell_count(len(names), "product")
