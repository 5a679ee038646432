"""What a training step keeps between its passes: memory against time against error, as one minimum cut.

Each number of the forward that the backward wants is kept as it is, kept in low precision (where the backward itself
reads it, in FP32), or computed again from others. A byte that is kept costs `Prices.byte`, a byte that is written or
read for it costs one, and so does one of what a product reads that is computed again; what is computed inside a kernel
that runs in any case costs a part of that. A rounding of what the backward reads costs `Prices.rounding`. Products,
random draws and what nobody knows are not computed again. Weights live in any case.

A node has two vertices: on the sink's side the first says that the backward computes it, the second that the backward
has it. Source: the cut of forward and backward without forms or prices of time is that of He and Zou, "Transcending
Runtime-Memory Tradeoffs in Checkpointing by being Fusion Aware" (MLSys 2023), which PyTorch's partitioner solves; its
answer is overruled here, node by node, by the marks that checkpointing uses.
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
from mezzo.aten.read.groups import dialect_and_op
from mezzo.aten.read.origins import inherited
from mezzo.aten.read.read import count_elements, facts_of
from mezzo.aten.read.retype import CAST, COPY, as_dtype, fake_mode_of
from mezzo.ir.maxflow import SINK, SOURCE, farthest_cut
from mezzo.tables.facts import HEAVY, Risk

_NEVER = 1 << 40  # in bytes: more than any step moves
_FUSED = 8  # what a kernel computes on its way costs this part of moving it
_ROUNDINGS = 32  # a rounding costs as much as so small a part of all that could be kept in FP32
_MOST = 10_000.0


class Prices(NamedTuple):
    """What a byte that is kept costs, in bytes moved, and what a rounding costs."""

    byte: float
    rounding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a cut has come to, in nodes of the graph and in bytes that are kept."""

    whole: Sequence[fx.Node]
    low: Sequence[fx.Node]
    again: Sequence[fx.Node]
    kept_bytes: int


def keep_least(
    graph: fx.Graph, backward: Collection[fx.Node], memory: float, low: torch.dtype, free: Collection[fx.Node]
) -> Kept:
    """Decide what a joint graph keeps, and carry it out: kept low where that is cheapest, marked for the partitioner.

    `memory` weighs bytes kept against time and error: 0 counts these alone, 1 bytes alone. `free` are inputs that live
    in any case.
    """
    problem = _Problem(graph=graph, late=backward, free=frozenset(free), low=low)
    weight = min(memory / (1 - memory) if memory < 1 else _MOST, _MOST)
    kept = problem.solve(Prices(weight, problem.wide_bytes / _ROUNDINGS))
    for node in (*kept.whole, *kept.low):
        decide(node, CheckpointPolicy.MUST_SAVE)
    for node in kept.again:
        decide(node, CheckpointPolicy.MUST_RECOMPUTE)
    for node in kept.low:
        _read_low(graph, node, low, problem.late)
    return kept


