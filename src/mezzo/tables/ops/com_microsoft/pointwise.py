"""Elementwise arithmetic and activations with fused additions."""

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("BiasAdd", Cost.POINTWISE, transfer=Transfer.ADD),
    facts("BiasDropout", Cost.POINTWISE, transfer=Transfer.MOVE),
    facts("BiasGelu", Cost.POINTWISE, transfer=Transfer.GELU),
    facts("BiasSplitGelu", Cost.POINTWISE),
    facts("BitmaskBiasDropout", Cost.POINTWISE),
    facts("ComplexMul", Cost.POINTWISE),
    facts("ComplexMulConj", Cost.POINTWISE),
    facts("FastGelu", Cost.POINTWISE, transfer=Transfer.GELU),
    facts("GatedAdd", Cost.POINTWISE),
    facts("Gelu", Cost.POINTWISE, transfer=Transfer.GELU),
    # It takes the sine and cosine of its operand `emb`; its siblings get them ready made.
    facts("GemmaRotaryEmbedding", Cost.POINTWISE, Risk.PERIODIC),
    # A weighted sum of a handful of streams, element by element.
    facts("HyperConnectionPostMix", Cost.POINTWISE),
    facts("HyperConnectionPreMix", Cost.POINTWISE),
    # The recurrence after it takes the exponential of the decay it gives, step after step.
    facts("LinearAttentionGate", Cost.POINTWISE, Risk.RECURSION),
    facts("MRotaryEmbedding", Cost.POINTWISE, transfer=Transfer.MOVE),
    facts("QuickGelu", Cost.POINTWISE, transfer=Transfer.GELU),
    facts("RotaryEmbedding", Cost.POINTWISE, transfer=Transfer.MOVE),
    facts("ScaledSiLU", Cost.POINTWISE, transfer=Transfer.SILU),
    facts("SwiGLU", Cost.POINTWISE),
)
