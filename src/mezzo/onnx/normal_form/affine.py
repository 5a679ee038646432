"""Per-channel affine maps of normalization and arithmetic; channel layout of weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mezzo.onnx.protos.attributes import find
from mezzo.onnx.protos.rounding import Array

_EPSILON = 1e-5  # the attribute's default
# Attribute values for batch statistics or statistics per element, which are no per-channel map.
_STOPS = {"training_mode": True, "spatial": False}
# Operators that shift or scale by a constant.
STEPS = ("Add", "Sub", "Mul", "Div")


@dataclass(frozen=True, eq=False)
class Affine:
    """A per-channel affine map in FP64: x * factor + offset."""

    factor: Array
    offset: Array

    def then(self, other: "Affine") -> "Affine":
        return Affine(self.factor * other.factor, self.offset * other.factor + other.offset)


def affine_of(norm: onnx.NodeProto, constant_of: Callable[[str], Array | None]) -> Affine | None:
    """The map of a BatchNormalization; None if it depends on data, or is not finite."""
    if any(norm.output[1:]) or any(
        (a := find(norm, name)) and bool(a.i) is stop for name, stop in _STOPS.items()
    ):
        return None
    parameters = [numbers for name in norm.input[1:5] if (numbers := constant_of(name)) is not None]
    if len(parameters) < 4 or any(
        numbers.ndim != 1 or numbers.shape != parameters[0].shape for numbers in parameters
    ):
        return None
    scale, bias, mean, variance = (numbers.astype(np.float64) for numbers in parameters)
    epsilon = find(norm, "epsilon")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + (_EPSILON if epsilon is None else epsilon.f))
        offset = bias - mean * factor
    is_finite = np.isfinite(factor).all() and np.isfinite(offset).all()
    return Affine(factor, offset) if is_finite else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """The output channels of a weight: their number, and the channel of each run of `run` elements.

    In the operator's output, `behind` axes follow the channel axis; `rank` is its rank, if known.
    """

    count: int
    order: Array
    run: int
    behind: int = 0
    rank: int | None = None

    def spread(self, numbers: Array) -> Array | None:
        """A constant as one number per channel; None if it varies or broadcasts otherwise."""
        if numbers.ndim > (1 if self.rank is None else self.rank):
            return None
        sizes = (1,) * (self.behind + 1 - numbers.ndim) + numbers.shape
        channel_axis = len(sizes) - 1 - self.behind
        if sizes[channel_axis] not in (1, self.count) or any(
            size != 1 for axis, size in enumerate(sizes) if axis != channel_axis
        ):
            return None
        return np.broadcast_to(numbers.astype(np.float64).reshape(-1), (self.count,))


def affine_of_step(
    step: onnx.NodeProto, numbers: Array, channels: Channels, *, is_first: bool
) -> Affine | None:
    """The map of an operator with a constant operand; None if it is not affine, or not finite.

    `is_first`: the constant is the second operand, the channels are the first.
    """
    constant = channels.spread(numbers)
    if constant is None:
        return None
    ones, zeros = np.ones(channels.count), np.zeros(channels.count)
    with np.errstate(all="ignore"):
        match step.op_type, is_first:
            case "Add", _:
                affine = Affine(ones, constant)
            case "Sub", True:
                affine = Affine(ones, -constant)
            case "Sub", False:
                affine = Affine(-ones, constant)
            case "Mul", _:
                affine = Affine(constant, zeros)
            case "Div", True:
                affine = Affine(1.0 / constant, zeros)
            case _:
                return None
    return affine if np.isfinite(affine.factor).all() and np.isfinite(affine.offset).all() else None


def channels_of(node: onnx.NodeProto, shape: Sequence[int]) -> Channels | None:
    """The layout of an operator's output channels in its weight; None if the weight has none."""
    if 0 in shape or len(shape) < 2 or (len(shape) != 2) is (node.op_type in ("Gemm", "MatMul")):
        return None
    if node.op_type == "Conv":
        order, run = np.arange(shape[0]), math.prod(shape[1:])
        return Channels(
            count=shape[0], order=order, run=run, behind=len(shape) - 2, rank=len(shape)
        )
    if node.op_type == "ConvTranspose":
        group = find(node, "group")
        groups = 1 if group is None else group.i
        if groups < 1 or shape[0] % groups:
            return None
        # Weight [C, M/groups, ...]: each input channel holds the filters of its group's outputs.
        owners = (
            np.zeros(1, np.int64)
            if groups == 1
            else np.repeat(np.arange(groups), shape[0] // groups)
        )
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
