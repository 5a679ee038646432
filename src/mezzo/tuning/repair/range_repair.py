"""Range repair: values past a format's range are stored times a power of two, so that their
operators need not run in FP32. No FP32 answer changes by a bit, as long as every number stays in
FP32's normal range.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.graph_with_facts import GraphView
from mezzo.analysis.power_scales import Component, ScaledGraph
from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.saturating import may_overflow
from mezzo.contracts.plans import Rescaling, ScaledValue
from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.contracts.strategy import conversion_cost
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.rescaling import rescaled
from mezzo.formats.dtypes import FORMATS, LOW_DTYPES, Format
from mezzo.ir.graph import Graph
from mezzo.numerics.measures import Ranges, ValueRange
from mezzo.numerics.ranges.protection import overflowing, ranges_by_value
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged, rows_of
from mezzo.planner.verdicts.exact_masks import trusted_masks
from mezzo.quantize.calibration import with_placeholders
from mezzo.report.layout.numbers import spell_count
from mezzo.tuning.costs import table_weights
from mezzo.tuning.repair.range_findings import HEADROOM, with_protection

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model

# Repaired values stay this much further below the limit than the ones that need no repair.
_MARGIN = 2.0
# A constant is not scaled so far that its typical number has fewer bits than the format's.
_LEAST_BITS_LEFT = 8.0
# The quantile of a value's typical numbers: most of a gate's are next to zero, and stay there.
_TYPICAL = 0.9
_ESTIMATED = "what plausible inputs lead to"
# Of more components than this, all are repaired without asking whether each one pays.
_MOST_TRIALS = 24


@dataclass(frozen=True, slots=True)
class _Repair:
    """A component with its free integer, and the value that needs it."""

    component: Component
    scale: int
    worst: ValueRange

    @property
    def exponents(self) -> dict[int, int]:
        return self.component.exponents(self.scale)


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
    scales = _Scales(graph, low, measured, {value for value, _ in found}, limited)

    def protect(repaired: "Model", scaled: Options, exponents: Mapping[int, int]) -> Options:
        return with_protection(repaired, scaled, scaled_ranges(ranges, exponents, graph))

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
    scales = _Scales(graph, low, measured, sizes.keys() & measured.keys(), limited)
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
        quantiles=((_TYPICAL, size),),
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
    return options.out_of_range == "repair" and model.frontend.rewrites and is_narrow


def _best(scales: "_Scales", trials: "_Trials") -> "tuple[Model, Options] | None":
    """The model with the repairs that pay; None if none does."""
    repairs = scales.found()
    best = trials.best(repairs) if repairs else []
    if not best or trials.cost(best) >= trials.cost([]):
        return None
    model, options = trials.applied(best)
    return model, replace(options, notes=(*options.notes, _tell(scales, best)))


def _tell(scales: "_Scales", repairs: Sequence[_Repair]) -> str:
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


class _Scales:
    """The exponents that bring each component's values into a format's range."""

    def __init__(
        self,
        graph: Graph,
        low: Format,
        measured: Mapping[int, ValueRange],
        overflowing: Set[int],
        limited: Set[int],
    ) -> None:
        """`measured`: ranges by value id. `limited`: masks, which are no ranges."""
        self.graph, self.low, self._limited = graph, low, limited
        self.scaled = ScaledGraph(GraphView(graph, rows_of(graph)))
        self._measured, self._overflowing = measured, overflowing
        self._count_named = Counter(value.name for value in graph.values)

    def found(self) -> list[_Repair]:
        """The components that overflow, each with the smallest scale that holds its values and
        loses none of their bits.
        """
        largest = {value: measured.largest for value, measured in self._measured.items()}
        candidates = [
            repair
            for component in self.scaled.components(largest)
            if not self._overflowing.isdisjoint(component.factors)
            if (repair := self._repair(component)) is not None
        ]
        while candidates and (bad := self._without_room(candidates)):
            kept = [each for each in candidates if bad.isdisjoint(each.component.factors)]
            assert len(kept) < len(candidates), "only repairs scale constants"
            candidates = kept
        return candidates

    def _repair(self, component: Component) -> _Repair | None:
        if any(self._count_named[self.graph.values[v].name] > 1 for v in component.factors):
            return None  # a plan could not name them
        measured = [
            (self._measured[value], factor)
            for value, factor in component.factors.items()
            if value in self._measured
        ]
        hit = [self._measured[v] for v in self._overflowing if v in component.factors]
        worst = max(hit, key=lambda each: each.largest)
        sign = next(1 if f > 0 else -1 for each, f in measured if each is worst)
        needed = max(
            (-(-self._bits_over(each) // abs(f)) for each, f in measured if f * sign > 0),
            default=0,
        )
        scale = sign * needed
        if all(self._fits(each, factor * scale) for each, factor in measured):
            return _Repair(component, scale, worst)
        return None

    def _bits_over(self, measured: ValueRange) -> int:
        """The smallest exponent that holds a value with headroom."""
        limit = self.low.overflow_from / (HEADROOM * _MARGIN)
        return math.floor(math.log2(measured.largest / limit)) + 1 if measured.largest else 0

    def _fits(self, measured: ValueRange, exponent: int) -> bool:
        """Whether a value is in the range at an exponent, and no typical number of it becomes
        subnormal that was not.
        """
        is_below = math.ldexp(measured.largest, -exponent) * HEADROOM < self.low.overflow_from
        normal = self.low.smallest_normal
        return is_below and not any(
            math.ldexp(number, -exponent) < normal <= number
            for share, number in measured.quantiles
            if share == _TYPICAL
        )

    def _without_room(self, repairs: Sequence[_Repair]) -> frozenset[int]:
        """Values read together with constants that would leave the format's range."""
        bad = set[int]()
        for use, exponent in self.rescaling(repairs).operands.items():
            node = self.graph.nodes[use.node]
            value = node.inputs[use.operand]
            facts = None if value is None else self.graph.constants.get(value)
            if facts is None or value in self._limited:
                continue
            largest = math.ldexp(facts.largest, exponent)
            typical = math.ldexp(facts.rms or facts.largest, exponent)
            floor = self.low.smallest_normal * _LEAST_BITS_LEFT
            is_faint = exponent < 0 and 0.0 < typical < floor
            if largest >= self.low.overflow_from or is_faint:
                bad.update(node.present_inputs, node.present_outputs)
        return frozenset(bad)

    def rescaling(self, repairs: Sequence[_Repair]) -> Rescaling:
        return self.scaled.rescaling(exponents_of(repairs))


