"""Statistics of a constant (extremes, NaN, infinity, mean, RMS), in one pass over its payload."""

import math
import struct
from collections.abc import Iterable, Sequence

import numpy as np
import onnx

from mezzo.formats.dtypes import FLOATING, DType
from mezzo.ir.graph import ConstantFacts
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.protos.payloads import EXTERNAL, element_dtype
from mezzo.onnx.protos.rounding import STORAGE, Array

# Values of constants this small are stored: policies inspect epsilons, masks and exponents.
_KEPT_ELEMENTS = 8


_FEW_ELEMENTS = 16


def facts(tensor: onnx.TensorProto, blobs: Blobs) -> ConstantFacts:
    """Measure a floating tensor. About 3 us for a scalar, some GB/s for a large one.

    Raises:
        ModelError: the payload does not fit the tensor's type and shape, or cannot be read.
    """
    if tensor.data_type == onnx.TensorProto.FLOAT and tensor.data_location != EXTERNAL:
        few = _few_floats(tensor)
        if few is not None:
            return _with_level_gain(measure_few(few), tensor, few)
    dtype = element_dtype(tensor, blobs.where(tensor))
    assert dtype in FLOATING, f"{blobs.where(tensor)}: {dtype} has no magnitudes"
    measured = measure(blobs.chunks(tensor), dtype)
    if len(tensor.dims) < _LEAST_RANK or not 0 < measured.elements <= _SMALL_KERNEL:
        return measured
    return _with_level_gain(
        measured, tensor, np.concatenate([chunk.ravel() for chunk in blobs.chunks(tensor)])
    )


# Tensors of lower rank are matrices; larger kernels are trained, not hand-written filters.
_LEAST_RANK, _SMALL_KERNEL = 3, 1024


def _with_level_gain(
    measured: ConstantFacts, tensor: onnx.TensorProto, values: Sequence[float] | Array
) -> ConstantFacts:
    """Add the gain of a convolution kernel for a constant input: RMS over output channels."""
    if len(tensor.dims) < _LEAST_RANK or measured.has_infinity or measured.has_nan:
        return measured
    sums = np.asarray(values, np.float64).reshape(tensor.dims[0], -1).sum(axis=1)
    return measured._replace(level_gain=float(np.sqrt(np.mean(sums * sums))))


def _few_floats(tensor: onnx.TensorProto) -> Sequence[float] | None:
    """Return the values of a small, well-formed FP32 tensor, else None."""
    raw = tensor.raw_data
    available = len(raw) // 4 if raw else len(tensor.float_data)
    if not 0 < available <= _FEW_ELEMENTS or len(raw) % 4:
        return None
    count = 1
    for size in tensor.dims:
        count *= size
        if not 0 < count <= _FEW_ELEMENTS:
            return None
    if count != available:
        return None
    return struct.unpack(f"<{available}f", raw) if raw else tuple(tensor.float_data)


def measure_few(values: Sequence[float]) -> ConstantFacts:
    """Measure at most a few dozen values without NumPy, whose call overhead would dominate."""
    small_values = tuple(values) if len(values) <= _KEPT_ELEMENTS else None
    magnitudes = list(map(abs, values))
    count = len(values)
    least = min(magnitudes)
    if least > 0.0 and sum(magnitudes) < math.inf:  # ordinary numbers; a NaN compares false
        size = math.sqrt(sum([value * value for value in values]) / count)
        low, high = min(values), max(values)
        return ConstantFacts(
            count, max(magnitudes), least, False, False, low < 0.0, small_values,
            sum(values) / count, size, low, high, None, are_whole(values),
        )  # fmt: skip
    sizes = [magnitude for magnitude in magnitudes if magnitude and math.isfinite(magnitude)]
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    mean, size = (
        sum(finite) / len(finite),
        math.sqrt(sum(value * value for value in finite) / len(finite)),
    )
    return ConstantFacts(
        count, max(sizes, default=0.0), min(sizes, default=0.0), math.inf in magnitudes,
        any(map(math.isnan, values)), any(value < 0.0 for value in values),
        small_values, mean, size, min(finite), max(finite), None, are_whole(values),
    )  # fmt: skip


def are_whole(values: Sequence[float]) -> bool:
    return all(map(float.is_integer, values))


