"""Matmuls and convolutions with fused scales, transposes and activations."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "ONNX Runtime 1.32 operator schemas, domain com.microsoft"

FACTS: tuple[OpFacts, ...] = (
    facts("CausalConvWithState", Cost.LINEAR),
    facts("ConvTransposeWithDynamicPads", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("FusedConv", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("FusedGemm", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("FusedMatMul", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    # Not Function.MATMUL: an activation follows.
    facts("FusedMatMulActivation", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("GemmFastGelu", Cost.LINEAR, transfer=Transfer.CONTRACT),
    # A matrix of small determinant has an inverse that grows without bound.
    facts("Inverse", Cost.OTHER, Risk.RECIPROCAL),
    # The operator picks the best experts itself, from scores that come in.
    facts("MoE", Cost.LINEAR, Risk.STEP),
    facts("MoEGroupRouter", Cost.LINEAR, Risk.STEP),
    facts("NhwcConv", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("NhwcFusedConv", Cost.LINEAR, transfer=Transfer.CONTRACT),
    facts("RouterGateUpProj", Cost.LINEAR),
    facts("SparseToDenseMatMul", Cost.LINEAR),
    facts("TransposeMatMul", Cost.LINEAR, function=Function.MATMUL, transfer=Transfer.CONTRACT),
    facts("VarlenCausalConvWithState", Cost.LINEAR),
    facts("WordConvEmbedding", Cost.LINEAR),
)