def scaled_ranges(ranges: Ranges, exponents: Mapping[int, int], graph: Graph) -> Ranges:
    """Ranges of the repaired model, without what formats lose of them."""
    by_name = {graph.values[value].name: k for value, k in exponents.items()}

    def scaled(each: ValueRange) -> ValueRange:
        k = by_name.get(each.value, 0)
        if not k:
            return each
        quantiles = tuple((share, math.ldexp(number, -k)) for share, number in each.quantiles)
        return replace(
            each,
            minimum=math.ldexp(each.minimum, -k),
            maximum=math.ldexp(each.maximum, -k),
            mean_absolute=math.ldexp(each.mean_absolute, -k),
            quantiles=quantiles,
            formats={},
        )

    return replace(ranges, values=tuple(map(scaled, ranges.values)))


def exponents_of(repairs: Sequence[_Repair]) -> dict[int, int]:
    """The exponents of all values, by id."""
    return {value: k for repair in repairs for value, k in repair.exponents.items()}


def cost_against_base(problem: Problem, levels: Sequence[int], given: Graph) -> int:
    """Cost of a plan against the given model in the base: conversions and added multiplications,
    less what lower levels gain.
    """
    weights = table_weights(problem)
    added = [node.id for node in problem.graph.nodes if node.name not in given.by_name]
    gains = np.take_along_axis(problem.gains, np.array(levels, np.int64)[None], axis=0)[0]
    multiplied = int(weights[added].sum()) + len(added) * problem.prices.cast_launch
    return conversion_cost(problem, levels) + multiplied - int(gains[~problem.is_absent].sum())


class _Trials:
    """Plans with some of the repairs. Costs are compared by the exact plan of each."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        scales: _Scales,
        protect: "Callable[[Model, Options, Mapping[int, int]], Options]",
        costs_of: Callable[[Problem], MeasuredCosts] | None,
    ) -> None:
        """`protect`: options of a repaired model, given the exponents of the model's values."""
        self._model, self._options, self._scales = model, options, scales
        self._protect, self._costs_of = protect, costs_of
        self._costs: dict[tuple[int, ...], int] = {}

    def best(self, repairs: list[_Repair]) -> list[_Repair]:
        """The repairs without those that cost more than they save, one at a time."""
        if len(repairs) > _MOST_TRIALS:
            return repairs
        for repair in sorted(repairs, key=lambda each: len(each.component.factors)):
            rest = [each for each in repairs if each is not repair]
            if self.cost(rest) <= self.cost(repairs):
                repairs = rest
        return repairs

    def cost(self, repairs: Sequence[_Repair]) -> int:
        """Cost of the plan with these repairs, multiplications included."""
        key = tuple(id(repair) for repair in repairs)
        if key not in self._costs:
            model, options = self.applied(repairs)
            options = self._protect(model, options, exponents_of(repairs))
            problem = judge_model(model, options)[1].problem
            if self._costs_of is not None:
                problem = replace(problem, measured=self._costs_of(problem))
            levels = options.planning.strategy.assign(problem)
            self._costs[key] = cost_against_base(problem, levels, self._scales.graph)
        return self._costs[key]

    def applied(self, repairs: Sequence[_Repair]) -> "tuple[Model, Options]":
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