def measure(chunks: Iterable[Array], dtype: DType) -> ConstantFacts:
    """Measure a chunked payload. Compares magnitudes as integers, as IEEE bits sort like values."""
    storage = STORAGE[dtype]
    unsigned = np.dtype(f"<u{storage.itemsize}")
    sign = 1 << storage.itemsize * 8 - 1
    infinity = int(np.array([np.inf]).astype(storage).view(unsigned)[0])
    elements, largest, smallest = 0, 0, sign
    has_infinity = has_nan = has_negative = False
    small_values: list[float] = []
    sums = Sums()
    scratch = np.empty(0, unsigned)
    for chunk in chunks:
        if not chunk.size:
            continue
        bits = chunk.view(unsigned)
        elements += bits.size
        if elements <= _KEPT_ELEMENTS:
            small_values.extend(chunk.astype(np.float64).tolist())
        if scratch.size < bits.size:
            scratch = np.empty(bits.size, unsigned)
        sums.add(chunk)
        magnitude = np.bitwise_and(bits, unsigned.type(sign - 1), out=scratch[: bits.size])
        top = int(magnitude.max())
        if top >= infinity:
            is_nan = magnitude > infinity
            has_nan = has_nan or bool(is_nan.any())
            has_infinity = has_infinity or bool((magnitude == infinity).any())
            has_negative = has_negative or bool(((bits > sign) & ~is_nan).any())
            magnitude[magnitude >= infinity] = 0
            top = int(magnitude.max())
        elif not has_negative:
            has_negative = int(bits.max()) > sign
        largest = max(largest, top)
        # Zero wraps to the largest integer, so the minimum skips zeros.
        low = int(np.subtract(magnitude, unsigned.type(1), out=magnitude).min()) + 1
        smallest = min(smallest, low)
    if not largest:
        smallest = 0
    large, small = (
        float(x) for x in np.array([largest, smallest], unsigned).view(storage).astype(np.float64)
    )
    values = tuple(small_values) if elements <= _KEPT_ELEMENTS else None
    return ConstantFacts(
        elements, large, small, has_infinity, has_nan, has_negative, values, *sums.mean_and_rms(),
        sums.minimum, sums.maximum, sums.faint(large), sums.is_whole,
    )  # fmt: skip


# Chunks to sample, and values per chunk, for the quantile in `Sums.faint`.
_PIECES, _SAMPLES = 8, 4096
# Normally distributed weights have a maximum of about six times their RMS; this is twice that.
_STANDS_OUT = 12.0


class Sums:
    """Running sum, sum of squares, minimum and maximum of a payload's finite values."""

    __slots__ = ("count", "is_whole", "maximum", "minimum", "samples", "square", "total")

    def __init__(self) -> None:
        self.count, self.total, self.square, self.minimum, self.maximum = 0, 0.0, 0.0, 0.0, 0.0
        self.is_whole = True
        self.samples: list[Array] = []

    def add(self, chunk: Array) -> None:
        """Add a chunk: in FP32 unless squares would overflow or underflow, then in FP64."""
        numbers = chunk if chunk.dtype == np.float32 else chunk.astype(np.float32)
        low, high = float(numbers.min()), float(numbers.max())
        if self.is_whole:  # the extremes alone rule out nearly all constants
            self.is_whole = (
                low.is_integer() and high.is_integer() and bool((numbers == np.rint(numbers)).all())
            )
        if not math.isfinite(low) or not math.isfinite(high):
            numbers = numbers[np.isfinite(numbers)]
            if not numbers.size:
                return
            low, high = float(numbers.min()), float(numbers.max())
        if not max(-low, high) < 1e15 or max(-low, high) < 1e-15:
            numbers = numbers.astype(np.float64)
        if len(self.samples) < _PIECES:
            self.samples.append(numbers[:: max(numbers.size // _SAMPLES, 1)].copy())
        self.minimum = low if not self.count else min(self.minimum, low)
        self.maximum = high if not self.count else max(self.maximum, high)
        self.count += numbers.size
        self.total += float(numbers.sum())
        self.square += float(np.dot(numbers, numbers))

    def faint(self, largest: float) -> float | None:
        """First quartile of sampled nonzero magnitudes; None unless `largest` is an outlier."""
        _, size = self.mean_and_rms()
        if not self.samples or largest < _STANDS_OUT * size:
            return None
        magnitudes = np.abs(np.concatenate(self.samples))
        magnitudes = magnitudes[magnitudes > 0]
        return float(np.quantile(magnitudes, 0.25)) if magnitudes.size else None

    def mean_and_rms(self) -> tuple[float, float]:
        """Mean and root mean square; 0.0 if empty."""
        count = max(self.count, 1)
        return self.total / count, math.sqrt(self.square / count)
