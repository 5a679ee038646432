"""Matrix products and convolutions with what the optimizer fused into them: scales, transposes, activations."""

from mezzo.facts import Cost, Function, OpFacts, Risk, facts

SOURCE = "ONNX Runtime 1.31 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("CausalConvWithState", Cost.LINEAR),
    facts("ConvTransposeWithDynamicPads", Cost.LINEAR),
    facts("FusedConv", Cost.LINEAR),
    facts("FusedGemm", Cost.LINEAR),
    facts("FusedMatMul", Cost.LINEAR, function=Function.MATMUL),
    # Not Function.MATMUL: an activation follows.
    facts("FusedMatMulActivation", Cost.LINEAR),
    facts("GemmFastGelu", Cost.LINEAR),
    # A matrix of small determinant has an inverse that grows without bound.
    facts("Inverse", Cost.OTHER, Risk.RECIPROCAL),
    # The operator picks the best experts itself, from scores that come in.
    facts("MoE", Cost.LINEAR, Risk.STEP),
    facts("NhwcConv", Cost.LINEAR),
    facts("NhwcFusedConv", Cost.LINEAR),
    facts("SparseToDenseMatMul", Cost.LINEAR),
    facts("TransposeMatMul", Cost.LINEAR, function=Function.MATMUL),
    facts("VarlenCausalConvWithState", Cost.LINEAR),
    facts("WordConvEmbedding", Cost.LINEAR),
)
