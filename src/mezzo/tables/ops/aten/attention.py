"""Attention as one operator: a safe softmax (maximum subtracted) with FP32 accumulation, so no
risk.

Kernels also output each row's logsumexp in FP32, which the backward kernels read.
"""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, facts

SOURCE = (
    "PyTorch 2.13 aten/src/ATen/native/transformers/attention.cpp and cpu/FlashAttentionKernel.cpp;"
    " Dao 2023 (arXiv:2307.08691)"
)

FACTS: tuple[OpFacts, ...] = (
    facts("_cudnn_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_efficient_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_flash_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_scaled_dot_product_cudnn_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_scaled_dot_product_efficient_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_scaled_dot_product_flash_attention_backward", Cost.ATTENTION, like="Attention"),
    facts("_scaled_dot_product_flash_attention_for_cpu_backward", Cost.ATTENTION, like="Attention"),
    facts(
        "_scaled_dot_product_fused_attention_overrideable_backward",
        Cost.ATTENTION,
        like="Attention",
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_cudnn_attention_forward": "Attention",
    "_efficient_attention_forward": "Attention",
    "_flash_attention_forward": "Attention",
    "_scaled_dot_product_attention_math": "Attention",
    "_scaled_dot_product_attention_math_for_mps": "Attention",
    "_scaled_dot_product_cudnn_attention": "Attention",
    "_scaled_dot_product_efficient_attention": "Attention",
    "_scaled_dot_product_flash_attention": "Attention",
    "_scaled_dot_product_flash_attention_for_cpu": "Attention",
    "_scaled_dot_product_fused_attention_overrideable": "Attention",
    "scaled_dot_product_attention": "Attention",
}
