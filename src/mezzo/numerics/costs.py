"""Costs from measured times: what each node gains by running low and what each cast costs, in ns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzo.core.columns import Ints
from mezzo.core.facts import HEAVY
from mezzo.core.nodes import Kind
from mezzo.core.problem import Choice, MeasuredCosts, Problem
from mezzo.core.strategy import conversion_cost
from mezzo.dtypes import size_bits
from mezzo.numerics.measures import BYTES_MOVED, CostTable, NodeCost


@dataclass(frozen=True, slots=True)
class Times:
    """One profile by node id, in ns per run of the model. `spreads_ns`: how far each time may be off."""

    times_ns: Mapping[int, float]
    spreads_ns: Mapping[int, float]


def agreed(first: Times, second: Times) -> Times:
    """The mean of two profiles of one model, with spreads that cover what they differ by.

    The two show what no statistics of one does: how far kernels that are the same are timed apart. A node's spread is
    the largest of its own, its difference, and its time times the share by which all nodes differ.
    """
    both, share = sorted(first.times_ns.keys() & second.times_ns.keys()), noise_of(first, second)
    apart = {number: abs(first.times_ns[number] - second.times_ns[number]) for number in both}
    times = {number: (first.times_ns[number] + second.times_ns[number]) / 2 for number in both}
    spreads = {
        number: max(first.spreads_ns.get(number, 0.0), second.spreads_ns.get(number, 0.0), apart[number], share * time)
        for number, time in times.items()
    }
    return Times(times, spreads)


@dataclass(frozen=True, slots=True)
class CastSample:
    """One cast that was seen: nominal elements of its value, and its time in ns per run of its scope."""

    elements: int
    time_ns: float


@dataclass(frozen=True, slots=True)
class CastLine:
    """What a cast takes: `launch_ns` and `element_ns` for each element."""

    launch_ns: float
    element_ns: float


def table_weights(problem: Problem) -> Ints:
    """Table cost of each operator, whatever a policy says: bytes moved, those of heavy operators counted more. >= 1."""
    read, made = problem.elements_moved
    factors = np.where([cost in HEAVY for cost in problem.costs_of], problem.prices.linear_factor, 1)
    weights: Ints = np.maximum(4 * (read + made) * problem.graph.columns.node_repeats * factors, 1)
    return weights


def all_low(problem: Problem) -> list[int]:
    """The assignment of two levels in which everything that may run beside the base does."""
    ((side,), (linked,), (level,)) = problem.sides, problem.linked, problem.line.others
    held = {linked[number] for number, choice in enumerate(side.choices) if choice is Choice.HIGH}
    return [
        level if choice is Choice.LOW or (choice is Choice.FREE and linked[number] not in held) else problem.line.base
        for number, choice in enumerate(side.choices)
    ]


def heavy_low(problem: Problem) -> list[int]:
    """The assignment in which of the operators that may run low only the heavy ones do: the one with many casts."""
    ((side,), (linked,)) = problem.sides, problem.linked
    light = {
        linked[number]
        for number, cost in enumerate(problem.costs_of)
        if side.choices[number] is Choice.FREE and cost not in HEAVY
    }
    return [
        level if side.choices[number] is Choice.LOW or linked[number] not in light else problem.line.base
        for number, level in enumerate(all_low(problem))
    ]


def fit_casts(samples: Sequence[CastSample]) -> CastLine | None:
    """Fit the line through casts that were seen, by least relative squares; neither part is below 0. None for none."""
    seen = [sample for sample in samples if sample.time_ns > 0]
    if not seen:
        return None
    elements = np.array([sample.elements for sample in seen], np.float64)
    times = np.array([sample.time_ns for sample in seen], np.float64)
    columns = np.stack([np.ones_like(elements), elements], axis=1) / times[:, None]
    if len(set(elements.tolist())) > 1:
        launch, rate = np.linalg.lstsq(columns, np.ones_like(times), rcond=None)[0].tolist()
        if launch >= 0 and rate >= 0:
            return CastLine(launch, rate)
        if launch < 0:
            return CastLine(0.0, float(columns[:, 1].sum() / (columns[:, 1] ** 2).sum()))
    return CastLine(float(columns[:, 0].sum() / (columns[:, 0] ** 2).sum()), 0.0)


def derive_costs(
    problem: Problem, high: Times, low: Times, levels: Sequence[int], casts: CastLine | None
) -> tuple[MeasuredCosts, tuple[NodeCost, ...]]:
    """Derive costs from a profile of the model as it is and one in which nodes ran at `levels`, of two.

    A difference within the spread of the two times is none. A node that did not run low is taken to gain what the
    others do, by its time. Without `casts`, casts cost what the table says by what its bytes took here.
    """
    graph, weights = problem.graph, table_weights(problem)
    counts = graph.columns.is_kind(Kind.OP) & ~problem.is_absent
    ids = np.flatnonzero(counts).tolist()
    timed = [
        number
        for number in ids
        if levels[number] != problem.line.base and number in low.times_ns and number in high.times_ns
    ]
    whole_high = sum(high.times_ns[number] for number in timed)
    kept = sum(low.times_ns[number] for number in timed) / whole_high if whole_high else 1.0
    byte_ns = sum(high.times_ns.values()) / max(1, int(weights[list(high.times_ns)].sum())) if high.times_ns else 0.0
    gains, costs = np.zeros(len(graph.nodes), np.int64), []
    measured = set(timed)
    for number in ids:
        high_ns = high.times_ns.get(number, byte_ns * int(weights[number]))
        low_ns = low.times_ns[number] if number in measured else kept * high_ns
        gain = high_ns - low_ns
        off = float(np.hypot(high.spreads_ns.get(number, 0.0), low.spreads_ns.get(number, 0.0)))
        gains[number] = 0 if number in measured and abs(gain) <= off else round(gain)
        costs.append(NodeCost(graph.nodes[number].name, high_ns, low_ns))
    return measured_pair(problem, gains, _cast_prices(problem, casts, byte_ns)), tuple(costs)


def measured_pair(problem: Problem, gains: Ints, cast_prices: Sequence[int]) -> MeasuredCosts:
    """Costs of a line of two levels: gains by node of the one beside the base, prices of casts by value."""
    by_level = np.zeros((2, len(gains)), np.int64)
    by_level[problem.line.others[0]] = gains
    return MeasuredCosts(tuple(map(tuple, by_level.tolist())), (tuple(cast_prices),))


def _cast_prices(problem: Problem, casts: CastLine | None, byte_ns: float) -> tuple[int, ...]:
    """What a cast of each value costs in ns; never nothing, so that no cast is made for no gain."""
    columns = problem.graph.columns
    if casts is None:
        moved = problem.line.conversion_bits(0) / 8 * columns.value_elements
        per_run = byte_ns * (problem.prices.cast_launch + moved)
    else:
        per_run = casts.launch_ns + casts.element_ns * columns.value_elements
    prices = np.maximum(np.rint(per_run * columns.value_repeats), 1.0)
    return tuple(np.minimum(prices, 2.0**53).astype(np.int64).tolist())


def noise_of(first: Times, second: Times) -> float:
    """The share by which two profiles of one model differ: that of their times which nodes' differences add up to."""
    both = first.times_ns.keys() & second.times_ns.keys()
    whole = sum(first.times_ns[number] + second.times_ns[number] for number in both) / 2
    return sum(abs(first.times_ns[number] - second.times_ns[number]) for number in both) / whole if whole else 0.0


