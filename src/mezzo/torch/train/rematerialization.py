"""Rematerialization (activation checkpointing) as a minimum cut of memory, time and error.

Each forward value that the backward needs is saved as it is, saved in low precision (if the
backward reads it directly, in FP32), or recomputed. A saved byte costs `Prices.byte`. A byte
written or read to save it costs 1, as does a byte of a recomputed matmul operand; recomputation
fused into another kernel costs a fraction of that. Rounding a value that the backward uses costs
`Prices.rounding`. Matmuls, convolutions, random and unknown operators are never recomputed. Weights
stay alive in any case.

Each node has two vertices: the first is on the sink's side if the backward recomputes the node, the
second if it has the node's exact value. Source: He and Zou, "Transcending Runtime-Memory Tradeoffs
in Checkpointing by being Fusion Aware" (MLSys 2023), the cut that PyTorch's partitioner solves,
without low-precision forms and time. This cut overrides the partitioner, node by node, by the marks
of activation checkpointing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import dialect_and_op, is_view
from mezzo.aten.read.read import count_elements, facts_of
from mezzo.aten.read.retype import CAST, COPY, is_cast
from mezzo.aten.torch_internals import OpOverload, schema_of
from mezzo.ir.maxflow import SINK, SOURCE, farthest_cut
from mezzo.tables.facts import HEAVY, Risk
from mezzo.torch.compiler.building import CallInserter

_NEVER = 1 << 40  # an infinite price in bytes
_FUSED = 8  # fused recomputation costs 1/8 of moving the bytes
_ROUNDINGS = 32  # a rounding costs 1/32 of all FP32 bytes that could be saved
_MOST = 10_000.0


class Prices(NamedTuple):
    """The price of a saved byte, in bytes moved, and of a rounding."""

    byte: float
    rounding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A cut's result: nodes saved as they are, saved low, and recomputed; total bytes saved."""

    whole: Sequence[fx.Node]
    low: Sequence[fx.Node]
    again: Sequence[fx.Node]
    kept_bytes: int


def keep_least(
    graph: fx.Graph,
    backward: Collection[fx.Node],
    memory: float,
    low: torch.dtype,
    free: Collection[fx.Node],
) -> Kept:
    """Decide what a joint graph saves, and mark its nodes for Inductor's partitioner.

    `memory` weighs saved bytes against time and error: 0 ignores bytes, 1 ignores the rest. `free`
    are inputs that stay alive in any case.
    """
    problem = _Problem(graph=graph, late=backward, free=frozenset(free), low=low)
    weight = min(memory / (1 - memory) if memory < 1 else _MOST, _MOST)
    result = problem.solve(Prices(weight, problem.wide_bytes / _ROUNDINGS))
    for node in (*result.whole, *result.low):
        decide(node, CheckpointPolicy.MUST_SAVE)
    for node in result.again:
        decide(node, CheckpointPolicy.MUST_RECOMPUTE)
    for node in result.low:
        _read_low(graph, node, low, problem.late)
    return result


