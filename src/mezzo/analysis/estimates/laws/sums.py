"""Transfer laws of elementwise sums and differences, with cancellation."""

import math
from itertools import product

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    absolute_of,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    CENTRED,
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    RARE,
    SIGMA,
    TOUCHING,
    UNIT,
    UNKNOWN,
    Moments,
    exactly,
    flagged,
    hull,
    moments,
    rms,
    scaled,
    shifted,
)
from mezzo.analysis.estimates.patterns.likeness import apart
from mezzo.analysis.estimates.patterns.running_totals import note_sum, shared
from mezzo.analysis.estimates.patterns.tangents import cancelled, is_complement
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# A smaller positive constant added to a value that may vanish is an epsilon.
_GUARD = 1e-3
# Largest tolerated error of differences between positions.
_NEIGHBOURS = 0.25


def add(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    if len(xs) != 2:
        total = xs[0]
        for x in xs[1:]:
            total = _sum(total, x)
        return total
    a, b = xs
    first, second = node.inputs
    if first is None or second is None:
        return _sum(a, b)
    if (a.flags | b.flags) & LOST:
        return _beside_unknown(site, first, second)
    source_a, source_b = site.kept[first], site.kept[second]
    if source_a == source_b and site.pairs_up(first, second):
        return scaled(a, 2.0)
    if site.made_by[first] in _TURNING or site.made_by[second] in _TURNING:
        difference = _taken_off(site, first, second)
        if difference is not None:
            return _less(site, *difference)
    blended = (
        _blend(site, source_a, source_b)
        if site.made_by[source_a] in _TURNING and site.made_by[source_b] in _TURNING
        else None
    )
    if blended is not None:
        return blended
    if node.outputs[0] is not None:
        site.sums.add(node.outputs[0])
    total = _sum(a, b)
    if node.outputs[0] is not None:
        note_sum(site, (first, second), total, node.outputs[0])
    left = cancelled(site, first, second, 1.0, total) if a.std and b.std else None
    return total if left is None or not site.pairs_up(first, second) else left


def _beside_unknown(site: EstimatedGraph, first: int, second: int) -> Moments:
    """A sum with an unknown integer term: an integer constant is a bias, and so is the other term
    of an integer matmul, whose scale it has. The estimate is that of the other operand.
    """
    for unknown, other in ((first, second), (second, first)):
        if site.integer_span(unknown) is None or not site.estimates[unknown].flags & LOST:
            continue
        is_stored = site.producer(unknown).kind is Kind.SOURCE
        if is_stored or site.made_by[site.kept[other]] is Transfer.QUANTIZED_SUM:
            return site.estimates[other]
    return UNKNOWN


def _rest(site: EstimatedGraph, first: int, second: int) -> Moments | None:
    """Moments of (a + b) - a or a - (a + b); None for other differences."""
    left = site.without_part(first, second)
    if left is not None:
        return left
    negated = site.without_part(second, first)
    return None if negated is None else scaled(negated, -1.0)


def _taken_off(site: EstimatedGraph, first: int, second: int) -> tuple[int, int] | None:
    """The minuend and subtrahend of a sum with a negated operand; else None."""
    for plain, value in ((first, second), (second, first)):
        maker = site.producer(value)
        if site.made_by[value] is Transfer.NEGATE and maker.inputs[0] is not None:
            return plain, maker.inputs[0]
        if site.made_by[value] is Transfer.MULTIPLY:
            for k in range(2):
                other = maker.operand(k)
                if site.number(maker.operand(1 - k)) == -1.0 and other is not None:
                    return plain, other
    return None


_TURNING = frozenset({Transfer.NEGATE, Transfer.MULTIPLY})


def _blend(site: EstimatedGraph, *terms: int | None) -> Moments | None:
    """Moments of m a + (1 - m) b with a mask m: those of the union of a and b; None for other
    sums.
    """
    makers = [site.producer(site.kept[value]) for value in terms if value is not None]
    if any(site.transfer(maker) is not Transfer.MULTIPLY for maker in makers):
        return None
    for left, right in product(_masked(site, makers[0]), _masked(site, makers[1])):
        if is_complement(site, left[0], right[0]):
            return hull([site.estimates[left[1]], site.estimates[right[1]]])
    return None


def _masked(site: EstimatedGraph, node: Node) -> list[tuple[int, int]]:
    """Pairs of mask and masked value among a multiplication's operands."""
    first, second = node.inputs
    if first is None or second is None:
        return []
    pairs, is_truth = ((first, second), (second, first)), UNIT | INTEGER
    return [pair for pair in pairs if site.estimates[pair[0]].flags & is_truth == is_truth]


def _sum(a: Moments, b: Moments) -> Moments:
    mean_a, std_a, low_a, high_a, flags_a = a
    mean_b, std_b, low_b, high_b, flags_b = b
    either, both = flags_a | flags_b, flags_a & flags_b
    if either & LOST:
        return UNKNOWN
    mean = mean_a + mean_b
    flags = both & (INTEGER | POSITIVE) | either & MASKED
    if not std_b:
        if not _guarded(a, mean_b):
            y = shifted(a, mean_b)
            return flagged(y, y.flags | MASKED) if flags_b & MASKED else y
        rare = 0 if flags_a & TOUCHING else RARE
        return moments(
            mean, std_a, mean_b, high_a + mean_b, flags | rare | flags_a & (UNIT | POSITIVE)
        )
    if not std_a:
        return _sum(b, a)
    std = math.sqrt(std_a * std_a + std_b * std_b)
    high = mean + math.hypot(high_a - mean_a, high_b - mean_b)
    low = mean - math.hypot(mean_a - low_a, mean_b - low_b)
    if flags & POSITIVE:
        low = low_a + low_b if either & TOUCHING else max(low, low_a + low_b)
        flags |= both & TOUCHING
    return moments(mean, std, low, high, flags)


def _guarded(x: Moments, constant: float) -> bool:
    """Whether a constant is an epsilon for an x that may vanish."""
    return 0.0 < constant < _GUARD and bool(x.flags & (UNIT | POSITIVE)) and x.low <= constant


def subtract(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    first, second = node.inputs
    assert first is not None and second is not None, "both operands are there"
    return _less(site, first, second)


def _less(site: EstimatedGraph, first: int, second: int) -> Moments:
    """Moments of the difference of two values, in any decomposition."""
    a, b = site.estimates[first], site.estimates[second]
    if (a.flags | b.flags) & LOST:
        return UNKNOWN
    if site.are_same(first, second):
        return exactly(0.0)
    if site.kept[first] == site.kept[second] and a.flags & INTEGER:  # relative positions
        reach = a.high - a.low
        return moments(0.0, math.sqrt(2.0) * a.std, -reach, reach, INTEGER)
    by = site.reduced.get(site.origin[second])
    if by is not None and by[1] == site.origin[first]:
        if by[0] is Transfer.EXTREME:
            return moments(
                a.mean - b.mean, a.std, a.low - a.high, a.high - b.mean if b.mean < a.mean else 0.0
            )
        if by[0] is Transfer.MEAN:
            return moments(
                0.0,
                a.std,
                a.low - a.mean,
                a.high - a.mean,
                CENTRED if _is_of_rows(site, second) else 0,
            )
    negated = site.producer(site.kept[second])
    blended = (
        _blend(site, first, *negated.inputs) if site.transfer(negated) is Transfer.NEGATE else None
    )
    if blended is not None:
        return blended
    step = site.step_of_running_sum(first, second)
    if step is not None:  # neighbours in a cumulative sum differ by a summand
        return step
    rest = _rest(site, first, second)
    if rest is not None:
        return rest
    y = _sum(a, scaled(b, -1.0))
    return _difference(site, first, second, y) if a.std and b.std else y


def _is_of_rows(site: EstimatedGraph, mean: int) -> bool:
    """Whether a mean is over the last axis."""
    node = site.producer(site.origin[mean])
    shape, axes = site.shape(node.inputs[0]), site.reduced_axes(node)
    return axes == (-1,) or (shape is not None and axes == (len(shape) - 1,))


def _difference(site: EstimatedGraph, first: int, second: int, y: Moments) -> Moments:
    """Moments of a difference with cancellation; `y` is the estimate for independent values."""
    left = cancelled(site, first, second, -1.0, y)
    size = apart(site, first, second)
    if (size is None and left is None) or not site.pairs_up(first, second):
        return y
    if size is None or (left is not None and left.std <= size):
        return left or y
    mean = min(max(y.mean, -size), size)
    return moments(
        mean, size, max(y.low, mean - SIGMA * size), min(y.high, mean + SIGMA * size), y.flags
    )


def _sum_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    if site.chains:
        demand = shared(site, node, demand)
    error = absolute_of(demand, y)
    times = site.times(node)
    if times is not None:
        return tuple(tolerated(x, error / count) for x, count in zip(xs, times, strict=True))
    if y.flags & POSITIVE and all(x.flags & POSITIVE for x in xs):
        return tuple(Demand(error, max(demand.relative, error / (rms(x) or 1.0))) for x in xs)
    return [tolerated(x, error) for x in xs]


def _difference_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """A difference may be much smaller than its operands, so their tolerances are absolute.
    Relative positions of neighbours have to be exact.
    """
    error = absolute_of(demand, y)
    if y.flags & INTEGER and site.kept[node.inputs[0] or 0] == site.kept[node.inputs[1] or 0]:
        error = min(error, _NEIGHBOURS)
    return [tolerated(x, error) for x in xs]


def average(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    return scaled(add(site, node, xs), 1.0 / len(xs))


LAWS: Laws = {
    Transfer.ADD: Law(add, _sum_demands),
    Transfer.AVERAGE: Law(average, _sum_demands),
    Transfer.SUBTRACT: Law(subtract, _difference_demands),
}
