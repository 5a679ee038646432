"""Attention of few query rows as generated loops over the cache, in place of the CPU kernel.

A token's attention reads each key and value once. The kernel wants them in its own type, with a
copy for each query head, so that the whole cache is converted and copied for every token; and it
multiplies single rows slowly. Inductor fuses conversion and copies into the loops, which compute
in FP32.
"""

import math
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.onednn.kernels import FEW_ROWS
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import register_lowering
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


STORED: Any = define("stored(Tensor x) -> Tensor", torch.clone, torch.empty_like)


@register_lowering(STORED, type_promotion_kind=None)
def _stored(x: Any) -> Any:
    """A value in memory. Inductor would compute the query anew for each key."""
    x.realize()
    return x


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
    if not all(_is_supported(operand) for operand in (query, key, value)):
        return False
    if isinstance(mask, fx.Node) and mask.meta["val"].dtype is torch.bool:
        return False
    rows, width = query.meta["val"].shape[2:]  # type: ignore[union-attr]  # operands are nodes
    if not isinstance(rows, int) or rows > FEW_ROWS:
        return False
    build = CallInserter(call.graph, call)
    with call.graph.inserting_before(call):
        result = _loops(
            build, (query, key, value), mask, 1 / math.sqrt(width) if scale is None else scale
        )
    if not _is_laid_out_as(result.meta["val"], call.meta["val"][0]):
        call.graph.eliminate_dead_code()
        return False
    for user in users:
        user.replace_all_uses_with(result)
        call.graph.erase_node(user)
    call.graph.erase_node(call)
    return True


def _is_supported(operand: Any) -> bool:
    value = operand.meta["val"]
    return value.device.type == "cpu" and value.dim() == _RANK


def _is_laid_out_as(result: torch.Tensor, kernel_result: torch.Tensor) -> bool:
    """Whether views of the two are the same; strides of axes of size 1 do not matter."""
    axes = zip(result.shape, result.stride(), kernel_result.stride(), strict=True)
    return all(
        statically_known_true(size == 1) or statically_known_true(stride == kernel_stride)
        for size, stride, kernel_stride in axes
    )


def _loops(build: CallInserter, operands: tuple[Any, Any, Any], mask: Any, scale: float) -> fx.Node:
    """softmax(query key' scale + mask) value, in FP32. Rows that are masked as a whole give zeros,
    as those of the kernel.
    """
    call, low = build.call, operands[0].meta["val"].dtype
    query, key, value = (call(CAST, operand, torch.float32) for operand in operands)
    by_key = call(_ATEN.unsqueeze.default, call(STORED, query), 3)
    pairs = call(_ATEN.mul.Tensor, by_key, _unsqueezed(build, key))
    scores = call(_ATEN.mul.Tensor, call(_ATEN.sum.dim_IntList, pairs, [-1]), scale)
    if mask is not None:
        scores = call(_ATEN.add.Tensor, scores, mask)
    largest = call(_ATEN.clamp_min.default, call(_ATEN.amax.default, scores, [-1], True), _LOWEST)
    powers = call(_ATEN.exp.default, call(_ATEN.sub.Tensor, scores, largest))
    weighted = call(
        _ATEN.mul.Tensor,
        call(_ATEN.unsqueeze.default, powers, 4),
        _unsqueezed(build, value),
    )
    total = call(_ATEN.clamp_min.default, call(_ATEN.sum.dim_IntList, powers, [-1], True), 1.0)
    result = call(_ATEN.div.Tensor, call(_ATEN.sum.dim_IntList, weighted, [-2]), total)
    by_row = call(_ATEN.permute.default, call(CAST, result, low), [0, 2, 1, 3])
    dense = call(_ATEN.clone.default, by_row, memory_format=torch.contiguous_format)
    return call(_ATEN.permute.default, dense, [0, 2, 1, 3])


def _unsqueezed(build: CallInserter, operand: fx.Node) -> fx.Node:
    """Keys or values with an axis for the query's rows."""
    return build.call(_ATEN.unsqueeze.default, operand, 2)
