"""Scales of a range repair: powers of two that bring values into a format's range, with which no
value or constant loses bits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.analysis.power_scales import ScaledGraph
from mezzo.analysis.scale_components import Component
from mezzo.contracts.plans import Rescaling
from mezzo.formats.dtypes import Format
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node
from mezzo.numerics.measures import ValueRange
from mezzo.planner.planner import rows_of
from mezzo.tuning.repair.range_findings import HEADROOM

# The quantile of a value's typical numbers: most of a gate's are next to zero, and stay there.
TYPICAL = 0.9
# Repaired values stay this much further below the limit than the ones that need no repair.
_MARGIN = 2.0
# A constant is not scaled so far that its typical number has fewer bits than the format's.
_LEAST_BITS_LEFT = 8.0
# Scales are tried this far past the smallest one where a constant has no room for it.
_REACH = 8


@dataclass(frozen=True, slots=True)
class Repair:
    """A component with its free integer, and the value that needs it."""

    component: Component
    scale: int
    worst: ValueRange

    @property
    def exponents(self) -> dict[int, int]:
        return self.component.exponents(self.scale)


class RepairScales:
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

    def found(self) -> list[Repair]:
        """The components that overflow, each with a scale that holds its values and loses none of
        their bits: the smallest, unless a constant needs another.
        """
        largest = {value: measured.largest for value, measured in self._measured.items()}
        candidates = [
            repair
            for component in self.scaled.components(largest, self._overflowing)
            if not self._overflowing.isdisjoint(component.factors)
            if (repair := self._repair(component)) is not None
        ]
        return self.fitted(candidates)

    def fitted(self, repairs: Sequence[Repair]) -> list[Repair]:
        """The repairs with scales that every constant holds: of those around one that has no room,
        one takes another scale, or is left out. If one is, all are tried without the margin.
        """
        fitting = self._fitted(repairs)
        if len(fitting) == len(repairs):
            return fitting
        closer = self._fitted([self._with(each, abs(each.scale) - 1) for each in repairs])
        return max(fitting, closer, key=len)

    def _fitted(self, repairs: Sequence[Repair]) -> list[Repair]:
        fitting = _Fitting(self, repairs)
        fitting.solve()
        return [each for each in fitting.repairs if each.scale]

    def aligned(self, repairs: Sequence[Repair]) -> Iterator[list[Repair]]:
        """The repairs with each of their scales for all where it holds, the largest first."""
        for size in sorted({abs(each.scale) for each in repairs}, reverse=True):
            yield self.fitted([self._with(each, size) for each in repairs])

    def _with(self, repair: Repair, size: int) -> Repair:
        """A repair with a scale of another size, if that holds."""
        scale = size if repair.scale > 0 else -size
        return replace(repair, scale=scale) if self.holds(repair.component, scale) else repair

    def _repair(self, component: Component) -> Repair | None:
        if any(self._count_named[self.graph.values[v].name] > 1 for v in component.factors):
            return None  # a plan could not name them
        hit = [self._measured[v] for v in self._overflowing if v in component.factors]
        worst = max(hit, key=lambda each: each.largest)
        measured = self._measured_of(component)
        sign = next(1 if f > 0 else -1 for each, f in measured if each is worst)
        needed = max(
            (-(-self._bits_over(each) // abs(f)) for each, f in measured if f * sign > 0),
            default=0,
        )
        # Without the margin, if typical numbers have no room for it.
        for scale in (sign * needed, sign * (needed - 1)):
            if self.holds(component, scale):
                return Repair(component, scale, worst)
        return None

    def other_scales(self, repair: Repair) -> list[int]:
        """Larger scales that hold a component's values, the nearest first, and last one without the
        margin.
        """
        step = 1 if repair.scale > 0 else -1
        further = [*range(1, _REACH + 1), -1]
        tried = (repair.scale + step * each for each in further)
        return [scale for scale in tried if scale and self.holds(repair.component, scale)]

    def holds(self, component: Component, scale: int) -> bool:
        """Whether all values of a component are in the range at a scale, and lose no bits."""
        measured = self._measured_of(component)
        return all(self._fits(each, factor * scale) for each, factor in measured)

    def _measured_of(self, component: Component) -> list[tuple[ValueRange, int]]:
        return [
            (self._measured[value], factor)
            for value, factor in component.factors.items()
            if value in self._measured
        ]

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
            if share == TYPICAL
        )

    def lacks_room(self, node: Node, exponents: Mapping[int, int]) -> bool:
        """Whether a constant that a node reads would leave the format's range, or lose bits."""
        for index, shift in self.scaled.shifts(node, exponents)[0].items():
            value = node.inputs[index]
            assert value is not None, "an operand that is scaled is there"
            *_, stored = self.scaled.movements(value)
            facts = self.graph.constants.get(stored)
            if facts is None or value in self._limited:
                continue
            largest = math.ldexp(facts.largest, shift)
            typical = math.ldexp(facts.rms or facts.largest, shift)
            floor = self.low.smallest_normal * _LEAST_BITS_LEFT
            if largest >= self.low.overflow_from or (shift < 0 and 0.0 < typical < floor):
                return True
        return False

    def rescaling(self, repairs: Sequence[Repair]) -> Rescaling:
        return self.scaled.rescaling(exponents_of(repairs))


