"""Activation functions. Exponentials only have negative arguments, so they stay in 0 to 1."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional; softplus and mish take log1p(exp(x)) below a"
    " threshold alone"
)

FACTS: tuple[OpFacts, ...] = (
    # The two are one operator, before and after autograd has looked at it.
    facts("_prelu_kernel", Cost.POINTWISE, like="PRelu", transfer=Transfer.BENT),
    facts("celu", Cost.POINTWISE, like="Celu", numbers=("alpha",), transfer=Transfer.BENT),
    facts("elu", Cost.POINTWISE, like="Elu", numbers=("alpha",), transfer=Transfer.BENT),
    facts("gelu", Cost.POINTWISE, like="Gelu", transfer=Transfer.GELU),
    # It halves an axis: one half gates the other.
    facts("glu", Cost.POINTWISE, like="SwiGLU"),
    # It jumps at its threshold, and softshrink does not.
    facts(
        "hardshrink",
        Cost.POINTWISE,
        Risk.STEP,
        like="Shrink",
        numbers=("lambd",),
        transfer=Transfer.BENT,
    ),
    facts(
        "hardsigmoid",
        Cost.POINTWISE,
        like="HardSigmoid",
        is_bounded=True,
        transfer=Transfer.HARD_SIGMOID,
    ),
    facts("hardswish", Cost.POINTWISE, like="HardSwish", transfer=Transfer.SILU),
    # Its bounds are numbers of its own, and those of relu6 are 0 and 6.
    facts(
        "hardtanh",
        Cost.POINTWISE,
        like="Clip",
        function=Function.CLIP,
        is_bounded=True,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    facts(
        "leaky_relu", Cost.POINTWISE, like="LeakyRelu", numbers=("alpha",), transfer=Transfer.BENT
    ),
    facts("log_sigmoid", Cost.POINTWISE, like="Softplus"),
    facts("log_sigmoid_forward", Cost.POINTWISE, like="Softplus"),
    facts("mish", Cost.POINTWISE, like="Mish", transfer=Transfer.SILU),
    facts("prelu", Cost.POINTWISE, like="PRelu", transfer=Transfer.BENT),
    facts("relu", Cost.POINTWISE, like="Relu", transfer=Transfer.RELU),
    facts(
        "relu6",
        Cost.POINTWISE,
        like="Clip",
        function=Function.CLIP,
        is_bounded=True,
        numbers=(
            "max",
            "min",
        ),
        transfer=Transfer.CLIP,
    ),
    # In training the slope below zero is drawn for each number.
    facts("rrelu", Cost.POINTWISE, Risk.RANDOM, like="RandomUniformLike"),
    facts("rrelu_with_noise_functional", Cost.POINTWISE, Risk.RANDOM, like="RandomUniformLike"),
    facts("selu", Cost.POINTWISE, like="Selu", transfer=Transfer.BENT),
    facts(
        "sigmoid",
        Cost.POINTWISE,
        like="Sigmoid",
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.SIGMOID,
    ),
    facts("silu", Cost.POINTWISE, like="Swish", transfer=Transfer.SILU),
    facts("softplus", Cost.POINTWISE, like="Softplus", transfer=Transfer.SOFTPLUS),
    facts("softshrink", Cost.POINTWISE, like="Shrink", numbers=("lambd",), transfer=Transfer.BENT),
    facts(
        "special_expit",
        Cost.POINTWISE,
        like="Sigmoid",
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.SIGMOID,
    ),
    facts(
        "tanh",
        Cost.POINTWISE,
        like="Tanh",
        function=Function.SATURATE,
        is_bounded=True,
        transfer=Transfer.TANH,
    ),
    facts("threshold", Cost.POINTWISE, Risk.STEP, like="ThresholdedRelu", numbers=("value",)),
)
