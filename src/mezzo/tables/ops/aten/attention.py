"""Attention as one operator: a safe softmax (maximum subtracted) with FP32 accumulation, so no
risk.

Kernels also output each row's logsumexp in FP32, which the backward kernels read.
"""

from mezzo.tables.facts import Cost, OpFacts, Transfer, facts

SOURCE = (
    "PyTorch 2.13 aten/src/ATen/native/transformers/attention.cpp and cpu/FlashAttentionKernel.cpp;"
    " Dao 2023 (arXiv:2307.08691)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_cudnn_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_cudnn_attention_forward", Cost.ATTENTION, like="Attention", transfer=Transfer.ATTENTION
    ),
    facts("_efficient_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_efficient_attention_forward",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts("_flash_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_flash_attention_forward", Cost.ATTENTION, like="Attention", transfer=Transfer.ATTENTION
    ),
    # With the products before and after it.
    facts("_native_multi_head_attention", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_attention_math",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts(
        "_scaled_dot_product_attention_math_for_mps",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts(
        "_scaled_dot_product_cudnn_attention",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts("_scaled_dot_product_cudnn_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_efficient_attention",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts("_scaled_dot_product_efficient_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_flash_attention",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts("_scaled_dot_product_flash_attention_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_flash_attention_for_cpu",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts("_scaled_dot_product_flash_attention_for_cpu_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_fused_attention_overrideable",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
    facts(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        Cost.ATTENTION,
        like="Attention",
    ),
    # With two norms and a feed-forward network.
    facts("_transformer_encoder_layer_fwd", Cost.ATTENTION, like="Attention"),
    facts(
        "scaled_dot_product_attention",
        Cost.ATTENTION,
        like="Attention",
        transfer=Transfer.ATTENTION,
    ),
)