@dataclass(kw_only=True)
class _Problem:
    """The nodes of the forward with what each of them costs. `late` are of the backward, `free` live in any case."""

    graph: fx.Graph
    late: Collection[fx.Node]
    free: frozenset[fx.Node]
    low: torch.dtype
    nodes: list[fx.Node] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = [node for node in self.graph.nodes if node.op != "output" and node not in self.late]

    @property
    def wide_bytes(self) -> int:
        """Of all in FP32 that the backward reads, weights apart."""
        return sum(bytes_of(node) for node in self.nodes if self._may_be_low(node))

    def solve(self, prices: Prices) -> Kept:
        """The cheapest way, exactly."""
        number = {node: 2 + 2 * at for at, node in enumerate(self.nodes)}
        edges = [edge for node in self.nodes for edge in self._edges(node, number, prices)]
        tails, heads, capacities = (np.array(column, np.int64) for column in zip(*edges, strict=True))
        is_early = farthest_cut(2 + 2 * len(self.nodes), tails, heads, capacities)
        wanted = self._wanted(lambda node: not is_early[number[node]])
        whole = [node for node in wanted if is_early[number[node]] and not is_early[number[node] + 1]]
        low_ones = [node for node in self.nodes if self._may_be_low(node) and is_early[number[node] + 1]]
        again = [node for node in wanted if not is_early[number[node]]]
        return Kept(
            whole=whole,
            low=low_ones,
            again=again,
            kept_bytes=sum(self._held_bytes(node) for node in whole)
            + sum(0 if self._has_low(node) else bytes_of(node) // 2 for node in low_ones),
        )

    def _edges(self, node: fx.Node, number: Mapping[fx.Node, int], prices: Prices) -> Iterator[tuple[int, int, int]]:
        made, had = number[node], number[node] + 1
        yield SOURCE, made, _capacity(self._again_bytes(node) if self._may_be_again(node) else _NEVER)
        yield made, had, _capacity(self._keep_price(node, prices))
        for user in node.users:
            if user in number:
                yield had, number[user], _capacity(_NEVER)  # what is computed again has all that it reads
        if self._is_read_late(node):
            yield had, SINK, _capacity(self._low_price(node, prices))

    def _keep_price(self, node: fx.Node, prices: Prices) -> float:
        held = node.meta.get("val")
        if isinstance(held, torch.SymInt):
            return 0.0
        if not isinstance(held, torch.Tensor) or is_view(node) or self._is_written(node):
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
        """Whether the forward writes a number whatever is kept: products make it or read it, or it is a result."""
        maker: Any = node.args[0] if node.target is getitem else node
        early = [user for user in readers(node, is_view) if user not in self.late]
        return is_product(maker) or any(is_product(user) or user.op == "output" for user in early)

    def _held_bytes(self, node: fx.Node) -> int:
        return 0 if node in self.free else bytes_of(node)

    def _is_read_late(self, node: fx.Node) -> bool:
        return any(user in self.late for user in node.users)

    def _may_be_low(self, node: fx.Node) -> bool:
        """Whether the backward may read the number rounded: of FP32, and made by a call."""
        held = tensor_of(node)
        is_wide = held is not None and held.dtype is torch.float32 and node.op == "call_function"
        return is_wide and held is not None and held.numel() > 1 and self._is_read_late(node)

    def _has_low(self, node: fx.Node) -> bool:
        """Whether the backward reads the number's low form in any case."""
        found = _low_form(node, self.low)
        return found is not None and any(user in self.late for user in readers(found, is_view))

    def _is_written(self, node: fx.Node) -> bool:
        return any(user.target is COPY and user.args[0] is node for user in node.users)

    def _may_be_again(self, node: fx.Node) -> bool:
        """Whether the backward may compute what a node makes."""
        if node.op == "get_attr":
            return True
        if node.op != "call_function":
            return False
        if node.target is getitem:
            return True
        target: Any = node.target
        if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in target.tags:
            return isinstance(node.meta.get("val"), torch.SymInt)
        if target._schema.is_mutable or any(self._is_written(operand) for operand in node.all_input_nodes):
            return False
        row = facts_of(*dialect_and_op(target, facts_of))
        return row is not None and row.cost not in HEAVY and Risk.RANDOM not in row.risks

    def _again_bytes(self, node: fx.Node) -> float:
        """What computing a node in the backward costs: a view nothing, an operand of a product writing and reading."""
        if node.target is getitem or is_view(node) or tensor_of(node) is None:
            return 0.0
        if any(is_product(user) for user in readers(node, is_view) if user in self.late):
            return 2.0 * bytes_of(node)
        return max(bytes_of(node), *map(bytes_of, node.all_input_nodes), 0) / _FUSED

    def _wanted(self, is_again: Callable[[fx.Node], bool]) -> list[fx.Node]:
        """What the backward reads, as it is or to compute what it reads, in order."""
        wanted: set[fx.Node] = set()
        for node in reversed(self.nodes):
            if self._is_read_late(node) or any(user in wanted and is_again(user) for user in node.users):
                wanted.add(node)
        return [node for node in self.nodes if node in wanted]


def _capacity(price: float) -> int:
    """A price in sixteenths: capacities are whole numbers."""
    return round(16 * price)


def bytes_of(node: fx.Node) -> int:
    """What a node's tensor takes; symbolic sizes as they were when the graph was traced."""
    held = tensor_of(node)
    return 0 if held is None else count_elements(held) * held.element_size()


def readers(node: fx.Node, is_seen_through: Callable[[fx.Node], bool]) -> Iterator[fx.Node]:
    """What reads a node, and what reads those that only hand it on; these are among them."""
    for user in node.users:
        yield user
        if is_seen_through(user):
            yield from readers(user, is_seen_through)


def _low_form(node: fx.Node, low: torch.dtype) -> fx.Node | None:
    """The conversion of a number to the low type; None where nobody makes one."""
    return next((user for user in node.users if user.target is CAST and user.args[1] is low), None)


def is_product(node: fx.Node) -> bool:
    """Whether a call does much of a model's arithmetic."""
    row = facts_of(*dialect_and_op(node.target, facts_of)) if node.op == "call_function" else None
    return row is not None and row.cost in HEAVY


def is_view(node: fx.Node) -> bool:
    """Whether a call makes no numbers of its own."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def decide(node: fx.Node, policy: CheckpointPolicy) -> None:
    """Say what Inductor's partitioner does with a node, unless the program has: what it checkpoints."""
    if node.op == "call_function" and "recompute" not in node.meta:
        node.meta["recompute"], node.meta["ac_graph_id"] = policy, 0


def _read_low(graph: fx.Graph, node: fx.Node, low: torch.dtype, late: Collection[fx.Node]) -> None:
    """Let the backward read a number's low form, made FP32 again there."""
    mode = fake_mode_of(graph)
    held = node.meta["val"]
    rounded = _low_form(node, low)
    if rounded is None:
        with graph.inserting_after(node):
            rounded = graph.call_function(CAST, (node, low))
        rounded.meta = {**inherited(node), "val": as_dtype(mode, held, low), "partitioner_tag": "is_forward"}
    decide(rounded, CheckpointPolicy.MUST_SAVE)
    with graph.inserting_after(rounded):
        wide = graph.call_function(CAST, (rounded, torch.float32))
    wide.meta = {**inherited(node), "val": as_dtype(mode, held, torch.float32), "partitioner_tag": "is_forward"}
    decide(wide, CheckpointPolicy.MUST_RECOMPUTE)
    node.replace_all_uses_with(wide, delete_user_cb=lambda user: user in late)
