"""Fusion of residual additions into packed convolutions. oneDNN adds a low-precision tensor to the
FP32 sums, applies an optional ReLU, then rounds.
"""

from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.program import tensor_of
from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.onednn.epilogues import widened
from mezzo.torch.onednn.kernels import CONVOLUTION, CONVOLUTION_ADD, NOTHING, After

_ATEN: Any = torch.ops.aten
_RELU = _ATEN.relu.default


class _Sum(NamedTuple):
    """An addition to a convolution's output: the low-precision addend, and the nodes that use the
    sum.
    The users are in low precision, and all of them or none follow a ReLU.
    """

    other: fx.Node
    ends: tuple[fx.Node, ...]
    after: After


def add_sums(graph: fx.Graph) -> int:
    """Fuse additions into the packed convolutions before them; returns the count."""
    count = 0
    for product in reversed([node for node in graph.nodes if node.target is CONVOLUTION]):
        residual = _behind(product)
        if residual is None:
            continue
        count += 1
        with graph.inserting_before(residual.ends[0]):
            fused = _added(graph, product, residual)
        for end in residual.ends:
            end.replace_all_uses_with(fused)
    if count:
        graph.eliminate_dead_code()
    return count


def _added(graph: fx.Graph, product: fx.Node, residual: _Sum) -> fx.Node:
    x, packed, bias, *about = product.args
    low = product.meta["val"].dtype
    # With an addend, oneDNN requires a bias of the same type.
    if isinstance(bias, fx.Node) and bias.meta["val"].dtype is not low:
        fp32_bias, bias = bias, graph.call_function(CAST, (bias, low))
        bias.meta = {**fp32_bias.meta, "val": fp32_bias.meta["val"].to(low)}
    args: Any = (x, packed, bias, residual.other, *about[: -len(NOTHING)], *residual.after)
    fused = graph.call_function(CONVOLUTION_ADD, args)
    fused.meta = dict(product.meta)
    return fused


def _behind(product: fx.Node) -> _Sum | None:
    """The addition that is an output's only use and itself used only in low precision."""
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
    if relu is None and len(ends) == 1:  # rounding commutes with ReLU
        relu = _sole_relu(ends[0])
        ends = ends if relu is None else [relu]
    return _Sum(other, tuple(_in_order(ends)), NOTHING if relu is None else After("relu", ""))


def _sole_relu(node: fx.Node) -> fx.Node | None:
    """The ReLU that is the only user of a node."""
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].target is _RELU else None


def _in_order(nodes: list[fx.Node]) -> list[fx.Node]:
    """Nodes of one graph, in graph order."""
    return nodes if len(nodes) < 2 else [node for node in nodes[0].graph.nodes if node in nodes]


def _low_other(product: fx.Node, total: fx.Node, start: fx.Node) -> fx.Node | None:
    """The addend: a low-precision tensor of the same shape, if strides are unchanged; else None."""
    if total.target is not _ATEN.add.Tensor or total.kwargs or len(total.args) != 2:
        return None
    others = [addend for addend in total.args if addend is not start]
    if len(others) != 1 or not isinstance(others[0], fx.Node):
        return None
    low = others[0].all_input_nodes[0] if is_cast(others[0], torch.float32) else others[0]
    addend, output, summed = tensor_of(low), product.meta["val"], total.meta["val"]
    is_same = addend is not None and addend.dtype is output.dtype and addend.shape == output.shape
    return low if is_same and summed.stride() == output.stride() else None
