"""Checks what a caller feeds against the inputs of a model, and gives numbers the declared types.

An engine is no judge of feeds: what one refuses another takes, and gives the answer to another question.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from mezzo.common.errors import InputError
from mezzo.onnx.schema.types import FROM_ONNX

# What a feed or a result is: an array, a list of arrays for a sequence, None for an empty optional.
Datum = Any
Array = npt.NDArray[Any]

# How the names of numpy's and ml_dtypes' types start. A feed may go from an earlier kind to a later one, never back.
_KINDS = (("bool",), ("int", "uint"), ("float", "bfloat"), ("complex",))
_INTEGERS = _KINDS.index(("int", "uint"))
_WIDER_THAN_FLOAT32 = frozenset({"float64", "int32", "uint32", "int64", "uint64"})


def fit_feeds(
    feeds: Mapping[str, Datum], ports: Sequence[onnx.ValueInfoProto], optional: frozenset[str]
) -> dict[str, Datum]:
    """Give every feed the type of its port, its numbers rounded once. `optional` names ports that need no feed.

    Raises: InputError if a feed is missing, unknown, or of another type, rank or length than its port.
    """
    types = {port.name: port.type for port in ports}
    missing = [repr(name) for name in types if name not in feeds and name not in optional]
    unknown = [repr(name) for name in feeds if name not in types]
    if missing or unknown:
        faults = [f"nothing for {', '.join(missing)}"] if missing else []
        faults += [f"{', '.join(unknown)}, which the model does not have"] if unknown else []
        wanted = ", ".join(f"{name!r} (optional)" if name in optional else repr(name) for name in types)
        raise InputError(f"feeds: found {' and '.join(faults)}; feed the model's inputs: {wanted or 'it has none'}")
    for name, feed in feeds.items():
        _check(f"input {name!r}", feed, types[name])
    return {name: retype(feed, types[name]) for name, feed in feeds.items()}


def retype(datum: Datum, kind: onnx.TypeProto) -> Datum:
    """Give numbers the element type of `kind`, rounded once to nearest even; sequences element by element."""
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
    """Cut numbers to FP32 so that rounding once more, to BF16, gives what rounding once would have.

    Source: Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    if values.dtype.kind in "iu":
        # FP64 has no room for the last bits of large integers: one bit stands for all of them.
        last_bits, sticky = np.array(4095, values.dtype), np.array(2048, values.dtype)
        cut = values & ~last_bits | np.where(values & last_bits, sticky, sticky - sticky)
        values = np.where(np.abs(values.astype(np.float64)) < 2.0**53, values, cut)
    wide = values.astype(np.float64)
    single = wide.astype(np.float32)
    rest = wide - single
    is_even = single.view(np.uint32) & 1 == 0
    beside = np.nextafter(single, np.copysign(np.inf, rest).astype(np.float32))
    return np.where(is_even & (rest != 0) & np.isfinite(single), beside, single)


def _check(where: str, feed: Datum, kind: onnx.TypeProto) -> None:
    match kind.WhichOneof("value"):
        case "sequence_type":
            if not isinstance(feed, list | tuple):
                _refuse(where, _describe(feed), _spell(kind), "feed a list, empty or not")
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
        _refuse(where, "None", _spell(kind), "feed an array; only an optional input may be empty")
    try:
        array = np.asarray(feed)
    except (ValueError, TypeError) as error:
        _refuse(where, f"no array ({error})", _spell(kind), "feed an array")
    if kind.tensor_type.elem_type == TensorProto.STRING:
        if not _holds_text(array):
            _refuse(where, _describe(array), _spell(kind), "feed an array of str")
    elif array.size:
        fed, declared = _rank_kind(array.dtype), _rank_kind(dtype)
        if fed is None or declared is None or fed > declared:
            _refuse(where, _describe(array), _spell(kind), f"feed an array of {dtype.name}")
        if fed == declared == _INTEGERS:
            limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes types its classes only
            own = array if array.dtype.kind in "iu" else array.astype(np.int64)
            for number in (int(own.min()), int(own.max())):
                if not limits.min <= number <= limits.max:
                    _refuse(where, str(number), _spell(kind), f"feed numbers from {limits.min} to {limits.max}")
    _check_shape(where, array, kind)


def _check_shape(where: str, array: Array, kind: onnx.TypeProto) -> None:
    if not kind.tensor_type.HasField("shape"):
        return
    dims = kind.tensor_type.shape.dim
    if array.ndim != len(dims):
        _refuse(where, _describe(array), _spell(kind), f"feed an array of {len(dims)} dimensions")
    for axis, (dim, length) in enumerate(zip(dims, array.shape, strict=True)):
        # Some exporters write a length they do not know as -1.
        if dim.HasField("dim_value") and dim.dim_value >= 0 and dim.dim_value != length:
            remedy = f"feed an array whose dimension {axis} is {dim.dim_value} long"
            if axis == 0 and 0 < length < dim.dim_value and array.ndim > 1:  # the last piece of data, most likely
                remedy += f"; where that is the batch, as many samples as {dim.dim_value} divides"
            _refuse(where, _describe(array), _spell(kind), remedy)


def _refuse(where: str, found: str, wanted: str, remedy: str) -> NoReturn:
    raise InputError(f"{where}: found {found}, wanted {wanted}; {remedy}")


def _rank_kind(dtype: np.dtype[Any]) -> int | None:
    """The position in `_KINDS` of what the type holds; None if it holds no numbers."""
    return next((rank for rank, starts in enumerate(_KINDS) if dtype.name.startswith(starts)), None)


def _holds_text(array: Array) -> bool:
    return array.dtype.kind in "US" or (
        array.dtype.kind == "O" and all(isinstance(element, str | bytes) for element in array.flat)
    )


def _describe(feed: Datum) -> str:
    """What was fed: "f64[2,3]", "a dict"."""
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
    """What was declared: "f16[N,4]", "list of f16[N,4]"."""
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
            lengths = (str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
            return f"{name}[{','.join(lengths)}]"
        case other:
            return str(other)
