"""What stands behind an operator in the models of a probe: operators and composites, by the names that rows have."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Step: TypeAlias = "tuple[str, list[str | Array], str, dict[str, Any]]"
# The nodes behind a value, each with operator, inputs, output and attributes. Takes the name of the value, that of what
# the last makes, and the shape of one number per channel.
Follower = Callable[[str, str, tuple[int, ...]], list[Step]]


def _alone(op: str, *constants: Any, **attributes: Any) -> Follower:
    arrays = [np.array(one, np.float32) for one in constants]
    return lambda read, made, _channels: [(op, [read, *arrays], made, attributes)]


def _by_channel(op: str) -> Follower:
    """With a constant of one number per channel."""

    def steps(read: str, made: str, channels: tuple[int, ...]) -> list[Step]:
        return [(op, [read, np.linspace(0.3, 1.3, channels[0], dtype=np.float32).reshape(channels)], made, {})]

    return steps


def _normalized(read: str, made: str, channels: tuple[int, ...]) -> list[Step]:
    numbers = [np.linspace(low, low + 0.7, channels[0], dtype=np.float32) for low in (0.6, 0.1, 0.2, 0.5)]
    return [("BatchNormalization", [read, *numbers], made, {})]


def _gelu_erf(read: str, made: str, _channels: tuple[int, ...]) -> list[Step]:
    half, one, root = (np.float32(number) for number in (0.5, 1, 0.5**0.5))
    return [
        ("Mul", [read, np.array(root)], f"{made}.scaled", {}),
        ("Erf", [f"{made}.scaled"], f"{made}.erf", {}),
        ("Add", [f"{made}.erf", np.array(one)], f"{made}.above", {}),
        ("Mul", [read, f"{made}.above"], f"{made}.product", {}),
        ("Mul", [f"{made}.product", np.array(half)], made, {}),
    ]


def _gelu_tanh(read: str, made: str, _channels: tuple[int, ...]) -> list[Step]:
    return [
        ("Pow", [read, np.array(3, np.float32)], f"{made}.cube", {}),
        ("Mul", [f"{made}.cube", np.array(0.044715, np.float32)], f"{made}.bent", {}),
        ("Add", [read, f"{made}.bent"], f"{made}.sum", {}),
        ("Mul", [f"{made}.sum", np.array((2 / np.pi) ** 0.5, np.float32)], f"{made}.scaled", {}),
        ("Tanh", [f"{made}.scaled"], f"{made}.tanh", {}),
        ("Add", [f"{made}.tanh", np.array(1, np.float32)], f"{made}.above", {}),
        ("Mul", [read, f"{made}.above"], f"{made}.product", {}),
        ("Mul", [f"{made}.product", np.array(0.5, np.float32)], made, {}),
    ]


def _silu(read: str, made: str, _channels: tuple[int, ...]) -> list[Step]:
    return [("Sigmoid", [read], f"{made}.gate", {}), ("Mul", [read, f"{made}.gate"], made, {})]


FOLLOWERS: Mapping[str, Follower] = MappingProxyType(
    {
        **{op: _alone(op) for op in ("Abs", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu")},
        **{op: _alone(op) for op in ("Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Tanh")},
        **{op: _by_channel(op) for op in ("Add", "Div", "Mul", "PRelu", "Sub")},
        "BatchNormalization": _normalized,
        "Clip": _alone("Clip", 0, 6),
        "gelu-erf": _gelu_erf,
        "gelu-tanh": _gelu_tanh,
        "silu": _silu,
    }
)
