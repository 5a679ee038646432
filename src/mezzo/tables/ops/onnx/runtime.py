"""Operators that ONNX Runtime registers in the default domain and ONNX does not have.

Its optimizer emits SimplifiedLayerNormalization and the device copies; names of TensorRT's plug-ins
end in _TRT; the others were experimental in ONNX until 1.5.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX Runtime 1.32 operator schemas of the default domain; ONNX 1.4 documentation of the"
    " experimental operators; TensorRT 10 open source plug-ins"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Affine", Cost.POINTWISE, numbers=("alpha", "beta")),
    facts("Crop", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    # It adds products of queries and keys with what it gathers from two others, and scales.
    facts("DisentangledAttention_TRT", Cost.POINTWISE),
    facts("DynamicSlice", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("EfficientNMS_TRT", Cost.OTHER, Risk.STEP, Risk.POSITION),
    facts("GRUUnit", Cost.RECURRENT, Risk.RECURSION),
    facts("GivenTensorFill", Cost.GENERATOR),
    facts("ImageScaler", Cost.POINTWISE),
    facts(
        "MemcpyFromHost",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts(
        "MemcpyToHost",
        Cost.MOVEMENT,
        function=Function.IDENTITY,
        keeps_values=True,
        transfer=Transfer.KEEP,
    ),
    facts("MultilevelCropAndResize_TRT", Cost.MOVEMENT, Risk.POSITION),
    facts(
        "ParametricSoftplus", Cost.POINTWISE, numbers=("alpha", "beta"), transfer=Transfer.SOFTPLUS
    ),
    facts("PyramidROIAlign_TRT", Cost.MOVEMENT, Risk.POSITION),
    # Not Function.MULTIPLY: its factor is an attribute.
    facts("Scale", Cost.POINTWISE, numbers=("scale",)),
    facts(
        "ScaledTanh",
        Cost.POINTWISE,
        is_bounded=True,
        numbers=("alpha", "beta"),
        transfer=Transfer.TANH,
    ),
    # As of RMSNormalization, its squares are FP32.
    facts(
        "SimplifiedLayerNormalization",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
        scaling="x, y -> y; epsilon 2x; unless epsilon None",
    ),
)
