"""Quantize and dequantize weight payloads in chunks, bit for bit as ONNX's QuantizeLinear does."""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mezzo.common.errors import ContractError
from mezzo.formats.dtypes import STORES, DType, integer_span
from mezzo.formats.quantization import Quantization
from mezzo.onnx.files.factors import spread
from mezzo.onnx.protos.rounding import STORAGE, Array


@dataclass(frozen=True, slots=True)
class QuantizedPayload:
    """Quantization parameters for a flat payload.

    `run`: number of consecutive elements that share a scale; 0 if all do.
    """

    how: Quantization
    run: int

    def quantize(self, values: Array, start: int = 0) -> Array:
        """Quantize a flat chunk that begins at element `start`: round half to even and saturate.

        NaN becomes the lowest integer, as in ONNX Runtime and the reference evaluator; float
        formats keep NaN.
        """
        how, (low, high) = self.how, self.how.span
        # FP32 cannot represent the largest INT32, so biases saturate in FP64.
        zero_type = np.float64 if how.dtype is DType.INT32 else np.float32
        scales, zeros = self._parameters(zero_type, start, values.size)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            steps: Array = values.astype(np.float32) / scales
            if integer_span(how.dtype) is None:
                return np.clip(steps, low, high, out=steps).astype(STORAGE[how.dtype])
            others = self._others(steps, start) if how.turned else None
            steps = np.rint(steps, out=steps).astype(zeros.dtype, copy=False)
            if others is not None:
                steps += others
            np.maximum(steps, low - zeros, out=steps)
            np.minimum(steps, high - zeros, out=steps)
            if np.isnan(np.max(steps, initial=0)):
                steps = np.where(np.isnan(steps), low - zeros, steps)
        steps += zeros
        return steps.astype(STORAGE[how.dtype])

    def dequantize(self, steps: Array, start: int = 0) -> Array:
        """Dequantize a flat chunk that begins at element `start`, to FP32."""
        scales, zeros = self._parameters(np.float64, start, steps.size)
        numbers: Array = (steps.astype(np.float64) - zeros).astype(np.float32) * scales
        return numbers

    def _others(self, steps: Array, start: int) -> Array:
        """Offset (-1, 0, 1) from the nearest to the other neighbour, if flagged in `turned`."""
        first, end = start // 8, -(-(start + steps.size) // 8)
        bits = np.unpackbits(np.frombuffer(self.how.turned, np.uint8)[first:end])[
            start - 8 * first :
        ][: steps.size]
        return np.where(bits, np.where(steps >= np.rint(steps), 1, -1), 0).astype(steps.dtype)

    def _parameters(
        self, zero_type: type[np.float32 | np.float64], start: int, count: int
    ) -> tuple[Array, Array]:
        """The scale and zero point of each element; a single one if all have the same."""
        scales: Array = np.array(self.how.scales, np.float32)
        zeros: Array = np.array(self.how.zero_points, zero_type)
        if self.how.axis is None:
            return scales, zeros
        has_zeros = zeros.any()  # weights have none
        return (
            spread(scales, self.run, start, count),
            spread(zeros, self.run, start, count) if has_zeros else zeros[:1],
        )

    def to_text(self) -> str:
        """Serialize the parameters for a marker; `read_payload` parses them."""
        how = self.how
        turned = base64.b64encode(how.turned).decode()
        return json.dumps(
            [how.dtype.value, how.axis, how.scales, how.zero_points, self.run, turned]
        )


def payload_of(how: Quantization, shape: Sequence[int | None], name: str) -> QuantizedPayload:
    """Parameters for a tensor of this shape (None: unknown length); errors show `name`.

    Raises:
        ContractError: the parameters do not fit the tensor.
    """
    where = f"value {name!r} cannot be quantized"
    if how.dtype not in STORES:
        valid = ", ".join(map(str, STORES))
        raise ContractError(
            f"{where}: {how.dtype} holds no quantized numbers; choose one of {valid}"
        )
    low, high = how.span
    if not all(low <= zero <= high for zero in how.zero_points):
        raise ContractError(
            f"{where}: its zero points are not all from {low} to {high}, what {how.dtype} holds"
        )
    if (how.dtype is DType.INT32 or integer_span(how.dtype) is None) and not how.is_symmetric:
        raise ContractError(
            f"{where}: {how.dtype} is dequantized without a zero point; let all of them be 0"
        )
    _check_turned(how, shape, where)
    if how.axis is None:
        return QuantizedPayload(how, 0)
    if not 0 <= how.axis < len(shape):
        raise ContractError(
            f"{where}: it has no axis {how.axis}, as it has {len(shape)}; name one, or take one"
            " scale"
        )
    size = shape[how.axis]
    if size is not None and size != len(how.scales):
        raise ContractError(
            f"{where}: {len(how.scales)} scales do not fit its axis {how.axis} of {size}; take one"
            " for each slice, or one for all"
        )
    lengths = [1 if length is None else length for length in shape[how.axis + 1 :]]
    return QuantizedPayload(how, max(math.prod(lengths), 1))


def _check_turned(how: Quantization, shape: Sequence[int | None], where: str) -> None:
    """Check the rounding flags `turned`. Raises ContractError if their size or tensor is wrong."""
    if not how.turned:
        return
    if how.dtype is DType.INT32 or any(length is None for length in shape):
        raise ContractError(
            f"{where}: only weights may be rounded to the other side; leave 'turned' out"
        )
    elements = math.prod(length for length in shape if length is not None)
    if len(how.turned) != -(-elements // 8):
        raise ContractError(
            f"{where}: 'turned' holds {len(how.turned)} bytes, and its {elements} elements take"
            f" {-(-elements // 8)}; give a bit for each, or leave it out"
        )


def read_payload(text: str) -> QuantizedPayload:
    """Parse the output of `to_text`."""
    dtype, axis, scales, zeros, run, turned = json.loads(text)
    bits = base64.b64decode(turned)
    how = Quantization(
        dtype=DType(dtype), scales=tuple(scales), zero_points=tuple(zeros), axis=axis, turned=bits
    )
    return QuantizedPayload(how, run)
