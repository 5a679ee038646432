"""The minimum cut that decides what a backward saves, at given prices.

Each forward value that the backward needs is saved as it is, saved in low precision (if the
backward reads it directly, in FP32), or recomputed. A saved byte costs `Prices.byte`. A byte
written or read to save it costs 1, as does a byte of a recomputed matmul operand; recomputation
fused into another kernel costs a fraction of that. Rounding a value that the backward uses costs
`Prices.rounding`. Matmuls, convolutions, random and unknown operators are never recomputed. Weights
stay alive in any case.

Each node has two vertices: the first is on the sink's side if the backward recomputes the node, the
second if it has the node's exact value. Source: He and Zou, "Transcending Runtime-Memory Tradeoffs
in Checkpointing by being Fusion Aware" (MLSys 2023), the cut that PyTorch's partitioner solves,
without low-precision forms and time.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import getitem
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import dialect_and_op, is_view
from mezzo.aten.read.read import facts_of
from mezzo.aten.read.retype import COPY
from mezzo.aten.torch_internals import OpOverload, schema_of
from mezzo.ir.columns import Ints
from mezzo.ir.maxflow import SINK, SOURCE, farthest_cut
from mezzo.tables.facts import HEAVY, Risk
from mezzo.torch.train.joint_nodes import bytes_of, is_product, low_form, readers
from mezzo.torch.train.live_bytes import Peak, Saved, Timeline

Floats = npt.NDArray[np.float64]

NEVER = 1 << 40  # an infinite price in bytes
_FUSED = 8  # fused recomputation costs 1/8 of moving the bytes


class Prices(NamedTuple):
    """The price of a saved byte, in bytes moved, and of a rounding."""

    byte: float
    rounding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A cut's result: nodes saved as they are, saved low, and recomputed; the estimated peak and
    the total bytes saved; the bytes that are paid for, inputs included, the roundings, and the time
    that saving and recomputing take, in bytes moved.
    """

    whole: Sequence[fx.Node]
    low: Sequence[fx.Node]
    again: Sequence[fx.Node]
    kept_bytes: int
    peak_bytes: int
    paid_bytes: float
    roundings: float
    time_bytes: float

    def price(self, prices: Prices) -> float:
        """What the solution costs, with its peak."""
        saved = prices.byte * (self.paid_bytes + self.peak_bytes)
        return self.time_bytes + saved + prices.rounding * self.roundings


class Charge(NamedTuple):
    """Bytes that a node has at the peak if it is recomputed, saved, or saved low."""

    again: float
    whole: float
    low: float


class _Network(NamedTuple):
    """Edges, with their capacity's parts: time, and amounts of bytes and of roundings."""

    tails: Ints
    heads: Ints
    time: Floats
    bytes: Floats
    roundings: Floats

    def capacities(self, prices: Prices) -> Floats:
        return self.time + prices.byte * self.bytes + prices.rounding * self.roundings


_NO_CHARGES: Mapping[fx.Node, Charge] = MappingProxyType({})


