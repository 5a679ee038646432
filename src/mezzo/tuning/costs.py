"""Cost model from measured times: each node's gain in low precision and each cast's cost, in ns.

Levels are the precisions of a plan as indices of its precision line; the base level is the model's
own precision. Linked nodes have to run at the same level.
"""

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
    """One profile by node id, in ns per run of the model. `spreads_ns`: its uncertainty."""

    times_ns: Mapping[int, float]
    spreads_ns: Mapping[int, float]


def agreed(first: Times, second: Times) -> Times:
    """The mean of two profiles of one model, with spreads that cover their difference.

    Two profiles reveal what statistics of one cannot: how differently identical kernels are timed.
    A node's spread is the largest of its own spreads, its difference, and its time multiplied by
    the relative difference over all nodes.
    """
    both, share = sorted(first.times_ns.keys() & second.times_ns.keys()), noise_of(first, second)
    apart = {number: abs(first.times_ns[number] - second.times_ns[number]) for number in both}
    times = {number: (first.times_ns[number] + second.times_ns[number]) / 2 for number in both}
    spreads = {
        number: max(
            first.spreads_ns.get(number, 0.0),
            second.spreads_ns.get(number, 0.0),
            apart[number],
            share * time,
        )
        for number, time in times.items()
    }
    return Times(times, spreads)


@dataclass(frozen=True, slots=True)
class CastSample:
    """A cast that was profiled: elements of its value, and its time in ns per run of its scope."""

    elements: int
    time_ns: float


@dataclass(frozen=True, slots=True)
class CastLine:
    """Linear cost of a cast: `launch_ns` plus `element_ns` per element."""

    launch_ns: float
    element_ns: float


def table_weights(problem: Problem) -> Ints:
    """Table cost of each operator, policy aside: bytes moved, more for heavy ones. >= 1."""
    read, written = problem.elements_moved
    factors = np.where(
        [cost in HEAVY for cost in problem.costs_of], problem.prices.linear_factor, 1
    )
    weights: Ints = np.maximum(
        4 * (read + written) * problem.graph.columns.node_repeats * factors, 1
    )
    return weights


def all_at(problem: Problem, level: int) -> list[int]:
    """The assignment with all nodes at `level` that are allowed there, and all others as given."""
    return _levels_of(problem, level, problem.allowed[level])


def heavy_at(problem: Problem, level: int) -> list[int]:
    """As `all_at`, for heavy operators and linked ones alone: a plan with many casts."""
    linked = np.array(problem.linked[problem.line.threshold_of(level)], np.int64)
    is_heavy = np.array([cost in HEAVY for cost in problem.costs_of], bool) & problem.allowed[level]
    leads = np.zeros(len(linked), bool)
    leads[linked[is_heavy]] = True
    return _levels_of(problem, level, problem.allowed[level] & leads[linked])


def _levels_of(problem: Problem, level: int, chosen: Bools) -> list[int]:
    """The assignment with chosen nodes at `level`, except those linked with other nodes."""
    base, goes = problem.line.base, chosen | problem.side(level).has_choice(Choice.LOW)
    stays, before = ~goes & ~problem.is_absent, -1
    # Repeated, as a node that stays at one threshold may hold back others at the next.
    while int(stays.sum()) != before:
        before = int(stays.sum())
        for threshold in range(base, level) if level > base else range(level, base):
            linked = np.array(problem.linked[threshold], np.int64)
            holds = np.zeros(len(linked), bool)
            holds[linked[stays]] = True
            stays |= goes & holds[linked]
    levels: list[int] = np.where(
        goes & ~stays, level, np.array(problem.given_levels, np.int64)
    ).tolist()
    return levels


def fit_casts(samples: Sequence[CastSample]) -> CastLine | None:
    """Fit a `CastLine` to profiled casts by least relative squares, with nonnegative coefficients.
    None without samples.
    """
    timed = [sample for sample in samples if sample.time_ns > 0]
    if not timed:
        return None
    elements = np.array([sample.elements for sample in timed], np.float64)
    times = np.array([sample.time_ns for sample in timed], np.float64)
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
    """Derive costs from a profile at the base level and others at low levels.

    Linked nodes are compared as one: a difference within their spreads counts as zero. A node that
    was not profiled at a level is assumed to gain as the others do there, relative to its time.
    `casts`, by threshold: if None, conversions cost the table's bytes at the measured time per
    byte. The returned node costs have each node's least time at a low level.
    """
    graph, weights = problem.graph, table_weights(problem)
    ids = np.flatnonzero(graph.columns.is_kind(Kind.OP) & ~problem.is_absent).tolist()
    byte_ns = (
        sum(high.times_ns.values()) / max(1, int(weights[list(high.times_ns)].sum()))
        if high.times_ns
        else 0.0
    )
    high_ns = {number: high.times_ns.get(number, byte_ns * int(weights[number])) for number in ids}
    gains = np.zeros((len(problem.line.levels), len(graph.nodes)), np.int64)
    least = dict.fromkeys(ids, math.inf)
    for level in problem.line.others:
        low = _times_at(level, runs)
        timed = [number for number in ids if number in low.times_ns and number in high.times_ns]
        whole_high = sum(high.times_ns[number] for number in timed)
        ratio = sum(low.times_ns[number] for number in timed) / whole_high if whole_high else 1.0
        noise = _within_noise(problem, level, timed, high, low)
        measured = set(timed)
        for number in ids:
            low_ns = low.times_ns[number] if number in measured else ratio * high_ns[number]
            gains[level, number] = 0 if number in noise else round(high_ns[number] - low_ns)
            least[number] = min(least[number], low_ns)
    costs = [NodeCost(graph.nodes[number].name, high_ns[number], least[number]) for number in ids]
    prices = [
        _cast_prices(problem, threshold, line, byte_ns) for threshold, line in enumerate(casts)
    ]
    return MeasuredCosts(tuple(map(tuple, gains.tolist())), tuple(prices)), tuple(costs)


