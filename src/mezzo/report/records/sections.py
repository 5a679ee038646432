"""Sections of an account whose form differs from their records: the schema describes each field."""

from collections.abc import Iterable
from platform import python_version
from typing import TYPE_CHECKING

from mezzo.common.packages import find_version
from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import limits_of
from mezzo.report.records.documents import Document, encode, encode_fields, number
from mezzo.report.records.trust import where_error_begins

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.common.memory import MemoryLimit
    from mezzo.contracts.plans import Accumulation
    from mezzo.numerics.measures import Comparison, Ranges, RuntimeCheck

_PACKAGES = ("onnx", "onnxruntime", "numpy")
_ORDER = {dtype: place for place, dtype in enumerate(DType)}


def sort_dtypes(dtypes: Iterable[DType]) -> list[DType]:
    """The distinct dtypes, in the order of `DType`."""
    return sorted(set(dtypes), key=lambda dtype: _ORDER[dtype])


def describe_versions(machine: "Machine | None") -> Document:
    """Versions of the packages that numbers depend on, and the machine if it is known."""
    return {
        "mezzo": find_version("mezzo"),
        "python": python_version(),
        **{name: find_version(name) for name in _PACKAGES},
        "machine": encode(machine),
    }


def describe_model(
    role: str, path: str, size_bytes: int | None = None, opset: int | None = None
) -> Document:
    """A model and its role in the command."""
    return {"role": role, "path": path, "size_bytes": size_bytes, "opset": opset}


def describe_value_ranges(ranges: "Ranges") -> Document:
    """The ranges of a model's values, in graph order."""
    dtypes = sort_dtypes(dtype for value in ranges.values for dtype in value.formats)
    return {
        **encode_fields(ranges),
        "limits": encode({dtype: limits_of(dtype) for dtype in dtypes}),
    }


def describe_errors(
    comparison: "Comparison", formats: Iterable[DType], accumulation: "Accumulation | None"
) -> Document:
    """Errors of a model's outputs and layers against the reference's, and the verdict.

    `formats` are the emulated formats; `accumulation` is the emulated accumulator, None for FP32.
    """
    verdict, metric = comparison.verdict, comparison.metric
    begins = where_error_begins(comparison)
    emulation = None
    if comparison.run == "emulated":
        emulation = {
            "formats": encode(sort_dtypes(formats)),
            "accumulate": None if accumulation is None else str(accumulation.dtype),
            "tile": None if accumulation is None else accumulation.tile,
        }
    return {
        "data": encode(comparison.data),
        "run": comparison.run,
        "emulation": emulation,
        "outputs": encode(comparison.outputs),
        "layers": encode(comparison.layers),
        "begins": None if begins is None else begins.name,
        "verdict": {"is_same": verdict.is_same, **encode_fields(verdict)},
        "metric": (
            None if metric is None else {**encode_fields(metric), "drop": number(metric.drop)}
        ),
    }


def describe_runtime(check: "RuntimeCheck") -> Document:
    """The check of a result on the target's runtime."""
    comparison = check.comparison
    return {
        "target": check.target,
        "runtime": check.runtime,
        "not_checked": check.why_not,
        "fault": check.fault,
        "error": None if comparison is None else number(comparison.verdict.error.estimate),
        "is_wrong": check.is_wrong,
        "products": {"planned": check.planned, "in_floats": list(check.in_floats)},
        "returned": list(check.returned),
    }


def describe_memory(limit: "MemoryLimit") -> Document | None:
    """The memory bound and its effect; None if there was no bound and the model was not split."""
    if not limit.is_asked and not limit.segments:
        return None
    bound_bytes = limit.bound_bytes if limit.is_asked else None
    return {"bound_bytes": bound_bytes, "segments": limit.segments, "most_bytes": limit.most_bytes}
