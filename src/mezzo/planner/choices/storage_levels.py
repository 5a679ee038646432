"""Joint choice of levels and weights in blocks: each matmul runs quantized, in a low float or on a
weight in blocks, by the target's speeds and the casts around it.

What a storage gains depends on the level of the weight's readers alone, so it is part of that
level's gain, and the strategy chooses both: `mincut` exactly, for floats. Which operators have a
quantized kernel depends on their neighbours (`choose_units`), and the cut assumes that all have it:
so its choice is compared with all weights in blocks, and with none.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.contracts.strategy import cost
from mezzo.formats.dtypes import HIGH, DType, size_bits
from mezzo.formats.format_words import FORMAT_DTYPES, weight_word
from mezzo.ir.weight_reads import TABLE_LOOKUP, weight_reads
from mezzo.planner.choices.block_weights import BlockWeight
from mezzo.planner.plan_options import PlanningOptions
from mezzo.tables.policy import GRANTED, Category
from mezzo.tables.target import Target

_Times = Mapping[DType, float]


def contested_weights(
    weights: Mapping[int, BlockWeight], planning: PlanningOptions
) -> dict[int, BlockWeight]:
    """The weights whose matmuls may run faster at a level without blocks, by value id; none if the
    target has no speed of a format.
    """
    times = _product_times(planning)
    if times is None:
        return {}
    rivals = [dtype for dtype in planning.line.other_dtypes if times[dtype] < 1.0]
    return {
        number: weight
        for number, weight in weights.items()
        if any(row.op != TABLE_LOOKUP for row in weight.rows)
        and not all(_is_stored_at(weight, dtype, times) for dtype in rivals)
    }


def levels_instead(
    problem: Problem, weights: Mapping[int, BlockWeight], planning: PlanningOptions
) -> dict[int, int]:
    """The weights whose readers run at another level than their kernels of blocks do, with that
    level. `problem`: with these weights in floats.
    """
    reads = [weight_reads(problem.graph, number) for number in weights]
    one_level = tuple(
        (threshold, first.use.node, read.use.node)
        for first, *others in reads
        for threshold in problem.line.thresholds
        for read in others
    )
    priced = _with_speeds(problem, weights, planning, weights)
    levels = planning.strategy.assign(replace(priced, links=(*problem.links, *one_level)))
    base = problem.line.base
    at_reader = {
        number: levels[weight_reads(problem.graph, number)[0].use.node] for number in weights
    }
    times = _product_times(planning) or {}
    return {
        number: level
        for number, level in at_reader.items()
        if level != base and not _is_stored_at(weights[number], problem.line.dtypes[level], times)
    }


def storage_cost(
    problem: Problem, weights: Mapping[int, BlockWeight], planning: PlanningOptions
) -> int:
    """The least cost of a problem, less all gains, whose weights are stored as it says: comparable
    between storages.
    """
    priced = _with_speeds(problem, weights, planning, problem.in_blocks)
    most = int(priced.gains.max(axis=0)[~priced.is_absent].sum())
    return cost(priced, planning.strategy.assign(priced)) - most


def _with_speeds(
    problem: Problem,
    weights: Mapping[int, BlockWeight],
    planning: PlanningOptions,
    stored: Collection[int],
) -> Problem:
    """The problem with the gains of matmuls by their speeds, of those with weights in `stored` on
    blocks where these are faster.
    """
    graph, line, prices = problem.graph, problem.line, problem.prices
    times, gains = _product_times(planning) or {}, problem.gains.copy()
    for number, weight in weights.items():
        whole = size_bits(HIGH) // 8 * weight.elements * prices.linear_factor
        for read, row in zip(weight_reads(graph, number), weight.rows, strict=True):
            node = read.use.node
            if row.op == TABLE_LOOKUP:
                continue
            repeats = int(graph.columns.node_repeats[node])
            for level, dtype in enumerate(line.dtypes):
                if number in stored and _is_stored_at(weight, dtype, times):
                    time = _block_time(weight, times)
                elif (
                    level == line.base or problem.side(level).categories[node] is not Category.ALLOW
                ):
                    continue
                else:
                    time = times[dtype]
                worth = GRANTED * prices.cast_launch
                gains[level, node] = repeats * (worth + round((1.0 - time) * whole))
    measured = MeasuredCosts(
        gains=tuple(map(tuple, gains.tolist())),
        cast_prices=tuple(map(tuple, problem.cast_prices.tolist())),
    )
    return replace(problem, measured=measured)


def _is_allowed(problem: Problem, level: int, node: int) -> bool:
    return problem.side(level).categories[node] is Category.ALLOW


def _is_stored_at(weight: BlockWeight, dtype: DType, times: _Times) -> bool:
    """Whether matmuls at a level run on blocks: their kernels do, and no slower than on floats."""
    may_run = all(dtype in row.floats for row in weight.rows if not row.reads_floats)
    return may_run and (dtype is HIGH or _block_time(weight, times) <= times[dtype])


def _block_time(weight: BlockWeight, times: _Times) -> float:
    return times[_block_dtype(weight.rows[0].bits)]


def _block_dtype(bits: int) -> DType:
    return FORMAT_DTYPES[weight_word(bits)]


def _product_times(planning: PlanningOptions) -> _Times | None:
    """Times of matmuls in FP32's, by format of a level or of blocks; None if one is not known."""
    formats = [*planning.line.other_dtypes, *map(_block_dtype, planning.weight_bits)]
    times = {dtype: _time(planning.target, dtype, planning.decode) for dtype in formats}
    known = {dtype: time for dtype, time in times.items() if time is not None}
    return known if len(known) == len(times) else None


def _time(target: Target, dtype: DType, decode: float) -> float | None:
    """Time of matmuls in a format, in FP32's; None if not measured."""
    gain = target.gain(dtype)
    if gain is None:
        return None
    if gain.speeds is None:
        return None if gain.is_faster else 1.0
    one_row, many = gain.speeds
    return decode / one_row + (1.0 - decode) / many
