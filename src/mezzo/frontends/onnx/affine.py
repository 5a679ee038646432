"""What BatchNormalization does to a channel, and how operators before it lay their channels out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mezzo.frontends.onnx.attributes import find
from mezzo.frontends.onnx.rounding import Array

_EPSILON = 1e-5  # where the attribute is left out
# Where an attribute says that statistics are the batch's, or are kept per element: no number per channel does the same.
_STOPS = {"training_mode": True, "spatial": False}


@dataclass(frozen=True, eq=False)
class Affine:
    """What becomes of a channel, in FP64: x * factor + offset."""

    factor: Array
    offset: Array

    def then(self, other: "Affine") -> "Affine":
        return Affine(self.factor * other.factor, self.offset * other.factor + other.offset)


def affine_of(norm: onnx.NodeProto, constant_of: Callable[[str], Array | None]) -> Affine | None:
    """What a BatchNormalization does; None where that depends on its data, or is no finite number."""
    if any(norm.output[1:]) or any((a := find(norm, name)) and bool(a.i) is stop for name, stop in _STOPS.items()):
        return None
    held = [numbers for name in norm.input[1:5] if (numbers := constant_of(name)) is not None]
    if len(held) < 4 or any(numbers.ndim != 1 or numbers.shape != held[0].shape for numbers in held):
        return None
    scale, bias, mean, variance = (numbers.astype(np.float64) for numbers in held)
    epsilon = find(norm, "epsilon")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + (_EPSILON if epsilon is None else epsilon.f))
        offset = bias - mean * factor
    is_finite = np.isfinite(factor).all() and np.isfinite(offset).all()
    return Affine(factor, offset) if is_finite else None


@dataclass(frozen=True, eq=False)
class Channels:
    """Where the channels of a weight are: how many, and the channel of every `run` elements that follow each other."""

    count: int
    order: Array
    run: int


def channels_of(node: onnx.NodeProto, shape: Sequence[int]) -> Channels | None:
    """Where the channels that an operator makes are in its weight; None where it has no such weight."""
    if 0 in shape or len(shape) < 2 or (len(shape) != 2) is (node.op_type in ("Gemm", "MatMul")):
        return None
    if node.op_type == "Conv":
        return Channels(shape[0], np.arange(shape[0]), math.prod(shape[1:]))
    if node.op_type == "ConvTranspose":
        group = find(node, "group")
        groups = 1 if group is None else group.i
        if groups < 1 or shape[0] % groups:
            return None
        # Every input channel has the filters of its own group's outputs.
        owners = np.zeros(1, np.int64) if groups == 1 else np.repeat(np.arange(groups), shape[0] // groups)
        order = owners[:, None] * shape[1] + np.arange(shape[1])
        return Channels(groups * shape[1], order.reshape(-1), math.prod(shape[2:]))
    transposed = find(node, "transB")
    if transposed is not None and transposed.i:
        return Channels(shape[0], np.arange(shape[0]), shape[1])
    return Channels(shape[1], np.arange(shape[1]), 1)
