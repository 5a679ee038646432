"""Replacement of the CPU attention backward by matmuls that are faster and as accurate.

The kernel calls oneDNN per tile of 32 or 64 rows. For short sequences the calls dominate: at 128
positions it is two to three times slower than matmuls over whole sequences
(`attention_formulas.py`). The forward has two matmuls to the backward's five, and its kernel is as
fast as matmuls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from mezzo.aten.read.retype import fake_mode_of, is_laid_out_alike
from mezzo.contracts.plans import Plan
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.torch_internals import select_decomp_table
from mezzo.torch.train.attention_formulas import AttentionOptions, backward_in_parts
from mezzo.torch.train.sums.split_bf16_sums import sums_in_two_passes

_ATEN: Any = torch.ops.aten
_BACKWARD: Any = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
# Matmuls were faster from this many scores on, at 197 positions and fewer, and slower at 256.
_LEAST, _SHORT = 1 << 14, 224
_RANK, _DROPOUT, _CAUSAL = 4, 6, 7  # tensor rank; argument positions
# The note on such a node in explanations.
AS_PRODUCTS = (
    "runs as products of whole sequences, whose scores are FP32 sums: here that is faster than"
    " PyTorch's kernel"
)


@dataclass(frozen=True, slots=True)
class AsProducts:
    """An attention node of a plan whose backward runs as matmuls."""

    plan: Plan
    node: str


def write_as_products(planned: RewrittenGraph) -> tuple[AsProducts, ...]:
    """Replace attention backwards of a planned graph by matmuls where faster; returns the nodes."""
    traced: dict[object, fx.Graph] = {}
    written = [
        node.name
        for node, call in planned.calls()
        if call.target is _BACKWARD and _write(call, traced)
    ]
    return tuple(AsProducts(planned.plan, name) for name in dict.fromkeys(written))


def _write(call: fx.Node, traced: dict[object, fx.Graph]) -> bool:
    """Replace a kernel call by matmuls where faster and supported; returns whether it did."""
    tensors = [argument for argument in call.args if isinstance(argument, fx.Node)]
    mask = call.kwargs.get("attn_mask")
    if isinstance(mask, fx.Node):
        tensors.append(mask)
    if not _is_faster(call, mask) or not sums_in_two_passes(torch.bfloat16):
        return False
    kind = (call.target, _options_of(call), *(_spelled(tensor.meta["val"]) for tensor in tensors))
    if kind not in traced:
        traced[kind] = _traced(call, [tensor.meta["val"] for tensor in tensors])
    results = _inlined(call, traced[kind], tensors)
    if not all(
        map(is_laid_out_alike, (result.meta["val"] for result in results), call.meta["val"])
    ):
        call.graph.eliminate_dead_code()
        return False
    for user in list(call.users):
        user.replace_all_uses_with(results[user.args[1]])
        call.graph.erase_node(user)
    call.graph.erase_node(call)
    return True


def _is_faster(call: fx.Node, mask: Any) -> bool:
    """Whether matmuls are faster than a call, and compute the same."""
    _, query, key, value = (argument.meta["val"] for argument in call.args[:4])
    sizes = [*query.shape, key.shape[2]]
    if (
        call.args[_DROPOUT] != 0.0
        or query.device.type != "cpu"
        or not all(
            tensor.dtype is torch.bfloat16 and tensor.dim() == _RANK
            for tensor in (query, key, value)
        )
        or not all(isinstance(size, int) for size in sizes)
        or key.shape != value.shape
        or key.shape[:2] != query.shape[:2]
        or (mask is not None and mask.meta["val"].dtype is torch.bool)
    ):
        return False
    batch, heads, rows, _, columns = sizes
    return is_short(batch, heads, rows, columns)


def is_short(batch: int, heads: int, rows: int, columns: int) -> bool:
    """Whether matmuls are faster for these numbers of query and key positions."""
    return batch * heads * rows * columns >= _LEAST and max(rows, columns) <= _SHORT


def _options_of(call: fx.Node) -> AttentionOptions:
    query, scale = call.args[1].meta["val"], call.kwargs.get("scale")
    return AttentionOptions(
        bool(call.args[_CAUSAL]), 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    )


def _spelled(tensor: torch.Tensor) -> object:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def _traced(call: fx.Node, tensors: Sequence[torch.Tensor]) -> fx.Graph:
    """The formulas as a graph of Inductor's operators."""
    options, results = _options_of(call), call.meta["val"]

    def compute(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        return backward_in_parts(
            tensors[:_DROPOUT],
            tensors[_DROPOUT] if len(tensors) > _DROPOUT else None,
            options,
            results,
        )

    with fake_mode_of(call.graph):
        return make_fx(compute, decomposition_table=select_decomp_table())(*tensors).graph


def _inlined(call: fx.Node, formulas: fx.Graph, operands: Sequence[fx.Node]) -> list[fx.Node]:
    """Insert the formulas before a call, and return the nodes of the results."""
    remaining = iter(operands)
    copies: dict[fx.Node, fx.Node] = {}
    with call.graph.inserting_before(call):
        build = CallInserter(call.graph, call)
        for node in formulas.nodes:
            if node.op == "placeholder":
                copies[node] = next(remaining)
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
                copies[node] = build.call(node.target, *args, **kwargs)
                # Parts independent of the gradient could be saved.
                if "partitioner_tag" in copies[node].meta:
                    copies[node].meta["partitioner_tag"] = "must_be_in_backward"
    return [copies[node] for node in formulas.output_node().args[0]]