@dataclass(kw_only=True)
class _Problem:
    """Forward nodes and their prices. `late` is the backward, `free` are inputs that stay alive."""

    graph: fx.Graph
    late: Collection[fx.Node]
    free: frozenset[fx.Node]
    low: torch.dtype
    nodes: list[fx.Node] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [
            node for node in self.graph.nodes if node.op != "output" and node not in self.late
        ]

    @property
    def wide_bytes(self) -> int:
        """The total bytes of FP32 values that the backward reads, without weights."""
        return sum(bytes_of(node) for node in self.nodes if self._may_be_low(node))

    def solve(self, prices: Prices) -> Kept:
        """The cheapest solution, which is exact."""
        number = {node: 2 + 2 * index for index, node in enumerate(self.nodes)}
        edges = [edge for node in self.nodes for edge in self._edges(node, number, prices)]
        tails, heads, capacities = (
            np.array(column, np.int64) for column in zip(*edges, strict=True)
        )
        is_early = farthest_cut(2 + 2 * len(self.nodes), tails, heads, capacities)
        needed = self._wanted(lambda node: not is_early[number[node]])
        saved = [
            node for node in needed if is_early[number[node]] and not is_early[number[node] + 1]
        ]
        saved_low = [
            node for node in self.nodes if self._may_be_low(node) and is_early[number[node] + 1]
        ]
        recomputed = [node for node in needed if not is_early[number[node]]]
        return Kept(
            whole=saved,
            low=saved_low,
            again=recomputed,
            kept_bytes=sum(self._held_bytes(node) for node in saved)
            + sum(0 if self._has_low(node) else bytes_of(node) // 2 for node in saved_low),
        )

    def _edges(
        self, node: fx.Node, number: Mapping[fx.Node, int], prices: Prices
    ) -> Iterator[tuple[int, int, int]]:
        computed, available = number[node], number[node] + 1
        yield (
            SOURCE,
            computed,
            _capacity(self._again_bytes(node) if self._may_be_again(node) else _NEVER),
        )
        yield computed, available, _capacity(self._keep_price(node, prices))
        for user in node.users:
            if user in number:
                yield available, number[user], _capacity(_NEVER)  # recomputation needs all operands
        if self._is_read_late(node):
            yield available, SINK, _capacity(self._low_price(node, prices))

    def _keep_price(self, node: fx.Node, prices: Prices) -> float:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return 0.0
        if not isinstance(value, torch.Tensor) or is_view(node) or self._is_written(node):
            return _NEVER
        size = bytes_of(node)
        if node.op != "call_function":
            return size if node in self.free else (1 + prices.byte) * size
        return (1 + prices.byte) * size + (0 if self._is_in_memory(node) else size)

    def _low_price(self, node: fx.Node, prices: Prices) -> float:
        if not self._may_be_low(node):
            return _NEVER
        half = bytes_of(node) / 2
        return prices.rounding + (half if self._has_low(node) else (2 + prices.byte) * half)

    def _is_in_memory(self, node: fx.Node) -> bool:
        """Whether the forward stores it anyway: a matmul's operand or output, or a graph output."""
        producer: Any = node.args[0] if node.target is getitem else node
        forward_users = [user for user in readers(node, is_view) if user not in self.late]
        return is_product(producer) or any(
            is_product(user) or user.op == "output" for user in forward_users
        )

    def _held_bytes(self, node: fx.Node) -> int:
        return 0 if node in self.free else bytes_of(node)

    def _is_read_late(self, node: fx.Node) -> bool:
        return any(user in self.late for user in node.users)

    def _may_be_low(self, node: fx.Node) -> bool:
        """Whether the backward may use a rounded value: FP32, computed, and not a single number."""
        tensor = tensor_of(node)
        is_wide = tensor is not None and tensor.dtype is torch.float32 and tensor.numel() > 1
        return is_wide and node.op == "call_function" and self._is_read_late(node)

    def _has_low(self, node: fx.Node) -> bool:
        """Whether the backward uses the value's low-precision form anyway."""
        low_form = _low_form(node, self.low)
        return low_form is not None and any(
            user in self.late for user in readers(low_form, is_view)
        )

    def _is_written(self, node: fx.Node) -> bool:
        return any(user.target is COPY and user.args[0] is node for user in node.users)

    def _may_be_again(self, node: fx.Node) -> bool:
        """Whether the backward may recompute a node."""
        if node.op == "get_attr":
            return True
        if node.op != "call_function":
            return False
        if node.target is getitem:
            return True
        target: Any = node.target
        if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
            return isinstance(node.meta.get("val"), torch.SymInt)
        if schema_of(target).is_mutable or any(
            self._is_written(operand) for operand in node.all_input_nodes
        ):
            return False
        row = facts_of(*dialect_and_op(target, facts_of))
        return row is not None and row.cost not in HEAVY and Risk.RANDOM not in row.risks

    def _again_bytes(self, node: fx.Node) -> float:
        """The price of recomputing a node: free for views; a matmul operand is written and read."""
        if node.target is getitem or is_view(node) or tensor_of(node) is None:
            return 0.0
        if any(is_product(user) for user in readers(node, is_view) if user in self.late):
            return 2.0 * bytes_of(node)
        return max(bytes_of(node), *map(bytes_of, node.all_input_nodes), 0) / _FUSED

    def _wanted(self, is_again: Callable[[fx.Node], bool]) -> list[fx.Node]:
        """The values that the backward reads directly or for recomputation, in order."""
        needed: set[fx.Node] = set()
        for node in reversed(self.nodes):
            if self._is_read_late(node) or any(
                user in needed and is_again(user) for user in node.users
            ):
                needed.add(node)
        return [node for node in self.nodes if node in needed]


def _capacity(price: float) -> int:
    """A price in sixteenths, since capacities are integers."""
    return round(16 * price)


def bytes_of(node: fx.Node) -> int:
    """The size of a node's tensor in bytes; symbolic sizes count with their hint from tracing."""
    tensor = tensor_of(node)
    return 0 if tensor is None else count_elements(tensor) * tensor.element_size()


def readers(node: fx.Node, is_seen_through: Callable[[fx.Node], bool]) -> Iterator[fx.Node]:
    """The users of a node, and transitively of those users that `is_seen_through` accepts."""
    for user in node.users:
        yield user
        if is_seen_through(user):
            yield from readers(user, is_seen_through)


def _low_form(node: fx.Node, low: torch.dtype) -> fx.Node | None:
    """A value's conversion to the low type, if the graph has one."""
    return next((user for user in node.users if is_cast(user, low)), None)


def is_product(node: fx.Node) -> bool:
    """Whether a call is a heavy operator: a matmul, convolution, attention or the like."""
    row = facts_of(*dialect_and_op(node.target, facts_of)) if node.op == "call_function" else None
    return row is not None and row.cost in HEAVY


def decide(node: fx.Node, policy: CheckpointPolicy) -> None:
    """Set the partitioner's policy for a node, unless the program's own checkpointing has."""
    if node.op == "call_function" and "recompute" not in node.meta:
        node.meta["recompute"], node.meta["ac_graph_id"] = policy, 0


def _read_low(
    graph: fx.Graph, node: fx.Node, low: torch.dtype, backward_nodes: Collection[fx.Node]
) -> None:
    """Make the backward read a value's low-precision form, converted back to FP32."""
    build = CallInserter(graph, node)
    rounded = _low_form(node, low)
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
