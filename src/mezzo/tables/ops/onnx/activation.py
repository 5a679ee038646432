"""Activation functions. Exponentials only have negative arguments, so they stay in 0 to 1."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; the softplus in Softplus and Mish is taken"
    " as max(x, 0) + log1p(exp(-|x|)), as runtimes compute it"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Celu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT),
    facts("Elu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT),
    facts("Gelu", Cost.POINTWISE, transfer=Transfer.GELU),
    facts(
        "HardSigmoid",
        Cost.POINTWISE,
        is_bounded=True,
        numbers=("alpha", "beta"),
        transfer=Transfer.HARD_SIGMOID,
        scaling="x -> 0; alpha -x",
    ),
    facts("HardSwish", Cost.POINTWISE, transfer=Transfer.SILU),
    facts(
        "LeakyRelu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT, scaling="x -> x"
    ),
    facts("Mish", Cost.POINTWISE, transfer=Transfer.SILU),
    facts("PRelu", Cost.POINTWISE, transfer=Transfer.BENT, scaling="x, 0 -> x"),
    facts("Relu", Cost.POINTWISE, transfer=Transfer.RELU, scaling="x -> x"),
    facts("Selu", Cost.POINTWISE, numbers=("alpha", "gamma"), transfer=Transfer.BENT),
    # Shrink and ThresholdedRelu jump at their threshold.
    facts("Shrink", Cost.POINTWISE, Risk.STEP, numbers=("bias", "lambd"), transfer=Transfer.BENT),
    facts(
        "Sigmoid",
        Cost.POINTWISE,
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.SIGMOID,
    ),
    facts("Softplus", Cost.POINTWISE, transfer=Transfer.SOFTPLUS),
    facts("Softsign", Cost.POINTWISE, is_bounded=True, transfer=Transfer.TANH),
    facts("SwiGLU", Cost.POINTWISE),
    facts("Swish", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.SILU),
    facts(
        "Tanh", Cost.POINTWISE, function=Function.SATURATE, is_bounded=True, transfer=Transfer.TANH
    ),
    facts(
        "ThresholdedRelu",
        Cost.POINTWISE,
        Risk.STEP,
        numbers=("alpha",),
        transfer=Transfer.RELU,
        scaling="x -> x; alpha x",
    ),
)
