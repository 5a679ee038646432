"""Decompositions of PyTorch's fused encoder layers (the fast path of `nn.MultiheadAttention` and
`nn.TransformerEncoderLayer` in inference) into linears, attention and norms, each of which has a
precision and kernels of its own.

Source: PyTorch 2.13 aten/src/ATen/native/transformers/{transformer,attention}.cpp
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from mezzo.aten.marks import marks_in
from mezzo.aten.torch_internals import fused_attention, fused_encoder_layer

_ATEN: Any = torch.ops.aten
_KEYS_ALONE = 1  # the mask type of [batch, keys]; 0 is [queries, keys], 2 [batch, heads, ...]


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """An encoder layer of [batch, positions, embed_dim], with its norms first or last."""

    def attended(x: Tensor) -> Tensor:
        products = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        result, _ = attention(
            x, x, x, embed_dim, num_heads, *products, mask, need_weights=False, mask_type=mask_type
        )
        return result

    def fed_forward(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    normed = partial(functional.layer_norm, normalized_shape=(embed_dim,), eps=eps)
    normed_1 = partial(normed, weight=norm_weight_1, bias=norm_bias_1)
    normed_2 = partial(normed, weight=norm_weight_2, bias=norm_bias_2)
    if norm_first:
        src = src + attended(normed_1(src))
        return src + fed_forward(normed_2(src))
    src = normed_1(src + attended(src))
    return normed_2(src + fed_forward(src))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Multi-head attention of [batch, positions, embed_dim], and its weights: [batch, queries,
    keys], with heads after the batch if not averaged, empty if not needed. A mask is true (not 0)
    at keys that are left out.
    """
    batch, length, _ = query.shape
    width = embed_dim // num_head
    if query is key and key is value:
        parts = functional.linear(query, qkv_weight, qkv_bias).chunk(3, dim=-1)
    else:
        own = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        parts = tuple(functional.linear(*products) for products in own)
    queries, keys, values = (
        part.unflatten(-1, (num_head, width)).transpose(1, 2) for part in parts
    )
    is_left_out = None if mask is None else mask.to(torch.bool)
    if is_left_out is not None and mask_type == _KEYS_ALONE:
        is_left_out = is_left_out.view(batch, 1, 1, -1)
    if need_weights:
        scores = queries @ keys.mT * width**-0.5
        if is_left_out is not None:
            scores = scores.masked_fill(is_left_out, float("-inf"))
        weights = scores.softmax(-1)
        mixed = weights @ values
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        is_seen = None if is_left_out is None else is_left_out.logical_not()
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_seen)
        weights = query.new_empty(0)
    mixed = mixed.transpose(1, 2).reshape(batch, length, embed_dim)
    return functional.linear(mixed, proj_weight, proj_bias), weights


# By operator, as exported programs call them, and by function, as Dynamo's graphs do.
DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    _ATEN._native_multi_head_attention.default: attention,
    _ATEN._transformer_encoder_layer_fwd.default: encoder_layer,
}
FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    fused_attention: attention,
    fused_encoder_layer: encoder_layer,
}


def call_parts(module: fx.GraphModule) -> None:
    """Make a graph of Dynamo's call the parts of fused encoder layers, so that each is traced as a
    call of its own. Those of exact regions stay whole.
    """
    changed = set()
    for marked in marks_in(module):
        is_exact = marked.mark is not None and marked.mark.is_exact
        if marked.node.target in FUNCTIONS and not is_exact:
            marked.node.target = FUNCTIONS[marked.node.target]
            changed.add(marked.node.graph.owning_module)
    for owner in changed:
        owner.recompile()
