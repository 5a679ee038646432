"""Validation of feeds against a model's inputs, and conversion to the declared types.

Runtimes do not validate consistently: a feed that one rejects, another accepts and misinterprets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from mezzo.numerics.data.feed_checks import check_names, length_remedy, refuse
from mezzo.onnx.schema.types import FROM_ONNX

# A feed or a result: an array, a list of arrays for a sequence, None for an empty optional.
Datum = Any
Array = npt.NDArray[Any]

# Prefixes of numpy's and ml_dtypes' type names by kind. Feeds may convert to a later kind, not to
# an earlier.
_KINDS = (("bool",), ("int", "uint"), ("float", "bfloat"), ("complex",))
_INTEGERS = _KINDS.index(("int", "uint"))
_WIDER_THAN_FLOAT32 = frozenset({"float64", "int32", "uint32", "int64", "uint64"})


def fit_feeds(
    feeds: Mapping[str, Datum], ports: Sequence[onnx.ValueInfoProto], optional: frozenset[str]
) -> dict[str, Datum]:
    """Convert every feed to the type of its port, with one rounding. `optional` have defaults.

    Raises: InputError if a feed is missing, unknown, or of another kind, rank or length.
    """
    types = {port.name: port.type for port in ports}
    check_names(feeds, types, optional, "model")
    for name, feed in feeds.items():
        _check(f"input {name!r}", feed, types[name])
    return {name: retype(feed, types[name]) for name, feed in feeds.items()}


def retype(datum: Datum, kind: onnx.TypeProto) -> Datum:
    """Convert to the element type of `kind`, rounding once to nearest even."""
    if datum is None:
        return None
    match kind.WhichOneof("value"):
        case "sequence_type":
            return [retype(element, kind.sequence_type.elem_type) for element in datum]
        case "optional_type":
            return retype(datum, kind.optional_type.elem_type)
        case "tensor_type" if kind.tensor_type.elem_type == TensorProto.STRING:
            return np.asarray(datum)
        case "tensor_type" if kind.tensor_type.elem_type != TensorProto.UNDEFINED:
            array = np.asarray(datum)
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
            with np.errstate(all="ignore"):
                if dtype == ml_dtypes.bfloat16 and array.dtype.name in _WIDER_THAN_FLOAT32:
                    array = _to_odd_float32(array)
                return array.astype(dtype, copy=False)
        case _:
            return datum


def _to_odd_float32(values: Array) -> Array:
    """Round-to-odd to FP32, so that a second rounding to BF16 equals direct rounding.

    Source: Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    if values.dtype.kind in "iu":
        # FP64 cannot hold the last bits of large integers: a sticky bit replaces them.
        last_bits, sticky = np.array(4095, values.dtype), np.array(2048, values.dtype)
        truncated = values & ~last_bits | np.where(values & last_bits, sticky, sticky - sticky)
        values = np.where(np.abs(values.astype(np.float64)) < 2.0**53, values, truncated)
    wide = values.astype(np.float64)
    single = wide.astype(np.float32)
    residual = wide - single
    is_even = single.view(np.uint32) & 1 == 0
    neighbor = np.nextafter(single, np.copysign(np.inf, residual).astype(np.float32))
    return np.where(is_even & (residual != 0) & np.isfinite(single), neighbor, single)


def _check(where: str, feed: Datum, kind: onnx.TypeProto) -> None:
    match kind.WhichOneof("value"):
        case "sequence_type":
            if not isinstance(feed, list | tuple):
                refuse(where, _describe(feed), _spell(kind), "feed a list, empty or not")
            for position, element in enumerate(feed):
                _check(f"{where}, element {position}", element, kind.sequence_type.elem_type)
        case "optional_type":
            if feed is not None:
                _check(where, feed, kind.optional_type.elem_type)
        case "tensor_type" if kind.tensor_type.elem_type != TensorProto.UNDEFINED:
            _check_tensor(where, feed, kind)


def _check_tensor(where: str, feed: Datum, kind: onnx.TypeProto) -> None:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
    if feed is None:
        refuse(where, "None", _spell(kind), "feed an array; only an optional input may be empty")
    try:
        array = np.asarray(feed)
    except (ValueError, TypeError) as error:
        refuse(where, f"no array ({error})", _spell(kind), "feed an array")
    if kind.tensor_type.elem_type == TensorProto.STRING:
        if not _holds_text(array):
            refuse(where, _describe(array), _spell(kind), "feed an array of str")
    elif array.size:
        fed, declared = _rank_kind(array.dtype), _rank_kind(dtype)
        if fed is None or declared is None or fed > declared:
            refuse(where, _describe(array), _spell(kind), f"feed an array of {dtype.name}")
        if fed == declared == _INTEGERS:
            limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes types its classes only
            integers = array if array.dtype.kind in "iu" else array.astype(np.int64)
            for number in (int(integers.min()), int(integers.max())):
                if not limits.min <= number <= limits.max:
                    refuse(
                        where,
                        str(number),
                        _spell(kind),
                        f"feed numbers from {limits.min} to {limits.max}",
                    )
    _check_shape(where, array, kind)


def _check_shape(where: str, array: Array, kind: onnx.TypeProto) -> None:
    if not kind.tensor_type.HasField("shape"):
        return
    dims = kind.tensor_type.shape.dim
    if array.ndim != len(dims):
        refuse(where, _describe(array), _spell(kind), f"feed an array of {len(dims)} dimensions")
    for axis, (dim, length) in enumerate(zip(dims, array.shape, strict=True)):
        # Some exporters write an unknown length as -1.
        if dim.HasField("dim_value") and dim.dim_value >= 0 and dim.dim_value != length:
            remedy = length_remedy(axis, dim.dim_value, length, array.ndim)
            refuse(where, _describe(array), _spell(kind), remedy)


def _rank_kind(dtype: np.dtype[Any]) -> int | None:
    """The position of a type's kind in `_KINDS`; None if it is not numeric."""
    return next((rank for rank, starts in enumerate(_KINDS) if dtype.name.startswith(starts)), None)


def _holds_text(array: Array) -> bool:
    return array.dtype.kind in "US" or (
        array.dtype.kind == "O" and all(isinstance(element, str | bytes) for element in array.flat)
    )


def _describe(feed: Datum) -> str:
    """A feed as text for messages: "f64[2,3]", "a dict"."""
    if not isinstance(feed, np.ndarray):
        return f"a {type(feed).__name__}"
    try:
        name = str(FROM_ONNX[onnx.helper.np_dtype_to_tensor_dtype(feed.dtype)])
    except (ValueError, KeyError):
        name = feed.dtype.name
    if feed.dtype == np.object_ and not _holds_text(feed):
        name = "object"
    return f"{name}[{','.join(map(str, feed.shape))}]"


def _spell(kind: onnx.TypeProto) -> str:
    """A declared type as text for messages: "f16[N,4]", "list of f16[N,4]"."""
    match kind.WhichOneof("value"):
        case "sequence_type":
            return f"list of {_spell(kind.sequence_type.elem_type)}"
        case "optional_type":
            return f"{_spell(kind.optional_type.elem_type)} or None"
        case "tensor_type":
            tensor = kind.tensor_type
            name = str(FROM_ONNX.get(tensor.elem_type, "?"))
            if not tensor.HasField("shape"):
                return name
            lengths = (
                str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?"
                for d in tensor.shape.dim
            )
            return f"{name}[{','.join(lengths)}]"
        case other:
            return str(other)