def without_gains(costs: MeasuredCosts) -> MeasuredCosts:
    """The same costs where nothing gains; what costs more low still does."""
    return MeasuredCosts(tuple(tuple(min(gain, 0) for gain in gains) for gains in costs.gains), costs.cast_prices)


def predict_ns(problem: Problem, levels: Sequence[int], high_ns: float) -> float:
    """Time of an assignment by the problem's measured costs, given the time with every node at the base."""
    assert problem.measured is not None, "only measured costs are times"
    saved = sum(problem.gains[np.array(levels, np.int64), np.arange(len(levels))].tolist())
    return float(high_ns - saved + conversion_cost(problem, levels))


def cost_table(source: str, nodes: Sequence[NodeCost]) -> CostTable:
    """The nodes' costs for an account."""
    return CostTable(source, "ns", tuple(nodes))


def table_costs(problem: Problem, source: str) -> tuple[MeasuredCosts, CostTable]:
    """What a target's table says of every operator, whatever a policy would grant it: half of its bytes in 16 bits, a
    quarter in 8. An account tells the cheapest level beside the base.

    An operator that a policy finds worth many casts is so because it is slow; here only its own cost counts.
    """
    weights, counts = (
        table_weights(problem),
        problem.graph.columns.is_kind(Kind.OP) & ~problem.is_absent,
    )
    line = problem.line
    saved = [Fraction(line.narrower(level), size_bits(line.base_dtype)) for level in range(len(line.levels))]
    gains = np.array([np.where(counts, weights * share.numerator // share.denominator, 0) for share in saved], np.int64)
    gains[problem.computes_base] = 0
    least = weights - gains[list(line.others)].max(axis=0)
    nodes = tuple(
        NodeCost(problem.graph.nodes[number].name, float(weights[number]), float(least[number]))
        for number in np.flatnonzero(counts).tolist()
    )
    measured = MeasuredCosts(tuple(map(tuple, gains.tolist())), tuple(map(tuple, problem.cast_prices.tolist())))
    return measured, CostTable(source, BYTES_MOVED, nodes)
