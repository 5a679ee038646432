"""Activations that one target's kernels take in, whatever the kernel computes. Composites are named as found."""

OPENVINO = frozenset(
    {"Abs", "Clip", "Elu", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Round"}
    | {"Sigmoid", "Softplus", "Sqrt", "Tanh", "gelu-erf", "gelu-tanh", "silu"}
)
