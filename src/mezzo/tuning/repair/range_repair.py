"""Range repair: values past a format's range are stored times a power of two, so that their
operators need not run in FP32. No FP32 answer changes by a bit, as long as every number stays in
FP32's normal range.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np

from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.saturating import may_overflow
from mezzo.contracts.plans import ScaledValue
from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.contracts.strategy import conversion_cost
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.rescaling import rescaled
from mezzo.formats.dtypes import FORMATS, LOW_DTYPES
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.numerics.measures import Ranges, ValueRange
from mezzo.numerics.ranges.protection import overflowing, ranges_by_value
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged, rows_of
from mezzo.planner.verdicts.exact_masks import trusted_masks
from mezzo.quantize.calibration import with_placeholders
from mezzo.report.layout.numbers import spell_count
from mezzo.tuning.costs import table_weights
from mezzo.tuning.repair.range_findings import HEADROOM, with_protection
from mezzo.tuning.repair.repair_scales import TYPICAL, Repair, RepairScales, exponents_of

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model

_ESTIMATED = "what plausible inputs lead to"
# Of more components than this, all are repaired without asking whether each one pays.
_MOST_TRIALS = 24
# Of so many, each set is tried.
_MOST_IN_SETS = 4


def repair_ranges(
    model: "Model",
    options: Options,
    ranges: Ranges,
    costs_of: Callable[[Problem], MeasuredCosts] | None = None,
) -> "tuple[Model, Options] | None":
    """The model with values of large ranges scaled, and options that record it; None if no scale
    helps: nothing overflows, or what does must stay as it is. A quantized level has no parameters
    yet: they are those of the repaired model.

    A component is scaled if the plan costs less for it: the FP32 nodes and casts that it saves,
    against multiplications where it meets what cannot be scaled. `costs_of`: the costs that the
    plan will have, if not those of the tables.
    """
    if not needs_repair(model, options, ranges):
        return None
    low = FORMATS[options.planning.low]
    judged = judge_model(model, options)[1]
    graph = model.read(*options.planning.floats).graph
    rows, limited = rows_of(graph), _limits(judged, graph)
    measured = ranges_by_value(graph, ranges.values)
    harmless = may_overflow(StructureView(graph=graph, rows=rows, low=low))
    found = overflowing(graph, rows, low, measured, HEADROOM, limited, harmless)
    scales = RepairScales(graph, low, measured, {value for value, _ in found}, limited)

    def protect(repaired: "Model", scaled: Options, exponents: Mapping[int, int]) -> Options:
        read = repaired.read(*options.planning.floats).graph
        known = with_multiplied(scaled_ranges(ranges, exponents, graph), read, graph)
        return with_protection(repaired, scaled, known)

    return _best(scales, _Trials(model, options, scales, protect, costs_of))


def repair_estimates(model: "Model", options: Options) -> "tuple[Model, Options] | None":
    """As `repair_ranges`, by the ranges that plausible inputs lead to, without data; a quantized
    level has the parameters of the repaired model.
    """
    if not _may_repair(model, options):
        return None
    options = replace(options, planning=replace(options.planning, quantized=None))
    planning, low = options.planning, FORMATS[options.planning.low]
    judged = judge_model(model, options)[1]
    graph = model.read(*planning.floats).graph
    limited = _limits(judged, graph)
    view = StructureView(graph=graph, rows=rows_of(graph), low=low, assumed=planning.assumed)
    view = replace(view, limited=limited, masks=trusted_masks(view, planning.policy, None))
    sizes = {v: size for v, size in view.estimates.overflowing if v not in limited}
    if not sizes:
        return None
    measured = {
        value: _estimated_range(graph, value, moments, sizes.get(value))
        for value, moments in enumerate(view.estimates.moments)
        if not moments.flags & LOST and math.isfinite(sizes.get(value, 0.0))
    }
    scales = RepairScales(graph, low, measured, sizes.keys() & measured.keys(), limited)
    best = _best(scales, _Trials(model, options, scales, lambda _, scaled, __: scaled, None))
    return None if best is None else (best[0], with_placeholders(*best))


def _estimated_range(
    graph: Graph, value: int, moments: Moments, largest: float | None
) -> ValueRange:
    producer = graph.producer(value)
    size = math.hypot(moments.mean, moments.std)
    return ValueRange(
        value=graph.values[value].name,
        node=producer.name,
        op=producer.op,
        count=0,
        sampled=0,
        minimum=moments.low if largest is None else -largest,
        maximum=moments.high if largest is None else largest,
        mean_absolute=size,
        has_nan=False,
        has_infinity=False,
        quantiles=((TYPICAL, size),),
        formats={},
        largest_at=_ESTIMATED,
    )


def needs_repair(model: "Model", options: Options, ranges: Ranges) -> bool:
    """Whether values come near the limit of a float whose ranges may be repaired."""
    return _may_repair(model, options) and any(
        each.largest * HEADROOM >= FORMATS[options.planning.low].overflow_from
        for each in ranges.values
    )


def _may_repair(model: "Model", options: Options) -> bool:
    """Whether ranges are to be repaired, and can be: of a lower float that has a small range. A
    quantized format holds any range by its scales.
    """
    low = options.planning.low
    is_narrow = low in LOW_DTYPES.values() and not FORMATS[low].is_wide
    return options.out_of_range == "repair" and model.frontend.rescales and is_narrow


def _best(scales: RepairScales, trials: "_Trials") -> "tuple[Model, Options] | None":
    """The model with the repairs that pay; None if none does."""
    repairs = scales.found()
    best = trials.best(repairs) if repairs else []
    if not best or trials.cost(best) >= trials.cost([]):
        return None
    model, options = trials.applied(best)
    return model, replace(options, notes=(*options.notes, _tell(scales, best)))


def _tell(scales: RepairScales, repairs: Sequence[Repair]) -> str:
    exponents = sorted(exponents_of(repairs).values())
    powers = " to ".join(f"2^{-k}" for k in dict.fromkeys((exponents[0], exponents[-1])))
    graph, changes = scales.graph, scales.rescaling(repairs)
    multiplied = {
        (graph.nodes[use.node].inputs[use.operand], exponent)
        for use, exponent in changes.operands.items()
        if graph.nodes[use.node].inputs[use.operand] not in graph.constants
    }
    return (
        f"{spell_count(len(exponents), 'value')} stored times {powers}, in weights and constants"
        f" and {spell_count(len(multiplied), 'multiplication')}: {scales.low.dtype} holds them"
        " then, and FP32 answers are the same"
    )


def _limits(judged: Judged, graph: Graph) -> frozenset[int]:
    """Masks that the policy clips, in another reading of the same model."""
    names = {judged.problem.graph.values[value].name for value in judged.limits}
    return frozenset(v for v, value in enumerate(graph.values) if value.name in names)


def scaled_ranges(ranges: Ranges, exponents: Mapping[int, int], graph: Graph) -> Ranges:
    """Ranges of the repaired model, without what formats lose of them."""
    by_name = {graph.values[value].name: k for value, k in exponents.items()}

    def scaled(each: ValueRange) -> ValueRange:
        k = by_name.get(each.value, 0)
        if not k:
            return each
        return _times(each, math.ldexp(1.0, -k))

    return replace(ranges, values=tuple(map(scaled, ranges.values)))


def _times(each: ValueRange, factor: float) -> ValueRange:
    """A range times a positive factor, without what formats lose of it."""
    return replace(
        each,
        minimum=each.minimum * factor,
        maximum=each.maximum * factor,
        mean_absolute=each.mean_absolute * factor,
        quantiles=tuple((share, number * factor) for share, number in each.quantiles),
        formats={},
    )


def with_multiplied(ranges: Ranges, graph: Graph, given: Graph) -> Ranges:
    """Ranges of the repaired model with those of its added multiplications. `graph`: the repaired
    one, `given`: the graph without scales.
    """
    known = ranges_by_value(graph, ranges.values)
    by_name = {each.value: each for each in ranges.values}
    for node in graph.nodes:
        factor = graph.constants.get(node.present_inputs[-1]) if node.present_inputs else None
        is_added = node.kind is Kind.OP and node.op == "Mul" and node.name not in given.by_name
        if not is_added or factor is None or factor.number is None:
            continue
        value, result = node.present_inputs[0], node.present_outputs[0]
        # A graph output is renamed before it is multiplied.
        before = known.get(value) or by_name.get(graph.values[result].name)
        if before is not None:
            known |= {value: before, result: _times(before, factor.number)}
    named = (
        replace(each, value=graph.values[value].name, node=graph.producer(value).name)
        for value, each in known.items()
    )
    return replace(ranges, values=tuple(named))


def cost_against_base(problem: Problem, levels: Sequence[int], given: Graph) -> int:
    """Cost of a plan against the given model in the base: conversions and added multiplications,
    less what lower levels gain. A multiplication gains nothing by its level: the policy's worth of
    a low node would pay for adding some.
    """
    nodes = problem.graph.nodes
    is_added = np.array([n.kind is Kind.OP and n.name not in given.by_name for n in nodes], bool)
    gains = np.take_along_axis(problem.gains, np.array(levels, np.int64)[None], axis=0)[0]
    multiplied = int(table_weights(problem)[is_added].sum())
    launched = int(is_added.sum()) * problem.prices.cast_launch
    gained = int(gains[~problem.is_absent & ~is_added].sum())
    return conversion_cost(problem, levels) + multiplied + launched - gained


class _Trials:
    """Plans with some of the repairs. Costs are compared by the exact plan of each."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        scales: RepairScales,
        protect: "Callable[[Model, Options, Mapping[int, int]], Options]",
        costs_of: Callable[[Problem], MeasuredCosts] | None,
    ) -> None:
        """`protect`: options of a repaired model, given the exponents of the model's values."""
        self._model, self._options, self._scales = model, options, scales
        self._protect, self._costs_of = protect, costs_of
        self._costs: dict[tuple[tuple[int, int], ...], int] = {}

    def best(self, repairs: list[Repair]) -> list[Repair]:
        """The repairs that pay. Of a few, the cheapest set, with one scale for all where that is
        cheaper, as values that are multiplied alike share a multiplication; of more, all but those
        that cost more than they save, one at a time.
        """
        if len(repairs) > _MOST_TRIALS:
            return repairs
        if len(repairs) <= _MOST_IN_SETS:
            sets = chain.from_iterable(
                combinations(repairs, count) for count in range(len(repairs) + 1)
            )
            repairs = min(map(self._scales.fitted, sets), key=self.cost)
            return min((repairs, *self._scales.aligned(repairs)), key=self.cost)
        for repair in sorted(repairs, key=lambda each: len(each.component.factors)):
            rest = [each for each in repairs if each.component is not repair.component]
            rest = self._scales.fitted(rest)
            if self.cost(rest) <= self.cost(repairs):
                repairs = rest
        return repairs

    def cost(self, repairs: Sequence[Repair]) -> int:
        """Cost of the plan with these repairs, multiplications included."""
        key = tuple((id(repair.component), repair.scale) for repair in repairs)
        if key not in self._costs:
            model, options = self.applied(repairs)
            options = self._protect(model, options, exponents_of(repairs))
            problem = judge_model(model, options)[1].problem
            if self._costs_of is not None:
                problem = replace(problem, measured=self._costs_of(problem))
            levels = options.planning.strategy.assign(problem)
            self._costs[key] = cost_against_base(problem, levels, self._scales.graph)
        return self._costs[key]

    def applied(self, repairs: Sequence[Repair]) -> "tuple[Model, Options]":
        """The model with these repairs, and options that record them."""
        values = self._scales.graph.values
        scaled = tuple(
            ScaledValue(values[value].name, k, _because(repair.worst))
            for repair in repairs
            for value, k in sorted(repair.exponents.items())
        )
        model = rescaled(self._model, scaled, self._options.planning.floats)
        return model, replace(self._options, scaled=scaled)


def _because(worst: ValueRange) -> str:
    verb = "may hold" if worst.largest_at == _ESTIMATED else "holds"
    span = f"{worst.minimum:.4g} to {worst.maximum:.4g}"
    return f"{worst.value!r} {verb} {span} in {worst.largest_at}"
