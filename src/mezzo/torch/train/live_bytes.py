"""Bytes alive during a training step, by liveness over the joint graph.

Time is counted in kernels that the compiler does not fuse: matmuls, convolutions and unlisted
operators. What lies between two of them is one fused loop, whose intermediate values take no
memory. A value is alive from the kernel at or after its producer to the last one that runs before
its readers are done. A recomputed value is made for its first reader of the backward.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from torch import fx

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import is_view
from mezzo.aten.read.retype import CAST
from mezzo.torch.train.joint_nodes import bytes_of, is_kernel, readers


class Span(NamedTuple):
    """The kernels during which a value is alive; none if `last` is before `first`."""

    first: int
    last: int

    def covers(self, kernel: int) -> bool:
        return self.first <= kernel <= self.last


class Saved(NamedTuple):
    """What the backward has of the forward, as forms of values: whole, low, and recomputed."""

    whole: Collection[fx.Node]
    low: Collection[fx.Node]
    again: Collection[fx.Node]


class Peak(NamedTuple):
    """The most bytes that are alive at once, and during which kernel."""

    size_bytes: int
    kernel: int


def is_alias(node: fx.Node) -> bool:
    """Whether a result takes no memory: a view, or a wider form that each reader makes itself."""
    operand, result = (
        (tensor_of(node.all_input_nodes[0]), tensor_of(node))
        if (node.target is CAST)
        else (None, None)
    )
    if operand is None or result is None:
        return is_view(node)
    is_returned = any(user.op == "output" for user in node.users)
    return operand.element_size() < result.element_size() and not is_returned


class Timeline:
    """The kernels of a step in order: of the forward, the border, of the backward, the end."""

    def __init__(self, graph: fx.Graph, late: Collection[fx.Node]) -> None:
        self.late = late
        calls = [node for node in graph.nodes if node.op == "call_function"]
        self.forward = _needed_by([end for end in _results(graph) if end not in late])
        self.early = [node for node in calls if node not in late]
        self.calls = [*self.early, *(node for node in calls if node in late)]
        self.kernels = frozenset(filter(is_kernel, calls))
        self.time: dict[fx.Node, int] = {}
        time = 0
        for index, node in enumerate(self.calls):
            if index == len(self.early):
                time += 1  # the border
            producer: Any = node.args[0] if node.target is getitem else node
            self.time[node] = self.time.get(producer, time)
            time += node in self.kernels
        self.end = time
        self.spans = {node: self._own_span(node) for node in self.calls}

    def _own_span(self, node: fx.Node) -> Span:
        """How long a value is alive for the pass that computes it."""
        producer: Any = node.args[0] if node.target is getitem else node
        first = self.time[node]
        last = first if producer in self.kernels else first - 1
        for user in readers(node, is_alias):
            if user.op == "output":
                last = self.end
            elif not is_alias(user) and user in (self.late if node in self.late else self.forward):
                last = max(last, self._read(user).last)
        return Span(first, last)

    def _read(self, reader: fx.Node) -> Span:
        """When a reader needs an operand, and the last kernel during which it does."""
        time = self.time[reader]
        return Span(time, time if reader in self.kernels else time - 1)

    def needs(self, again: Collection[fx.Node]) -> Mapping[fx.Node, Span]:
        """From when until when the backward needs each forward value, if `again` are recomputed."""
        made_again, needs = frozenset(again), dict[fx.Node, Span]()
        for node in reversed(self.early):
            spans = [
                self._read(user)
                for user in readers(node, is_alias)
                if user in self.late and not is_alias(user)
            ]
            spans += [
                Span(needs[user].first, needs[user].first - 1)
                for user in readers(node, is_alias)
                if user in made_again and user in needs and not is_alias(user)
            ]
            if spans:
                firsts, lasts = zip(*spans, strict=True)
                needs[node] = Span(min(firsts), max(lasts))
        return needs

    def waiting(self, node: fx.Node, need: Span) -> Span:
        """How long a saved value is alive after the pass that computed it."""
        return Span(max(self.spans[node].last + 1, self.time[node]), need.last)

    def peak(self, saved: Saved) -> Peak:
        """The peak of a step by what it saves, without what is alive before and after it."""
        change = np.zeros(self.end + 2, np.int64)
        for span, size in self._alive(saved):
            if span.first <= span.last:
                change[span.first] += size
                change[span.last + 1] -= size
        alive = np.cumsum(change)
        return Peak(int(alive.max()), int(alive.argmax()))

    def _alive(self, saved: Saved) -> Iterator[tuple[Span, int]]:
        needs = self.needs(saved.again)
        for node, span in self.spans.items():
            if not is_alias(node):
                yield span, bytes_of(node)
        for node in saved.whole:
            if node in needs:
                yield self.waiting(node, needs[node]), bytes_of(node)
        for node in saved.low:
            yield self.waiting(node, needs[node]), bytes_of(node) // 2
        for node in (*saved.again, *saved.low):
            if node in needs and not is_alias(node):
                yield needs[node], bytes_of(node)


def _results(graph: fx.Graph) -> Sequence[fx.Node]:
    return graph.output_node().all_input_nodes


def _needed_by(results: Collection[fx.Node]) -> frozenset[fx.Node]:
    """The results and all nodes that they are computed from."""
    needed, unseen = set(results), list(results)
    while unseen:
        operands = set(unseen.pop().all_input_nodes) - needed
        needed |= operands
        unseen += operands
    return frozenset(needed)