@dataclass(kw_only=True)
class SavedValues:
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

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.graph, self.late)

    def peak_of(self, result: Kept) -> Peak:
        return self.timeline.peak(Saved(result.whole, result.low, result.again))

    @property
    def wide_bytes(self) -> int:
        """The total bytes of FP32 values that the backward reads, without weights."""
        return sum(bytes_of(node) for node in self.nodes if self.may_be_low(node))

    def solve(self, prices: Prices, charges: Mapping[fx.Node, Charge] = _NO_CHARGES) -> Kept:
        """The cheapest solution, which is exact, if nodes have these bytes at the peak."""
        network, number = self._network, self._number
        charged = [
            (*edge, prices.byte * size)
            for node, charge in charges.items()
            for edge, size in zip(_edges_of(number[node]), charge, strict=True)
            if size
        ]
        tails, heads, sizes = (
            np.concatenate([column, np.array(more, column.dtype)])
            for column, more in zip(
                (network.tails, network.heads, network.capacities(prices)),
                zip(*charged, strict=True) if charged else ((), (), ()),
                strict=True,
            )
        )
        capacities = np.rint(16 * sizes).astype(np.int64)  # in sixteenths, as they are integers
        is_early = farthest_cut(2 + 2 * len(self.nodes), tails, heads, capacities)
        needed = self._wanted(lambda node: not is_early[number[node]])
        saved = [
            node for node in needed if is_early[number[node]] and not is_early[number[node] + 1]
        ]
        saved_low = [
            node for node in self.nodes if self.may_be_low(node) and is_early[number[node] + 1]
        ]
        recomputed = [node for node in needed if not is_early[number[node]]]
        is_cut = is_early[network.tails] & ~is_early[network.heads]
        return Kept(
            whole=saved,
            low=saved_low,
            again=recomputed,
            kept_bytes=sum(self._held_bytes(node) for node in saved)
            + sum(0 if self.has_low(node) else bytes_of(node) // 2 for node in saved_low),
            peak_bytes=self.timeline.peak(Saved(saved, saved_low, recomputed)).size_bytes,
            paid_bytes=float(network.bytes[is_cut].sum()),
            roundings=float(network.roundings[is_cut].sum()),
            time_bytes=float(network.time[is_cut].sum()),
        )

    @cached_property
    def _number(self) -> Mapping[fx.Node, int]:
        """The first of each node's two vertices."""
        return {node: 2 + 2 * index for index, node in enumerate(self.nodes)}

    @cached_property
    def _network(self) -> _Network:
        """The edges, whose capacities are linear in the prices."""
        edges = [edge for node in self.nodes for edge in self._edges(node)]
        tails, heads, *amounts = zip(*edges, strict=True)
        return _Network(
            np.array(tails, np.int64),
            np.array(heads, np.int64),
            *(np.array(column, np.float64) for column in amounts),
        )

    def _edges(self, node: fx.Node) -> Iterator[tuple[int, int, float, float, float]]:
        computed = self._number[node]
        recompute, save, save_low = _edges_of(computed)
        yield *recompute, self._again_bytes(node) if self.may_be_again(node) else NEVER, 0.0, 0.0
        yield *save, *_linear(lambda prices: self._keep_price(node, prices))
        for user in node.users:
            if user in self._number:  # recomputation needs all operands
                yield computed + 1, self._number[user], NEVER, 0.0, 0.0
        if self._is_read_late(node):
            yield *save_low, *_linear(lambda prices: self._low_price(node, prices))

    def _keep_price(self, node: fx.Node, prices: Prices) -> float:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return 0.0
        if not isinstance(value, torch.Tensor) or is_view(node) or self._is_written(node):
            return NEVER
        size = bytes_of(node)
        if node.op != "call_function":
            return size if node in self.free else (1 + prices.byte) * size
        return (1 + prices.byte) * size + (0 if self._is_in_memory(node) else size)

    def _low_price(self, node: fx.Node, prices: Prices) -> float:
        if not self.may_be_low(node):
            return NEVER
        half = bytes_of(node) / 2
        return prices.rounding + (half if self.has_low(node) else (2 + prices.byte) * half)

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

    def may_be_low(self, node: fx.Node) -> bool:
        """Whether the backward may use a rounded value: FP32, computed, and not a single number."""
        tensor = tensor_of(node)
        is_wide = tensor is not None and tensor.dtype is torch.float32 and tensor.numel() > 1
        return is_wide and node.op == "call_function" and self._is_read_late(node)

    def has_low(self, node: fx.Node) -> bool:
        """Whether the backward uses the value's low-precision form anyway."""
        rounded = low_form(node, self.low)
        return rounded is not None and any(user in self.late for user in readers(rounded, is_view))

    def _is_written(self, node: fx.Node) -> bool:
        return any(user.target is COPY and user.args[0] is node for user in node.users)

    def may_be_again(self, node: fx.Node) -> bool:
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


def _edges_of(computed: int) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """The edges that are cut if a node is recomputed, saved, or saved low."""
    return (SOURCE, computed), (computed, computed + 1), (computed + 1, SINK)


def _linear(price: Callable[[Prices], float]) -> tuple[float, float, float]:
    """A price's parts: time, and what it has per price of a byte and of a rounding."""
    time = price(Prices(0, 0))
    return time, price(Prices(1, 0)) - time, price(Prices(0, 1)) - time