def _times_at(level: int, runs: Sequence[Ran]) -> Times:
    """The times of nodes at a level, each from the first profile in which it ran there."""
    times: dict[int, float] = {}
    spreads: dict[int, float] = {}
    for ran in runs:
        for number, time_ns in ran.times.times_ns.items():
            if ran.levels[number] == level and number not in times:
                times[number], spreads[number] = time_ns, ran.times.spreads_ns.get(number, 0.0)
    return Times(times, spreads)


def _within_noise(
    problem: Problem, level: int, timed: Sequence[int], high: Times, low: Times
) -> set[int]:
    """The nodes whose time at a level differs from the base by no more than the spreads of both.

    Linked nodes are one: spreads within a fused kernel are parts of its spread, so they add up.
    """
    linked = problem.linked[problem.line.threshold_of(level)]
    groups: dict[int, list[int]] = {}
    for number in timed:
        groups.setdefault(linked[number], []).append(number)
    insignificant = set[int]()
    for members in groups.values():
        gain = sum(high.times_ns[number] - low.times_ns[number] for number in members)
        off = [
            sum(times.spreads_ns.get(number, 0.0) for number in members) for times in (high, low)
        ]
        if abs(gain) <= math.hypot(*off):
            insignificant.update(members)
    return insignificant


def _cast_prices(
    problem: Problem, threshold: int, casts: CastLine | None, byte_ns: float
) -> tuple[int, ...]:
    """The conversion cost per value in ns; at least 1, so that useless ones are avoided."""
    columns = problem.graph.columns
    if casts is None:
        moved = problem.line.conversion_bits(threshold) / 8 * columns.value_elements
        per_run = byte_ns * (problem.prices.cast_launch + moved)
    else:
        per_run = casts.launch_ns + casts.element_ns * columns.value_elements
    prices = np.maximum(np.rint(per_run * columns.value_repeats), 1.0)
    return tuple(np.minimum(prices, 2.0**53).astype(np.int64).tolist())


def noise_of(first: Times, second: Times) -> float:
    """The relative difference of two profiles of one model: summed absolute differences of nodes
    over total time.
    """
    both = first.times_ns.keys() & second.times_ns.keys()
    whole = sum(first.times_ns[number] + second.times_ns[number] for number in both) / 2
    return (
        sum(abs(first.times_ns[number] - second.times_ns[number]) for number in both) / whole
        if whole
        else 0.0
    )


def without_gains(costs: MeasuredCosts) -> MeasuredCosts:
    """The costs without gains; losses in low precision remain."""
    return MeasuredCosts(
        tuple(tuple(min(gain, 0) for gain in gains) for gains in costs.gains), costs.cast_prices
    )


def predict_ns(problem: Problem, levels: Sequence[int], high_ns: float) -> float:
    """Predicted time of an assignment by measured costs; `high_ns`: all at the base."""
    assert problem.measured is not None, "only measured costs are times"
    saved = sum(problem.gains[np.array(levels, np.int64), np.arange(len(levels))].tolist())
    return float(high_ns - saved + conversion_cost(problem, levels))


def cost_table(source: str, nodes: Sequence[NodeCost]) -> CostTable:
    """The nodes' costs as a record."""
    return CostTable(source, "ns", tuple(nodes))


def table_costs(problem: Problem, source: str) -> tuple[MeasuredCosts, CostTable]:
    """Costs by bytes moved, from the target's table, whatever the policy grants: half in 16 bits, a
    quarter in 8. The record has the cheapest low level of each node.

    A policy may value slow operators as worth many casts; here only an operator's own cost counts.
    """
    weights, counts = (
        table_weights(problem),
        problem.graph.columns.is_kind(Kind.OP) & ~problem.is_absent,
    )
    line = problem.line
    saved = [
        Fraction(line.narrower(level), size_bits(line.base_dtype))
        for level in range(len(line.levels))
    ]
    gains = np.array(
        [np.where(counts, weights * share.numerator // share.denominator, 0) for share in saved],
        np.int64,
    )
    gains[problem.computes_base] = 0
    least = weights - gains[list(line.others)].max(axis=0)
    nodes = tuple(
        NodeCost(problem.graph.nodes[number].name, float(weights[number]), float(least[number]))
        for number in np.flatnonzero(counts).tolist()
    )
    measured = MeasuredCosts(
        tuple(map(tuple, gains.tolist())), tuple(map(tuple, problem.cast_prices.tolist()))
    )
    return measured, CostTable(source, BYTES_MOVED, nodes)
