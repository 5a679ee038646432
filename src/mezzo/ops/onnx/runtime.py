"""Operators that ONNX Runtime registers in the default domain and ONNX does not have.

All but SimplifiedLayerNormalization, which its optimizer emits, were experimental in ONNX until 1.5.
"""

from mezzo.core.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX Runtime 1.31 operator schemas of the default domain; ONNX 1.4 documentation of the experimental operators"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Affine", Cost.POINTWISE, numbers=("alpha", "beta")),
    facts("Crop", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("DynamicSlice", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("GRUUnit", Cost.RECURRENT, Risk.RECURSION),
    facts("GivenTensorFill", Cost.GENERATOR),
    facts("ImageScaler", Cost.POINTWISE),
    facts("ParametricSoftplus", Cost.POINTWISE, numbers=("alpha", "beta"), transfer=Transfer.SOFTPLUS),
    # Not Function.MULTIPLY: its factor is an attribute.
    facts("Scale", Cost.POINTWISE, numbers=("scale",)),
    facts("ScaledTanh", Cost.POINTWISE, is_bounded=True, numbers=("alpha", "beta"), transfer=Transfer.TANH),
    facts(
        "SimplifiedLayerNormalization",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
    ),
)
