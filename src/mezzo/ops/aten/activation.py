"""Activation functions. Those with an exponential take it of negative numbers only, so it stays within 0 and 1."""

from mezzo.core.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 documentation, torch.nn.functional; softplus and mish take log1p(exp(x)) below a threshold alone"

FACTS: tuple[OpFacts, ...] = (
    # The two are one operator, before and after autograd has looked at it.
    facts("_prelu_kernel", Cost.POINTWISE, transfer=Transfer.BENT),
    facts("celu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT),
    facts("elu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT),
    facts("gelu", Cost.POINTWISE, transfer=Transfer.GELU),
    # It halves an axis: one half gates the other.
    facts("glu", Cost.POINTWISE),
    # It jumps at its threshold, and softshrink does not.
    facts("hardshrink", Cost.POINTWISE, Risk.STEP, numbers=("lambd",), transfer=Transfer.BENT),
    facts("hardsigmoid", Cost.POINTWISE, is_bounded=True, transfer=Transfer.HARD_SIGMOID),
    facts("hardswish", Cost.POINTWISE, transfer=Transfer.SILU),
    # Its bounds are numbers of its own, and those of relu6 are 0 and 6.
    facts(
        "hardtanh",
        Cost.POINTWISE,
        function=Function.CLIP,
        is_bounded=True,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    facts("leaky_relu", Cost.POINTWISE, numbers=("alpha",), transfer=Transfer.BENT),
    facts("log_sigmoid", Cost.POINTWISE),
    facts("log_sigmoid_forward", Cost.POINTWISE),
    facts("mish", Cost.POINTWISE, transfer=Transfer.SILU),
    facts("prelu", Cost.POINTWISE, transfer=Transfer.BENT),
    facts("relu", Cost.POINTWISE, transfer=Transfer.RELU),
    facts(
        "relu6",
        Cost.POINTWISE,
        function=Function.CLIP,
        is_bounded=True,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    # In training the slope below zero is drawn for each number.
    facts("rrelu", Cost.POINTWISE, Risk.RANDOM),
    facts("rrelu_with_noise_functional", Cost.POINTWISE, Risk.RANDOM),
    facts("selu", Cost.POINTWISE, transfer=Transfer.BENT),
    facts("sigmoid", Cost.POINTWISE, function=Function.SATURATE, is_bounded=True, transfer=Transfer.SIGMOID),
    facts("silu", Cost.POINTWISE, transfer=Transfer.SILU),
    facts("softplus", Cost.POINTWISE, transfer=Transfer.SOFTPLUS),
    facts("softshrink", Cost.POINTWISE, numbers=("lambd",), transfer=Transfer.BENT),
    facts("special_expit", Cost.POINTWISE, function=Function.SATURATE, is_bounded=True, transfer=Transfer.SIGMOID),
    facts("tanh", Cost.POINTWISE, function=Function.SATURATE, is_bounded=True, transfer=Transfer.TANH),
    facts("threshold", Cost.POINTWISE, Risk.STEP, numbers=("value",)),
)
