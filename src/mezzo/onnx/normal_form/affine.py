"""Per-channel affine maps of normalization and arithmetic; channel layout of weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from mezzo.onnx.protos.attributes import read_float, read_int
from mezzo.onnx.protos.rounding import Array

_EPSILON = 1e-5  # the attribute's default
# Operators that shift or scale by a constant.
STEPS = ("Add", "Sub", "Mul", "Div")


@dataclass(frozen=True, eq=False)
class Affine:
    """A per-channel affine map in FP64: x * factor + offset."""

    factor: Array
    offset: Array

    def then(self, other: "Affine") -> "Affine":
        return Affine(self.factor * other.factor, self.offset * other.factor + other.offset)

    def if_finite(self) -> "Affine | None":
        is_finite = np.isfinite(self.factor).all() and np.isfinite(self.offset).all()
        return self if is_finite else None


def affine_of(norm: onnx.NodeProto, constant_of: Callable[[str], Array | None]) -> Affine | None:
    """The map of a BatchNormalization; None if it depends on data, or is not finite."""
    # Batch statistics, or statistics per element, are no per-channel map.
    is_fixed = not read_int(norm, "training_mode", 0) and read_int(norm, "spatial", 1)
    if any(norm.output[1:]) or not is_fixed:
        return None
    parameters = [numbers for name in norm.input[1:5] if (numbers := constant_of(name)) is not None]
    if len(parameters) < 4 or any(
        numbers.ndim != 1 or numbers.shape != parameters[0].shape for numbers in parameters
    ):
        return None
    scale, bias, mean, variance = (numbers.astype(np.float64) for numbers in parameters)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + read_float(norm, "epsilon", _EPSILON))
        offset = bias - mean * factor
    return Affine(factor, offset).if_finite()


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
    return affine.if_finite()


def channels_of(node: onnx.NodeProto, shape: Sequence[int]) -> Channels | None:
    """The layout of an operator's output channels in its weight; None if the weight has none."""
    if 0 in shape or len(shape) < 2 or (len(shape) != 2) is (node.op_type in ("Gemm", "MatMul")):
        return None
    if node.op_type == "Conv":
        return Channels(
            count=shape[0],
            order=np.arange(shape[0]),
            run=math.prod(shape[1:]),
            behind=len(shape) - 2,
            rank=len(shape),
        )
    if node.op_type == "ConvTranspose":
        groups = read_int(node, "group", 1)
        if groups < 1 or shape[0] % groups:
            return None
        # Weight [C, M/groups, ...]: each input channel holds the filters of its group's outputs.
        rows_per_group = 1 if groups == 1 else shape[0] // groups
        owners = np.repeat(np.arange(groups), rows_per_group)
        order = owners[:, None] * shape[1] + np.arange(shape[1])
        return Channels(
            count=groups * shape[1],
            order=order.reshape(-1),
            run=math.prod(shape[2:]),
            behind=len(shape) - 2,
            rank=len(shape),
        )
    rank = 2 if node.op_type == "Gemm" else None
    if read_int(node, "transB", 0):
        return Channels(count=shape[0], order=np.arange(shape[0]), run=shape[1], rank=rank)
    return Channels(count=shape[1], order=np.arange(shape[1]), run=1, rank=rank)
