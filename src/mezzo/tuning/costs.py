"""Costs from measured times: what each node gains by running low and what each cast costs, in ns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzo.contracts.problem import Choice, MeasuredCosts, Problem
from mezzo.contracts.strategy import conversion_cost
from mezzo.formats.dtypes import size_bits
from mezzo.ir.columns import Bools, Ints
from mezzo.ir.nodes import Kind
from mezzo.numerics.measures import BYTES_MOVED, CostTable, NodeCost
from mezzo.tables.facts import HEAVY


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


def all_at(problem: Problem, level: int) -> list[int]:
    """The assignment in which everything that may run at a level beside the base does, and nothing else beside it."""
    return _levels_of(problem, level, problem.allowed[level])


def heavy_at(problem: Problem, level: int) -> list[int]:
    """The same for heavy operators alone, with those that have to agree with them: the assignment with many casts."""
    linked = np.array(problem.linked[problem.line.threshold_of(level)], np.int64)
    is_heavy = np.array([cost in HEAVY for cost in problem.costs_of], bool) & problem.allowed[level]
    leads = np.zeros(len(linked), bool)
    leads[linked[is_heavy]] = True
    return _levels_of(problem, level, problem.allowed[level] & leads[linked])


def _levels_of(problem: Problem, level: int, wanted: Bools) -> list[int]:
    """The assignment in which the wanted nodes run at a level, but for those linked with one that does not."""
    base, goes = problem.line.base, wanted | problem.side(level).has_choice(Choice.LOW)
    stays, before = ~goes & ~problem.is_absent, -1
    while int(stays.sum()) != before:  # where there are several thresholds on the way, one may hold what another let go
        before = int(stays.sum())
        for threshold in range(base, level) if level > base else range(level, base):
            linked = np.array(problem.linked[threshold], np.int64)
            holds = np.zeros(len(linked), bool)
            holds[linked[stays]] = True
            stays |= goes & holds[linked]
    found: list[int] = np.where(goes & ~stays, level, np.array(problem.given_levels, np.int64)).tolist()
    return found


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


@dataclass(frozen=True, slots=True)
class Ran:
    """One profile in which nodes ran at `levels`."""

    levels: Sequence[int]
    times: Times


def derive_costs(
    problem: Problem, high: Times, runs: Sequence[Ran], casts: Sequence[CastLine | None]
) -> tuple[MeasuredCosts, tuple[NodeCost, ...]]:
    """Derive costs from a profile of the model as it is and some in which nodes ran beside the base.

    Who has to agree is timed as one: a difference within the spread of their times is none. A node that did not run at
    a level is taken to gain what the others do there, by its time. `casts`, by threshold: where there is none,
    conversions cost what the table says by what its bytes took here. The account tells each node's least time beside
    the base.
    """
    graph, weights = problem.graph, table_weights(problem)
    ids = np.flatnonzero(graph.columns.is_kind(Kind.OP) & ~problem.is_absent).tolist()
    byte_ns = sum(high.times_ns.values()) / max(1, int(weights[list(high.times_ns)].sum())) if high.times_ns else 0.0
    high_ns = {number: high.times_ns.get(number, byte_ns * int(weights[number])) for number in ids}
    gains = np.zeros((len(problem.line.levels), len(graph.nodes)), np.int64)
    least = dict.fromkeys(ids, math.inf)
    for level in problem.line.others:
        low = _times_at(level, runs)
        timed = [number for number in ids if number in low.times_ns and number in high.times_ns]
        whole_high = sum(high.times_ns[number] for number in timed)
        kept = sum(low.times_ns[number] for number in timed) / whole_high if whole_high else 1.0
        noise = _within_noise(problem, level, timed, high, low)
        measured = set(timed)
        for number in ids:
            low_ns = low.times_ns[number] if number in measured else kept * high_ns[number]
            gains[level, number] = 0 if number in noise else round(high_ns[number] - low_ns)
            least[number] = min(least[number], low_ns)
    costs = [NodeCost(graph.nodes[number].name, high_ns[number], least[number]) for number in ids]
    prices = [_cast_prices(problem, threshold, line, byte_ns) for threshold, line in enumerate(casts)]
    return MeasuredCosts(tuple(map(tuple, gains.tolist())), tuple(prices)), tuple(costs)


def _times_at(level: int, runs: Sequence[Ran]) -> Times:
    """The times of the nodes that ran at a level, each from the first profile in which it did."""
    times: dict[int, float] = {}
    spreads: dict[int, float] = {}
    for ran in runs:
        for number, time_ns in ran.times.times_ns.items():
            if ran.levels[number] == level and number not in times:
                times[number], spreads[number] = time_ns, ran.times.spreads_ns.get(number, 0.0)
    return Times(times, spreads)


def _within_noise(problem: Problem, level: int, timed: Sequence[int], high: Times, low: Times) -> set[int]:
    """The nodes whose time at a level differs from that at the base by no more than both may be off.

    Who has to agree does so as one: spreads of parts of a kernel are parts of its spread, so they add up.
    """
    linked = problem.linked[problem.line.threshold_of(level)]
    groups: dict[int, list[int]] = {}
    for number in timed:
        groups.setdefault(linked[number], []).append(number)
    found = set[int]()
    for members in groups.values():
        gain = sum(high.times_ns[number] - low.times_ns[number] for number in members)
        off = [sum(times.spreads_ns.get(number, 0.0) for number in members) for times in (high, low)]
        if abs(gain) <= math.hypot(*off):
            found.update(members)
    return found


def _cast_prices(problem: Problem, threshold: int, casts: CastLine | None, byte_ns: float) -> tuple[int, ...]:
    """What a conversion of each value costs in ns; never nothing, so that none is made for no gain."""
    columns = problem.graph.columns
    if casts is None:
        moved = problem.line.conversion_bits(threshold) / 8 * columns.value_elements
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
