"""Activation functions. Those with an exponential take it of negative numbers only, so it stays within 0 and 1."""

from mezzo.facts import Cost, OpFacts, Risk, facts

SOURCE = (
    "ONNX 1.23 operator documentation, opsets 1 to 28; the softplus in Softplus and Mish is taken as "
    "max(x, 0) + log1p(exp(-|x|)), as runtimes compute it"
)

FACTS: tuple[OpFacts, ...] = (
    facts("Celu", Cost.POINTWISE, numbers=("alpha",)),
    facts("Elu", Cost.POINTWISE, numbers=("alpha",)),
    facts("Gelu", Cost.POINTWISE),
    facts("HardSigmoid", Cost.POINTWISE, is_bounded=True, numbers=("alpha", "beta")),
    facts("HardSwish", Cost.POINTWISE),
    facts("LeakyRelu", Cost.POINTWISE, numbers=("alpha",)),
    facts("Mish", Cost.POINTWISE),
    facts("PRelu", Cost.POINTWISE),
    facts("Relu", Cost.POINTWISE),
    facts("Selu", Cost.POINTWISE, numbers=("alpha", "gamma")),
    # Shrink and ThresholdedRelu jump at their threshold.
    facts("Shrink", Cost.POINTWISE, Risk.STEP, numbers=("bias", "lambd")),
    facts("Sigmoid", Cost.POINTWISE, is_bounded=True),
    facts("Softplus", Cost.POINTWISE),
    facts("Softsign", Cost.POINTWISE, is_bounded=True),
    facts("SwiGLU", Cost.POINTWISE),
    facts("Swish", Cost.POINTWISE, numbers=("alpha",)),
    facts("Tanh", Cost.POINTWISE, is_bounded=True),
    facts("ThresholdedRelu", Cost.POINTWISE, Risk.STEP, numbers=("alpha",)),
)
