"""Attention of few query rows as generated loops over the cache, in place of the CPU kernel.

A token's attention reads each key and value once. The kernel wants them in its own type, with a
copy for each query head, so that the whole cache is converted and copied for every token; and it
multiplies single rows slowly. Inductor fuses conversion and copies into the loops, which compute
in FP32.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.onednn.kernels import FEW_ROWS
from mezzo.torch.operators import STORED
from mezzo.torch.train.attention import AsProducts

_ATEN: Any = torch.ops.aten
_ATTENTION: Any = _ATEN._scaled_dot_product_flash_attention_for_cpu.default
_RANK = 4
_LOWEST = torch.finfo(torch.float32).min
# The note on such a node in explanations.
AS_LOOPS = (
    "runs as loops in FP32 that read keys and values where they are: for so few rows that is faster"
    " than PyTorch's kernel"
)


def write_as_loops(planned: RewrittenGraph) -> tuple[AsProducts, ...]:
    """Replace attention of few rows in a planned graph by loops; returns the nodes."""
    written = [
        node.name for node, call in planned.calls() if call.target is _ATTENTION and _write(call)
    ]
    return tuple(AsProducts(planned.plan, name) for name in dict.fromkeys(written))


def _write(call: fx.Node) -> bool:
    """Replace a kernel call by loops, if they compute the same; returns whether it did."""
    query, key, value, *options = call.args
    mask, scale = call.kwargs.get("attn_mask"), call.kwargs.get("scale")
    users = list(call.users)
    if any(options) or any(user.args[1] != 0 for user in users):  # dropout, causal, logsumexp
        return False
    operands = [operand for operand in (query, key, value) if isinstance(operand, fx.Node)]
    if not _is_supported(operands, mask):
        return False
    build = CallInserter(call.graph, call)
    with call.graph.inserting_before(call):
        result = _loops(build, operands, mask, scale)
    if not _is_laid_out_as(result.meta["val"], call.meta["val"][0]):
        call.graph.eliminate_dead_code()
        return False
    for user in users:
        user.replace_all_uses_with(result)
        call.graph.erase_node(user)
    call.graph.erase_node(call)
    return True


def _is_supported(operands: Sequence[fx.Node], mask: Any) -> bool:
    """Whether rows are few, and the sizes that loops need are known."""
    values = [operand.meta["val"] for operand in operands]
    if any(value.device.type != "cpu" or value.dim() != _RANK for value in values):
        return False
    (_, heads, rows, width), (_, kv_heads, _, _) = values[0].shape, values[1].shape
    if not all(isinstance(size, int) for size in (heads, rows, width, kv_heads)):
        return False
    if rows > FEW_ROWS or heads % kv_heads or values[2].shape[1] != kv_heads:
        return False
    if mask is None:
        return True
    value = mask.meta["val"]
    is_of_all_heads = value.dim() != _RANK or value.shape[1] == 1
    return value.dtype is not torch.bool and (is_of_all_heads or heads == kv_heads)


def _is_laid_out_as(result: torch.Tensor, kernel_result: torch.Tensor) -> bool:
    """Whether views of the two are the same; strides of axes of size 1 do not matter."""
    axes = zip(result.shape, result.stride(), kernel_result.stride(), strict=True)
    return all(
        statically_known_true(size == 1) or statically_known_true(stride == kernel_stride)
        for size, stride, kernel_stride in axes
    )


def _loops(build: CallInserter, operands: Sequence[fx.Node], mask: Any, scale: Any) -> fx.Node:
    """softmax(query key' scale + mask) value, in FP32. Rows that are masked as a whole give zeros,
    as those of the kernel.
    """
    call, low = build.call, operands[0].meta["val"].dtype
    _, heads, rows, width = operands[0].meta["val"].shape
    kv_heads = operands[1].meta["val"].shape[1]
    query, key, value = (call(CAST, operand, torch.float32) for operand in operands)
    query = call(STORED, query)  # Inductor would compute it anew for each key
    if heads != kv_heads:  # an axis for the queries that share keys and values
        query = call(_ATEN.view.default, query, [-1, kv_heads, heads // kv_heads, rows, width])
        key, value = (call(_ATEN.unsqueeze.default, operand, 2) for operand in (key, value))
        if mask is not None and mask.meta["val"].dim() == _RANK:
            mask = call(_ATEN.unsqueeze.default, mask, 2)
    by_key, by_row = (call(_ATEN.unsqueeze.default, *pair) for pair in ((query, -2), (key, -3)))
    scores = call(_ATEN.sum.dim_IntList, call(_ATEN.mul.Tensor, by_key, by_row), [-1])
    scores = call(_ATEN.mul.Tensor, scores, 1 / math.sqrt(width) if scale is None else scale)
    if mask is not None:
        scores = call(_ATEN.add.Tensor, scores, mask)
    largest = call(_ATEN.clamp_min.default, call(_ATEN.amax.default, scores, [-1], True), _LOWEST)
    powers = call(_ATEN.exp.default, call(_ATEN.sub.Tensor, scores, largest))
    total = call(_ATEN.clamp_min.default, call(_ATEN.sum.dim_IntList, powers, [-1], True), 1.0)
    by_key, by_row = (call(_ATEN.unsqueeze.default, *pair) for pair in ((powers, -1), (value, -3)))
    weighted = call(_ATEN.sum.dim_IntList, call(_ATEN.mul.Tensor, by_key, by_row), [-2])
    result = call(CAST, call(_ATEN.div.Tensor, weighted, total), low)
    if heads != kv_heads:
        result = call(_ATEN.view.default, result, [-1, heads, rows, width])
    rows_first = call(_ATEN.permute.default, result, [0, 2, 1, 3])
    dense = call(_ATEN.clone.default, rows_first, memory_format=torch.contiguous_format)
    return call(_ATEN.permute.default, dense, [0, 2, 1, 3])
