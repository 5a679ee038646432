"""Emulation of low-precision accumulation with the tiled matmuls and convolutions of `tiles.py`."""

import functools
from collections.abc import Callable, Mapping
from operator import getitem
from typing import Any

import torch
from torch import fx

from mezzo.aten.marks import marks_in
from mezzo.aten.program import packet_of, torch_dtype_of
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.torch_internals import without_modes
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.joint_nodes import is_product
from mezzo.torch.train.sums.tiles import CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT, PRODUCT

_ATEN: Any = torch.ops.aten
_DIMENSIONS = (3, 4)  # ranks of sequences and images
_WHOLE = 1 << 31  # a tile larger than any sum: FP32 accumulation, rounded once
_TERMS = 4096
_Write = Callable[[CallInserter, fx.Node, int], Mapping[fx.Node, fx.Node] | None]


def tile_for(controls: Controls, low: torch.dtype, device: str) -> int | None:
    """The tile size for sums; None if the device's own kernels accumulate as requested."""
    if controls.accumulate is None or (
        controls.accumulate == "fp32" and sums_are_wide(low, device)
    ):
        return None
    return _WHOLE if controls.accumulate == "fp32" else controls.tile or 1


@functools.cache
def sums_are_wide(low: torch.dtype, device: str) -> bool:
    """Whether a device accumulates a format in FP32, by self-test. Sums of ones stop growing where
    a rounded accumulator absorbs 1. Without oneDNN's kernels, PyTorch rounds the gradient of a
    convolution's weight after each image of a batch.
    """
    with without_modes(), torch.no_grad():
        ones = torch.ones(_TERMS, dtype=low, device=device)
        images, filters = ones.view(1, -1, 1, 1), ones.view(1, -1, 1, 1)
        batch = ones.view(-1, 1, 1, 1)
        sums = (
            ones.view(1, -1) @ ones.view(-1, 1),
            torch.nn.functional.conv2d(images, filters),
            torch.nn.grad.conv2d_weight(batch, (1, 1, 1, 1), batch),
        )
        return all(float(total) == _TERMS for total in sums)


def sum_in_tiles(owner: fx.GraphModule, low: torch.dtype, tile: int) -> tuple[str, ...]:
    """Emulate tiled accumulation in the low-precision operators of a graph and its subgraphs. Skips
    regions that keep their types. Returns the names of operators that cannot be emulated.
    """
    unsupported: dict[str, None] = {}
    exempt = {
        marked.node
        for marked in marks_in(owner)
        if marked.mark is not None and marked.mark.dtype is None
    }
    for node in {marked.node: None for marked in marks_in(owner)}:
        if node in exempt or not _is_low_product(node, low):
            continue
        write = _WRITERS.get(node.target)
        with node.graph.inserting_before(node):
            replacements = (
                None if write is None else write(CallInserter(node.graph, node), node, tile)
            )
        if replacements is None:
            unsupported[packet_of(node.target) or str(node.target)] = None
            continue
        for old, new in replacements.items():
            old.replace_all_uses_with(new)
            node.graph.erase_node(old)
        if node not in replacements:
            node.graph.erase_node(node)
    return tuple(unsupported)


def _is_low_product(node: fx.Node, low: torch.dtype) -> bool:
    reads_low = any(torch_dtype_of(operand) is low for operand in node.all_input_nodes)
    return reads_low and is_product(node)


def _write_product(build: CallInserter, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node]:
    left, right = node.args
    return {node: build.call(PRODUCT, left, right, tile)}


def _write_sum(build: CallInserter, node: fx.Node, tile: int) -> Mapping[fx.Node, fx.Node] | None:
    """A matmul with an addend, which is added last."""
    if any(scale != 1 for scale in node.kwargs.values()) or len(node.args) > 3:
        return None
    addend, left, right = node.args
    product = build.call(PRODUCT, left, right, tile)
    return {node: build.call(_ATEN.add.Tensor, product, addend)}


def _write_convolution(
    build: CallInserter, node: fx.Node, tile: int
) -> Mapping[fx.Node, fx.Node] | None:
    x, weight, bias, stride, padding, dilation, is_transposed, _, groups = node.args
    if is_transposed or node.meta["val"].dim() not in _DIMENSIONS:
        return None
    sizes = (stride, padding, dilation, groups, is_laid_out_last(node.meta["val"]), tile)
    result = build.call(CONVOLUTION, x, weight, *sizes)
    if isinstance(bias, fx.Node):
        shape = [1, -1, *[1] * len(stride)]
        result = build.call(_ATEN.add.Tensor, result, build.call(_ATEN.view.default, bias, shape))
    return {node: result}


def _write_backward(
    build: CallInserter, node: fx.Node, tile: int
) -> Mapping[fx.Node, fx.Node] | None:
    gradient, x, weight, _, stride, padding, dilation, is_transposed, _, groups, _ = node.args
    if is_transposed or len(stride) + 2 not in _DIMENSIONS:
        return None
    operands = (gradient, x, weight, stride, padding, dilation, groups)
    gradients: dict[fx.Node, fx.Node] = {}
    for user in [user for user in node.users if user.target is getitem]:
        if user.args[1] == 2:
            axes = [0, *range(2, len(stride) + 2)]
            gradients[user] = build.call(_ATEN.sum.dim_IntList, gradient, axes)
            continue
        target = (CONVOLUTION_INPUT, CONVOLUTION_WEIGHT)[user.args[1]]
        gradients[user] = build.call(target, *operands, is_laid_out_last(user.meta["val"]), tile)
    return gradients


_WRITERS: Mapping[object, _Write] = {
    _ATEN.mm.default: _write_product,
    _ATEN.bmm.default: _write_product,
    _ATEN.addmm.default: _write_sum,
    _ATEN.baddbmm.default: _write_sum,
    _ATEN.convolution.default: _write_convolution,
    _ATEN.convolution_backward.default: _write_backward,
}
