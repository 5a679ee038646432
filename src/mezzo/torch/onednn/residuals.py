"""Sums become part of the convolutions before them: oneDNN adds another low tensor to its FP32 sums, and applies a ReLU
behind that, before it rounds.
"""

from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.onednn.epilogues import widened
from mezzo.torch.onednn.kernels import CONVOLUTION, CONVOLUTION_ADD, NOTHING, After

_ATEN: Any = torch.ops.aten
_RELU = _ATEN.relu.default


class _Sum(NamedTuple):
    """What is done to a convolution's answer: the low tensor that is added, and the ends that read the sum in low
    precision, all of them behind a ReLU or none.
    """

    other: fx.Node
    ends: tuple[fx.Node, ...]
    after: After


def add_sums(graph: fx.Graph) -> int:
    """Move sums into the convolutions with packed weights that they follow; returns how many."""
    count = 0
    for product in reversed([node for node in graph.nodes if node.target is CONVOLUTION]):
        found = _behind(product)
        if found is None:
            continue
        count += 1
        with graph.inserting_before(found.ends[0]):
            made = _added(graph, product, found)
        for end in found.ends:
            end.replace_all_uses_with(made)
    if count:
        graph.eliminate_dead_code()
    return count


def _added(graph: fx.Graph, product: fx.Node, found: _Sum) -> fx.Node:
    x, packed, bias, *about = product.args
    low = product.meta["val"].dtype
    if (
        isinstance(bias, fx.Node) and bias.meta["val"].dtype is not low
    ):  # here oneDNN takes biases of the one type alone
        wide, bias = bias, graph.call_function(CAST, (bias, low))
        bias.meta = {**wide.meta, "val": wide.meta["val"].to(low)}
    given: Any = (x, packed, bias, found.other, *about[: -len(NOTHING)], *found.after)
    made = graph.call_function(CONVOLUTION_ADD, given)
    made.meta = dict(product.meta)
    return made


def _behind(product: fx.Node) -> _Sum | None:
    """The sum that alone is read of a convolution's answer, in its low precision alone."""
    start = widened(product) or product
    if tuple(product.args[-len(NOTHING) :]) != NOTHING or len(start.users) != 1:
        return None
    (total,) = start.users
    other = _low_other(product, total, start)
    if other is None:
        return None
    low = product.meta["val"].dtype
    relu = _sole_relu(total)
    ends = [total if relu is None else relu]
    if ends[0].meta["val"].dtype is not low:
        ends = list(ends[0].users)
        if not ends or not all(is_cast(end, low) for end in ends):
            return None
    if relu is None and len(ends) == 1:  # rounding before a ReLU is rounding behind it
        relu = _sole_relu(ends[0])
        ends = ends if relu is None else [relu]
    return _Sum(other, tuple(_in_order(ends)), NOTHING if relu is None else After("relu", ""))


def _sole_relu(node: fx.Node) -> fx.Node | None:
    """The ReLU that alone reads a value."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target is _RELU else None


def _in_order(nodes: list[fx.Node]) -> list[fx.Node]:
    """Nodes of one graph as they come in it."""
    return nodes if len(nodes) < 2 else [node for node in nodes[0].graph.nodes if node in nodes]


def _low_other(product: fx.Node, total: fx.Node, start: fx.Node) -> fx.Node | None:
    """What a sum adds to a convolution's answer, where that is a low tensor of the same shape, and the sum has the
    strides of the answer.
    """
    if total.target is not _ATEN.add.Tensor or total.kwargs or len(total.args) != 2:
        return None
    others = [held for held in total.args if held is not start]
    if len(others) != 1 or not isinstance(others[0], fx.Node):
        return None
    low = others[0].all_input_nodes[0] if is_cast(others[0], torch.float32) else others[0]
    held, made, summed = low.meta.get("val"), product.meta["val"], total.meta["val"]
    is_same = isinstance(held, torch.Tensor) and held.dtype is made.dtype and held.shape == made.shape
    return low if is_same and summed.stride() == made.stride() else None
