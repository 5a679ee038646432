"""Lets products of a planned graph sum as `mezzo.torch.train.sums.tiles` has it: low sums between tiles, emulated."""

import functools
from collections.abc import Callable, Mapping
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from mezzo.aten.marks import marks_in
from mezzo.aten.program import packet_of, tensor_of
from mezzo.aten.read.groups import dialect_and_op
from mezzo.aten.read.read import facts_of
from mezzo.tables.facts import HEAVY
from mezzo.torch.compiler.building import Builder
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.sums.tiles import CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT, PRODUCT

_ATEN: Any = torch.ops.aten
_DIMENSIONS = (3, 4)  # of sequences and of images
_WHOLE = 1 << 31  # a tile of all terms there could be: FP32 sums, rounded once
_TERMS = 4096
_Write = Callable[[Builder, fx.Node, int], Mapping[fx.Node, fx.Node] | None]


def tile_for(controls: Controls, low: torch.dtype, device: str) -> int | None:
    """The tiles that sums are to be made of; None where products as they are have what is asked for."""
    if controls.accumulate is None or (controls.accumulate == "fp32" and sums_are_wide(low, device)):
        return None
    return _WHOLE if controls.accumulate == "fp32" else controls.tile or 1


@functools.cache
def sums_are_wide(low: torch.dtype, device: str) -> bool:
    """Whether a device's products of a format have FP32 sums: tried on sums of ones, which end where 1 is no longer
    seen beside the sum if that is rounded.
    """
    with _disable_current_modes(), torch.no_grad():
        ones = torch.ones(_TERMS, dtype=low, device=device)
        images, filters = ones.view(1, -1, 1, 1), ones.view(1, -1, 1, 1)
        found = (ones.view(1, -1) @ ones.view(-1, 1), torch.nn.functional.conv2d(images, filters))
        return all(float(one) == _TERMS for one in found)


def sum_in_tiles(owner: fx.GraphModule, low: torch.dtype, tile: int) -> tuple[str, ...]:
    """Round the sums of low products of a graph and of the bodies that it calls between tiles of so many terms, but for
    those in a region that is kept. Returns the operators whose sums stay as they are, as nothing emulates them.
    """
    left: dict[str, None] = {}
    kept = {found.node for found in marks_in(owner) if found.mark is not None and found.mark.dtype is None}
    for node in {found.node: None for found in marks_in(owner)}:
        if node.op != "call_function" or node in kept or not _is_low_product(node, low):
            continue
        write = _WRITERS.get(node.target)
        with node.graph.inserting_before(node):
            instead = None if write is None else write(Builder(node.graph, node), node, tile)
        if instead is None:
            left[packet_of(node.target) if isinstance(node.target, torch._ops.OpOverload) else str(node.target)] = None
            continue
        for old, new in instead.items():
            old.replace_all_uses_with(new)
            node.graph.erase_node(old)
        if node not in instead:
            node.graph.erase_node(node)
    return tuple(left)


def _is_low_product(node: fx.Node, low: torch.dtype) -> bool:
    row = facts_of(*dialect_and_op(node.target, facts_of))
    operands = (tensor_of(one) for one in node.all_input_nodes)
    return row is not None and row.cost in HEAVY and any(one is not None and one.dtype is low for one in operands)


def _write_product(build: Builder, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node]:
    one, other = node.args
    return {node: build.call(PRODUCT, one, other, tile)}


def _write_sum(build: Builder, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node] | None:
    """A product with a summand, which is added last."""
    if any(scale != 1 for scale in node.kwargs.values()) or len(node.args) > 3:
        return None
    summand, one, other = node.args
    made = build.call(PRODUCT, one, other, tile)
    return {node: build.call(_ATEN.add.Tensor, made, summand)}


def _write_convolution(build: Builder, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node] | None:
    x, weight, bias, stride, padding, dilation, is_transposed, _, groups = node.args
    if is_transposed or node.meta["val"].dim() not in _DIMENSIONS:
        return None
    sizes = (stride, padding, dilation, groups, is_laid_out_last(node.meta["val"]), tile)
    made = build.call(CONVOLUTION, x, weight, *sizes)
    if isinstance(bias, fx.Node):
        shape = [1, -1, *[1] * len(_sizes(stride))]
        made = build.call(_ATEN.add.Tensor, made, build.call(_ATEN.view.default, bias, shape))
    return {node: made}


def _write_backward(build: Builder, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node] | None:
    gradient, x, weight, _, stride, padding, dilation, is_transposed, _, groups, _ = node.args
    if is_transposed or len(_sizes(stride)) + 2 not in _DIMENSIONS:
        return None
    of = (gradient, x, weight, stride, padding, dilation, groups)
    made: dict[fx.Node, fx.Node] = {}
    for user in [user for user in node.users if user.target is getitem]:
        if user.args[1] == 2:
            axes = [0, *range(2, len(_sizes(stride)) + 2)]
            made[user] = build.call(_ATEN.sum.dim_IntList, gradient, axes)
            continue
        target = (CONVOLUTION_INPUT, CONVOLUTION_WEIGHT)[user.args[1]]
        made[user] = build.call(target, *of, is_laid_out_last(user.meta["val"]), tile)
    return made


def _sizes(given: Any) -> list[int]:
    return list(given)


_WRITERS: Mapping[object, _Write] = {
    _ATEN.mm.default: _write_product,
    _ATEN.bmm.default: _write_product,
    _ATEN.addmm.default: _write_sum,
    _ATEN.baddbmm.default: _write_sum,
    _ATEN.convolution.default: _write_convolution,
    _ATEN.convolution_backward.default: _write_backward,
}
