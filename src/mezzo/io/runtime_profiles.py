"""Runtime profiles as layers with times: ONNX Runtime's, and trtexec's with its layer information.

Such files come from other programs and may be hostile: size is bounded, and fields are validated.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.file_kinds import detect_kind
from mezzo.common.safe_paths import read_file
from mezzo.contracts.timings import LayerTime
from mezzo.formats.dtypes import DType
from mezzo.io.layer_types import is_conversion, type_called

MOST_BYTES = 1 << 28
_ASK = "give the file that ONNX Runtime's profiling writes, or trtexec's --exportProfile"
# Control flow: the time is that of the nodes in the subgraphs, which have their own events.
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_SUFFIX = "_kernel_time"
# Integer kernels that quantize their first operand, a float.
_ROUND_FIRST = "DynamicQuantize"
_EIGHT_BITS = frozenset({DType.INT8, DType.UINT8})
_LONGEST = 1e18  # in any unit


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProfile:
    """Layers of a runtime's profile. `runs`: number of model runs that the times cover, without the
    first of several where runs are distinguishable.
    """

    name: str
    tool: str
    runs: int
    layers: tuple[LayerTime, ...]


def read_trace(path: str | os.PathLike[str]) -> RuntimeProfile:
    """Read a profile of ONNX Runtime. Errors are those of `read_profiles`."""
    return _read_onnxruntime(os.fspath(path), _load(path))


def read_profiles(paths: Sequence[str | os.PathLike[str]]) -> tuple[RuntimeProfile, ...]:
    """Read profiles. A file of trtexec's layer information supplies the types of the other files'
    layers, by name.

    Raises InputError: a file cannot be read, is no profile, or has no times.
    """
    profiles: list[RuntimeProfile] = []
    layer_types: dict[str, tuple[str, str]] = {}
    typings = []
    for path in paths:
        name, document = os.fspath(path), _load(path)
        if isinstance(document, Mapping):
            typings.append(name)
            layer_types |= _read_layer_information(name, document)
        elif any(isinstance(entry, Mapping) and "ph" in entry for entry in document):
            profiles.append(_read_onnxruntime(name, document))
        else:
            profiles.append(_read_trtexec(name, document))
    if typings and not profiles:
        raise InputError(
            f"{typings[0]!r} is trtexec's layer information, which has no times; give the file of"
            " --exportProfile too"
        )
    return tuple(_inform(profile, layer_types) for profile in profiles)


def _load(path: str | os.PathLike[str]) -> Any:
    """The JSON document of a file: a list or an object."""
    where = f"profile {os.fspath(path)!r}"
    try:
        data = read_file(path, MOST_BYTES)
        if data is None:
            raise InputError(f"{where} is larger than {MOST_BYTES >> 20} MiB; profile fewer runs")
        document = parse_json(data)
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}; {_ASK}") from error
    except ValueError as error:
        kind = None if os.fspath(path).lower().endswith(".json") else detect_kind(path)
        cause = str(error).splitlines()[0]
        problem = (
            f"is {kind.what}, not a profile"
            if kind
            else f"is not JSON ({cause}): did the program end normally?"
        )
        raise InputError(f"{where} {problem}; {_ASK}") from error
    if not isinstance(document, list | dict):
        raise InputError(f"{where} is a JSON {type(document).__name__}; {_ASK}")
    return document


def _read_onnxruntime(name: str, document: Any) -> RuntimeProfile:
    """Parse events in Chrome's trace format: "model_run" for each run, and one per kernel, in
    microseconds.
    """
    events = (
        [event for event in document if isinstance(event, Mapping)]
        if isinstance(document, list)
        else []
    )
    starts = sorted(
        _number(name, event, "ts") for event in events if event.get("name") == "model_run"
    )
    kernels = [event for event in events if str(event.get("name", "")).endswith(_SUFFIX)]
    if not starts or not kernels:
        raise InputError(f"profile {name!r} has no run of a model; {_ASK}")
    # The first run is excluded: it allocates memory.
    begin, runs = (starts[1], len(starts) - 1) if len(starts) > 1 else (starts[0], 1)
    times_by_kernel: dict[tuple[str, str], list[float]] = {}
    arguments_by_kernel: dict[tuple[str, str], Mapping[str, Any]] = {}
    for event in kernels:
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, Mapping) else {}
        if _number(name, event, "ts") < begin or str(arguments.get("op_name")) in _CONTROL:
            continue
        key = str(event["name"]).removesuffix(_SUFFIX), str(arguments.get("node_index", ""))
        times_by_kernel.setdefault(key, []).append(_number(name, event, "dur") * 1e3)
        arguments_by_kernel.setdefault(key, arguments)
    layers = tuple(
        _onnxruntime_layer(key, times, arguments_by_kernel[key], runs)
        for key, times in times_by_kernel.items()
    )
    return RuntimeProfile(name=name, tool="ONNX Runtime", runs=runs, layers=layers)


def _onnxruntime_layer(
    key: tuple[str, str], times: Sequence[float], arguments: Mapping[str, Any], runs: int
) -> LayerTime:
    op = str(arguments.get("op_name", ""))
    calls = len(times) / runs
    types = [
        _first_key(each)
        for field in ("input_type_shape", "output_type_shape")
        for each in _list(arguments, field)
    ]
    # The median, as a disturbed run does not reflect the kernel's time.
    time_ns = median(times) * calls
    dtype = type_called(types[0]) if types else None
    # Packed weights have no recorded type; the data is quantized to U8.
    if op.startswith(_ROUND_FIRST):
        dtype = next(
            (candidate for candidate in map(type_called, types[1:]) if candidate in _EIGHT_BITS),
            DType.UINT8,
        )
    return LayerTime(
        name=key[0] or f"{op} {key[1]}".rstrip(), op=op, dtype=dtype,
        is_conversion=is_conversion(op), time_ns=time_ns, calls=calls,
    )  # fmt: skip


def _read_trtexec(name: str, document: Any) -> RuntimeProfile:
    """Parse a list: the number of runs, then a row per layer with its mean and, from TensorRT 8.5
    on, its median in ms.
    """
    rows = [row for row in document if isinstance(row, Mapping)]
    counts = [row["count"] for row in rows if "count" in row]
    layers = []
    for row in rows:
        if "name" not in row:
            continue
        field = "medianMs" if "medianMs" in row else "averageMs"
        time_ns = _number(name, row, field) * 1e6
        layers.append(
            LayerTime(
                name=str(row["name"]),
                op="",
                dtype=None,
                is_conversion=False,
                time_ns=time_ns,
                calls=1.0,
            )
        )
    if not layers:
        raise InputError(f"profile {name!r} has no layer with a time; {_ASK}")
    runs = counts[0] if counts and isinstance(counts[0], int) and counts[0] > 0 else 1
    return RuntimeProfile(name=name, tool="trtexec", runs=runs, layers=tuple(layers))


def _read_layer_information(name: str, document: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Kind and type name of each layer by name, from trtexec's --exportLayerInfo."""
    rows = document.get("Layers")
    if not isinstance(rows, list):
        raise InputError(f"profile {name!r} is a JSON object without a list of 'Layers'; {_ASK}")
    detailed = [row for row in rows if isinstance(row, Mapping)]
    if rows and not detailed:
        raise InputError(
            f"profile {name!r} has the names of layers alone; give trtexec"
            " --profilingVerbosity=detailed beside --exportLayerInfo"
        )
    by_name = {}
    for row in detailed:
        ports = [*_list(row, "Inputs"), *_list(row, "Outputs")]
        type_name = next(
            (str(port["Format/Datatype"]) for port in ports if "Format/Datatype" in port), ""
        )
        by_name[str(row.get("Name", ""))] = str(row.get("LayerType", "")), type_name
    return by_name


def _inform(profile: RuntimeProfile, layer_types: Mapping[str, tuple[str, str]]) -> RuntimeProfile:
    return replace(profile, layers=tuple(_with(layer, layer_types) for layer in profile.layers))


def _with(layer: LayerTime, layer_types: Mapping[str, tuple[str, str]]) -> LayerTime:
    if layer.op or layer.name not in layer_types:
        return layer
    op, type_name = layer_types[layer.name]
    return replace(layer, op=op, dtype=type_called(type_name), is_conversion=is_conversion(op))


def _number(name: str, row: Mapping[str, Any], field: str) -> float:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LONGEST:
        raise InputError(
            f"profile {name!r} has {field!r} {str(value)[:40]!r} where a time belongs; {_ASK}"
        )
    return float(value)


def _list(row: Mapping[str, Any], field: str) -> Iterator[Mapping[str, Any]]:
    """The objects in a field that should be a list of objects."""
    value = row.get(field)
    yield from (
        each for each in (value if isinstance(value, list) else ()) if isinstance(each, Mapping)
    )


def _first_key(shape: Mapping[str, Any]) -> str:
    return next((str(key) for key in shape), "")