class _Fitting:
    """A search for scales with which no constant lacks room."""

    def __init__(self, scales: RepairScales, repairs: Sequence[Repair]) -> None:
        self._scales, self.repairs = scales, [*repairs]
        graph = scales.graph
        self._exponents = exponents_of(repairs)
        self._owners = {v: at for at, each in enumerate(repairs) for v in each.component.factors}
        self._nodes: list[list[Node]] = [
            [graph.nodes[n] for n in sorted(_nodes_at(graph, each.component.factors))]
            for each in repairs
        ]

    def solve(self) -> None:
        """Change or drop a repair until nothing lacks room: each step leaves fewer such nodes, or
        fewer repairs.
        """
        lacking = self._lacking(self._scales.graph.nodes)
        while lacking:
            node = self._scales.graph.nodes[min(lacking)]
            values = (*node.present_inputs, *node.present_outputs)
            around = dict.fromkeys(self._owners[v] for v in values if v in self._owners)
            owners = [at for at in around if self.repairs[at].scale]
            assert owners, "only repairs scale constants"
            moves = [
                (self._change(at, scale), order, at, scale)
                for at in owners
                for order, scale in enumerate(self._scales.other_scales(self.repairs[at]))
            ]
            change, _, at, scale = min(moves, default=(0, 0, 0, 0))
            if change >= 0:
                at, scale = min(owners, key=lambda owner: self._change(owner, 0)), 0
            self._set(at, scale)
            lacking -= {each.id for each in self._nodes[at]}
            lacking |= self._lacking(self._nodes[at])

    def _lacking(self, nodes: Iterable[Node]) -> set[int]:
        return {n.id for n in nodes if self._scales.lacks_room(n, self._exponents)}

    def _change(self, at: int, scale: int) -> int:
        """How many more nodes lack room with another scale of a repair."""
        before, was = len(self._lacking(self._nodes[at])), self.repairs[at].scale
        self._set(at, scale)
        after = len(self._lacking(self._nodes[at]))
        self._set(at, was)
        return after - before

    def _set(self, at: int, scale: int) -> None:
        self.repairs[at] = repair = replace(self.repairs[at], scale=scale)
        self._exponents |= {v: factor * scale for v, factor in repair.component.factors.items()}


def _nodes_at(graph: Graph, values: Iterable[int]) -> set[int]:
    """The nodes that produce or read some values."""
    return {
        number
        for value in values
        for number in (graph.values[value].producer, *(use.node for use in graph.uses[value]))
    }


def exponents_of(repairs: Sequence[Repair]) -> dict[int, int]:
    """The exponents of all values, by id."""
    return {value: k for repair in repairs for value, k in repair.exponents.items()}
