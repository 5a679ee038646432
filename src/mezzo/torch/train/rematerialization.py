"""Rematerialization (activation checkpointing) by minimum cuts of memory, time and error.

`saved_values.py` has the cut at given prices. The price of a saved byte comes from the option
`memory`, or is the highest that costs no error and next to no time. The bytes alive at the peak of
a step have the same price: the cut is repeated with a price on what is alive at the peaks of the
cuts before, on average, which are steps of a subgradient method for the peak's Lagrangian. The
result overrides PyTorch's partitioner, node by node, by the marks of activation checkpointing.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.train.joint_nodes import bytes_of, decide, low_form
from mezzo.torch.train.live_bytes import is_alias
from mezzo.torch.train.saved_values import NEVER, Charge, Kept, Prices, SavedValues
from mezzo.torch.train.step_time import step_time_bytes

_ROUNDINGS = 32  # a rounding costs 1/32 of all FP32 bytes that could be saved
_MOST = 10_000.0
_LEAST = 1 / 16  # a saved byte costs something, so that of equal times the least memory is taken
_PEAKS = 4  # times that a cut is repeated with prices of the bytes at its peak
_SHARE = 1 / 25  # of a step's time, which the default may spend
_BYTE_PRICES = (4.0, 3.5, 3.0, 2.0, 1.0, 0.5, 0.25)


def keep_least(
    graph: fx.Graph,
    backward: Collection[fx.Node],
    memory: float | None,
    low: torch.dtype,
    free: Collection[fx.Node],
) -> Kept:
    """Decide what a joint graph saves, and mark its nodes for Inductor's partitioner.

    `memory` weighs saved bytes against time and error: 0 ignores bytes, 1 ignores the rest. None is
    the largest weight that costs no error and next to no time. `free` are inputs that stay alive in
    any case.
    """
    problem = SavedValues(graph=graph, late=backward, free=frozenset(free), low=low)
    if memory is None:
        result = least_for_free(problem)
    else:
        weight = min(memory / (1 - memory) if memory < 1 else _MOST, _MOST)
        result = least(problem, Prices(weight, problem.wide_bytes / _ROUNDINGS))
    for node in (*result.whole, *result.low):
        decide(node, CheckpointPolicy.MUST_SAVE)
    for node in result.again:
        decide(node, CheckpointPolicy.MUST_RECOMPUTE)
    for node in result.low:
        _read_low(graph, node, low, problem.late)
    return result


def least_for_free(problem: SavedValues) -> Kept:
    """The least memory without any rounding, in at most a share more time than the fastest."""
    fastest = problem.solve(Prices(_LEAST, NEVER))
    most = fastest.time_bytes + _SHARE * step_time_bytes(problem.graph.nodes)
    solutions = (least(problem, Prices(price, NEVER), most) for price in _BYTE_PRICES)
    return next((one for one in solutions if one.time_bytes <= most), fastest)


def least(problem: SavedValues, prices: Prices, most_time: float = float("inf")) -> Kept:
    """The solution with the least price of time, roundings, saved bytes and bytes at the peak,
    of those found: the peak's price is spread over the kernels at which there was one.
    """
    best = result = problem.solve(prices)
    kernels: list[int] = []
    for _ in range(_PEAKS):
        kernels.append(problem.peak_of(result).kernel)
        before, result = result, problem.solve(prices, _charges(problem, result, kernels))
        if result == before:
            break
        if result.price(prices) < best.price(prices) and result.time_bytes <= most_time:
            best = result
    return best


def _charges(
    problem: SavedValues, result: Kept, kernels: Sequence[int]
) -> Mapping[fx.Node, Charge]:
    """What each node has at these peaks on average, by when the backward needs it now or, if it
    does not, when it would if all that can be were recomputed.
    """
    can_be_again = frozenset(filter(problem.may_be_again, problem.nodes))
    needs = {**problem.timeline.needs(can_be_again), **problem.timeline.needs(result.again)}
    charges: dict[fx.Node, Charge] = {}
    for node, need in needs.items():
        size = 0 if is_alias(node) else bytes_of(node)
        waiting = problem.timeline.waiting(node, need)
        saved = size * sum(map(waiting.covers, kernels)) / len(kernels)
        again = size * sum(map(need.covers, kernels)) / len(kernels)
        low = again + (0.0 if problem.has_low(node) else saved / 2)
        charges[node] = Charge(again, saved, low if problem.may_be_low(node) else 0.0)
    return charges


def _read_low(
    graph: fx.Graph, node: fx.Node, low: torch.dtype, backward_nodes: Collection[fx.Node]
) -> None:
    """Make the backward read a value's low-precision form, converted back to FP32."""
    build = CallInserter(graph, node)
    rounded = low_form(node, low)
    if rounded is None:
        with graph.inserting_after(node):
            rounded = build.call(CAST, node, low)
        rounded.meta["partitioner_tag"] = "is_forward"
    decide(rounded, CheckpointPolicy.MUST_SAVE)
    with graph.inserting_after(rounded):
        wide = build.call(CAST, rounded, torch.float32)
    wide.meta["partitioner_tag"] = "is_forward"
    decide(wide, CheckpointPolicy.MUST_RECOMPUTE)
    node.replace_all_uses_with(wide, delete_user_cb=lambda user: user in backward_nodes)
