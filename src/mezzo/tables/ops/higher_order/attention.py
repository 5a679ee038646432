"""FlexAttention: scores are modified by a user function. Kernels compute both in FP32."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, facts

SOURCE = (
    "PyTorch 2.13 torch/_higher_order_ops/flex_attention.py; Dong et al. 2024 (arXiv:2412.05496)"
)

FACTS: tuple[OpFacts, ...] = (facts("flex_attention_backward", Cost.ATTENTION, like="Attention"),)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "flex_attention": "Attention",
}
