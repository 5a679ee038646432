"""Operators and composites (GELU, SiLU) that follow an operator in test models of kernel fusion."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Step: TypeAlias = "tuple[str, list[str | Array], str, dict[str, Any]]"
# Builds the nodes after a value (operator, inputs, output, attributes) from the value's name, the
# final output's name, and the shape of a constant per channel.
Follower = Callable[[str, str, tuple[int, ...]], list[Step]]


def _alone(op: str, *constants: Any, **attributes: Any) -> Follower:
    arrays = [np.array(constant, np.float32) for constant in constants]
    return lambda source, result, _channels: [(op, [source, *arrays], result, attributes)]


def _by_channel(op: str) -> Follower:
    """An operator with a constant that has one element per channel."""

    def steps(source: str, result: str, channels: tuple[int, ...]) -> list[Step]:
        return [(op, [source, np.linspace(0.3, 1.3, channels[0], dtype=np.float32).reshape(channels)], result, {})]

    return steps


def _normalized(source: str, result: str, channels: tuple[int, ...]) -> list[Step]:
    numbers = [np.linspace(low, low + 0.7, channels[0], dtype=np.float32) for low in (0.6, 0.1, 0.2, 0.5)]
    return [("BatchNormalization", [source, *numbers], result, {})]


def _gelu_erf(source: str, result: str, _channels: tuple[int, ...]) -> list[Step]:
    half, unit, root = (np.float32(number) for number in (0.5, 1, 0.5**0.5))
    return [
        ("Mul", [source, np.array(root)], f"{result}.scaled", {}),
        ("Erf", [f"{result}.scaled"], f"{result}.erf", {}),
        ("Add", [f"{result}.erf", np.array(unit)], f"{result}.above", {}),
        ("Mul", [source, f"{result}.above"], f"{result}.product", {}),
        ("Mul", [f"{result}.product", np.array(half)], result, {}),
    ]


def _gelu_tanh(source: str, result: str, _channels: tuple[int, ...]) -> list[Step]:
    return [
        ("Pow", [source, np.array(3, np.float32)], f"{result}.cube", {}),
        ("Mul", [f"{result}.cube", np.array(0.044715, np.float32)], f"{result}.bent", {}),
        ("Add", [source, f"{result}.bent"], f"{result}.sum", {}),
        ("Mul", [f"{result}.sum", np.array((2 / np.pi) ** 0.5, np.float32)], f"{result}.scaled", {}),
        ("Tanh", [f"{result}.scaled"], f"{result}.tanh", {}),
        ("Add", [f"{result}.tanh", np.array(1, np.float32)], f"{result}.above", {}),
        ("Mul", [source, f"{result}.above"], f"{result}.product", {}),
        ("Mul", [f"{result}.product", np.array(0.5, np.float32)], result, {}),
    ]


def _silu(source: str, result: str, _channels: tuple[int, ...]) -> list[Step]:
    return [("Sigmoid", [source], f"{result}.gate", {}), ("Mul", [source, f"{result}.gate"], result, {})]


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
