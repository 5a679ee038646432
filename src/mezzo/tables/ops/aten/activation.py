"""Activation functions. Exponentials only have negative arguments, so they stay in 0 to 1."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional; softplus and mish take log1p(exp(x)) below a"
    " threshold alone"
)

FACTS: tuple[OpFacts, ...] = (
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
        scaling="x -> x; min x; max x",
    ),
    facts("log_sigmoid", Cost.POINTWISE, like="Softplus"),
    facts("log_sigmoid_forward", Cost.POINTWISE, like="Softplus"),
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
    facts("silu", Cost.POINTWISE, like="Swish", transfer=Transfer.SILU),
    facts("softshrink", Cost.POINTWISE, like="Shrink", numbers=("lambd",), transfer=Transfer.BENT),
    facts("threshold", Cost.POINTWISE, Risk.STEP, like="ThresholdedRelu", numbers=("value",)),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    # The same operator as prelu, after and before autograd has looked at it.
    "_prelu_kernel": "PRelu",
    "celu": "Celu",
    "elu": "Elu",
    "gelu": "Gelu",
    # It halves an axis: one half gates the other.
    "glu": "SwiGLU",
    "hardswish": "HardSwish",
    "leaky_relu": "LeakyRelu",
    "mish": "Mish",
    "prelu": "PRelu",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "special_expit": "Sigmoid",
    "tanh": "Tanh",
}
