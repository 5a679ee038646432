"""What operators do to a channel as a whole, and how those before them lay their channels out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mezzo.onnx.protos.attributes import find
from mezzo.onnx.protos.rounding import Array

_EPSILON = 1e-5  # where the attribute is left out
# Where an attribute says that statistics are the batch's, or are kept per element: no number per channel does the same.
_STOPS = {"training_mode": True, "spatial": False}
# Operators that move or scale by a constant.
STEPS = ("Add", "Sub", "Mul", "Div")


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


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """Where the channels of a weight are: how many, and the channel of every `run` elements that follow each other.

    In what is made of it `behind` axes stand behind theirs; `rank` is the number of all, None where that is not known.
    """

    count: int
    order: Array
    run: int
    behind: int = 0
    rank: int | None = None

    def spread(self, numbers: Array) -> Array | None:
        """A constant as one number per channel; None where broadcasting makes more of it, or of what it meets."""
        if numbers.ndim > (1 if self.rank is None else self.rank):
            return None
        sizes = (1,) * (self.behind + 1 - numbers.ndim) + numbers.shape
        at = len(sizes) - 1 - self.behind
        if sizes[at] not in (1, self.count) or any(size != 1 for axis, size in enumerate(sizes) if axis != at):
            return None
        return np.broadcast_to(numbers.astype(np.float64).reshape(-1), (self.count,))


def affine_of_step(step: onnx.NodeProto, numbers: Array, channels: Channels, *, is_first: bool) -> Affine | None:
    """What an operator does that reads channels and a constant; None where that is no affine map, or not finite.

    `is_first`: the channels are the first operand.
    """
    held = channels.spread(numbers)
    if held is None:
        return None
    ones, zeros = np.ones(channels.count), np.zeros(channels.count)
    with np.errstate(all="ignore"):
        match step.op_type, is_first:
            case "Add", _:
                affine = Affine(ones, held)
            case "Sub", True:
                affine = Affine(ones, -held)
            case "Sub", False:
                affine = Affine(-ones, held)
            case "Mul", _:
                affine = Affine(held, zeros)
            case "Div", True:
                affine = Affine(1.0 / held, zeros)
            case _:
                return None
    return affine if np.isfinite(affine.factor).all() and np.isfinite(affine.offset).all() else None


def channels_of(node: onnx.NodeProto, shape: Sequence[int]) -> Channels | None:
    """Where the channels that an operator makes are in its weight; None where it has no such weight."""
    if 0 in shape or len(shape) < 2 or (len(shape) != 2) is (node.op_type in ("Gemm", "MatMul")):
        return None
    if node.op_type == "Conv":
        order, run = np.arange(shape[0]), math.prod(shape[1:])
        return Channels(count=shape[0], order=order, run=run, behind=len(shape) - 2, rank=len(shape))
    if node.op_type == "ConvTranspose":
        group = find(node, "group")
        groups = 1 if group is None else group.i
        if groups < 1 or shape[0] % groups:
            return None
        # Every input channel has the filters of its own group's outputs.
        owners = np.zeros(1, np.int64) if groups == 1 else np.repeat(np.arange(groups), shape[0] // groups)
        order = owners[:, None] * shape[1] + np.arange(shape[1])
        return Channels(
            count=groups * shape[1],
            order=order.reshape(-1),
            run=math.prod(shape[2:]),
            behind=len(shape) - 2,
            rank=len(shape),
        )
    rank = 2 if node.op_type == "Gemm" else None
    transposed = find(node, "transB")
    if transposed is not None and transposed.i:
        return Channels(count=shape[0], order=np.arange(shape[0]), run=shape[1], rank=rank)
    return Channels(count=shape[1], order=np.arange(shape[1]), run=1, rank=rank)
