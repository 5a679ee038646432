"""Activations that OpenVINO fuses into any kernel; composites are named as in `composites`."""

OPENVINO = frozenset(
    {
        "Abs",
        "Clip",
        "Elu",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "PRelu",
        "Relu",
        "Round",
    }
    | {"Sigmoid", "Softplus", "Sqrt", "Tanh", "gelu-erf", "gelu-tanh", "silu"}
)
