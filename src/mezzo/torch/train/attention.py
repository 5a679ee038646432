"""The backward of attention on CPUs as products, where they are faster than PyTorch's kernel and err no more.

The kernel asks oneDNN for a product per tile of 32 or 64 rows. Where sequences are short those calls take longer than
what they compute: of 128 places it takes two to three times as long as products of whole sequences, which
`attention_formulas.py` writes. Its forward has two products for the backward's five, and is as fast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from mezzo.aten.read.retype import fake_mode_of, is_laid_out_alike
from mezzo.contracts.plans import Plan
from mezzo.torch.compiler.building import Builder
from mezzo.torch.compiler.rewriting import Planned
from mezzo.torch.train.attention_formulas import Told, backward_in_parts
from mezzo.torch.train.sums.split_bf16_sums import sums_in_two_passes

_ATEN: Any = torch.ops.aten
_BACKWARD: Any = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
# Products were faster with so many scores or more, at 197 places and less, and slower at 256.
_LEAST, _SHORT = 1 << 14, 224
_RANK, _DROPOUT, _CAUSAL = 4, 6, 7  # of tensors; and where a call says so
# How such a node runs, in words of it.
AS_PRODUCTS = (
    "runs as products of whole sequences, whose scores are FP32 sums: here that is faster than PyTorch's kernel"
)


@dataclass(frozen=True, slots=True)
class AsProducts:
    """An attention of a plan that runs as products, by its node's name."""

    plan: Plan
    node: str


def write_as_products(planned: Planned) -> tuple[AsProducts, ...]:
    """Let a planned graph compute backwards of attention as products, where that is faster; returns their nodes."""
    traced: dict[object, fx.Graph] = {}
    written = [node.name for node, call in planned.calls() if call.target is _BACKWARD and _write(call, traced)]
    return tuple(AsProducts(planned.plan, name) for name in dict.fromkeys(written))


def _write(call: fx.Node, traced: dict[object, fx.Graph]) -> bool:
    """Replace a call of the kernel by products, unless the kernel is faster or gives what they do not."""
    tensors = [one for one in call.args if isinstance(one, fx.Node)]
    mask = call.kwargs.get("attn_mask")
    if isinstance(mask, fx.Node):
        tensors.append(mask)
    if not _is_faster(call, mask) or not sums_in_two_passes(torch.bfloat16):
        return False
    kind = (call.target, _told(call), *(_spelled(one.meta["val"]) for one in tensors))
    if kind not in traced:
        traced[kind] = _traced(call, [one.meta["val"] for one in tensors])
    results = _inlined(call, traced[kind], tensors)
    if not all(map(is_laid_out_alike, (one.meta["val"] for one in results), call.meta["val"])):
        call.graph.eliminate_dead_code()
        return False
    for user in list(call.users):
        user.replace_all_uses_with(results[user.args[1]])
        call.graph.erase_node(user)
    call.graph.erase_node(call)
    return True


def _is_faster(call: fx.Node, mask: Any) -> bool:
    """Whether products are faster than a call, and give what it does."""
    _, query, key, value = (one.meta["val"] for one in call.args[:4])
    sizes = [*query.shape, key.shape[2]]
    if (
        call.args[_DROPOUT] != 0.0
        or query.device.type != "cpu"
        or not all(one.dtype is torch.bfloat16 and one.dim() == _RANK for one in (query, key, value))
        or not all(isinstance(size, int) for size in sizes)
        or key.shape != value.shape
        or key.shape[:2] != query.shape[:2]
        or (mask is not None and mask.meta["val"].dtype is torch.bool)
    ):
        return False
    batch, heads, rows, _, columns = sizes
    return is_short(batch, heads, rows, columns)


def is_short(batch: int, heads: int, rows: int, columns: int) -> bool:
    """Whether products are faster: between so many places of queries and of keys."""
    return batch * heads * rows * columns >= _LEAST and max(rows, columns) <= _SHORT


def _told(call: fx.Node) -> Told:
    query, scale = call.args[1].meta["val"], call.kwargs.get("scale")
    return Told(bool(call.args[_CAUSAL]), 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale))


def _spelled(held: torch.Tensor) -> object:
    return held.dtype, tuple(held.shape), held.stride()


def _traced(call: fx.Node, given: Sequence[torch.Tensor]) -> fx.Graph:
    """The formulas as operators of a compiler's graph."""
    told, wanted = _told(call), call.meta["val"]

    def compute(*given: torch.Tensor) -> Sequence[torch.Tensor]:
        return backward_in_parts(given[:_DROPOUT], given[_DROPOUT] if len(given) > _DROPOUT else None, told, wanted)

    with fake_mode_of(call.graph):
        return make_fx(compute, decomposition_table=select_decomp_table())(*given).graph


def _inlined(call: fx.Node, formulas: fx.Graph, operands: Sequence[fx.Node]) -> list[fx.Node]:
    """Write formulas before a call, and say where its results are."""
    waiting = iter(operands)
    copies: dict[fx.Node, fx.Node] = {}
    with call.graph.inserting_before(call):
        build = Builder(call.graph, call)
        for node in formulas.nodes:
            if node.op == "placeholder":
                copies[node] = next(waiting)
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
                copies[node] = build.call(node.target, *args, **kwargs)
                if "partitioner_tag" in copies[node].meta:  # what hangs on nothing that is pulled may be kept otherwise
                    copies[node].meta["partitioner_tag"] = "must_be_in_backward"
    return [copies[one] for one in next(reversed(formulas.nodes)).args[0]]
