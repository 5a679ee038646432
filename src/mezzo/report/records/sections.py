"""Sections of an account: measurements as JSON data. The schema describes each field.

JSON has no infinities and no NaN: they are the strings "inf", "-inf" and "nan". Absent values are
null.
"""

import math
from collections.abc import Iterable
from platform import python_version
from typing import TYPE_CHECKING

from mezzo.common.packages import find_version
from mezzo.formats.dtypes import DType
from mezzo.report.text.measured.comparison import where_error_begins

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.common.memory import MemoryLimit
    from mezzo.contracts.plans import Accumulation
    from mezzo.numerics.measures import (
        Comparison,
        CostTable,
        DataSource,
        Deviation,
        FrontierPoint,
        Interval,
        Ranges,
        RuntimeCheck,
        SearchRecord,
        Sensitivity,
        Timing,
        ValueRange,
    )

Document = dict[str, object]
_PACKAGES = ("onnx", "onnxruntime", "numpy")
_ORDER = {dtype: place for place, dtype in enumerate(DType)}


def number(value: float) -> float | str:
    """A number with nine significant digits, enough for any FP32 number; integers exactly."""
    converted = float(value)
    if math.isnan(converted):
        return "nan"
    if math.isinf(converted):
        return "inf" if converted > 0 else "-inf"
    return converted if converted.is_integer() else float(f"{converted:.9g}")


def sort_dtypes(dtypes: Iterable[DType]) -> list[DType]:
    """The distinct dtypes, in the order of `DType`."""
    return sorted(set(dtypes), key=lambda dtype: _ORDER[dtype])


def describe_versions(machine: "Machine | None") -> Document:
    """Versions of the packages that numbers depend on, and the machine if it is known."""
    return {
        "mezzo": find_version("mezzo"),
        "python": python_version(),
        **{name: find_version(name) for name in _PACKAGES},
        "machine": (
            None
            if machine is None
            else {
                "architecture": machine.architecture,
                "features": None if machine.features is None else list(machine.features),
            }
        ),
    }


def describe_model(
    role: str, path: str, size_bytes: int | None = None, opset: int | None = None
) -> Document:
    """A model and its role in the command."""
    return {"role": role, "path": path, "size_bytes": size_bytes, "opset": opset}


def describe_data(data: "DataSource | None") -> Document | None:
    """The data of a measurement."""
    return None if data is None else {
        "name": data.name, "batches": data.batches, "samples": data.samples, "seed": data.seed,
    }  # fmt: skip


def describe_value_ranges(ranges: "Ranges") -> Document:
    """The ranges of a model's values, in graph order."""
    # Late: every command loads this file, most without numpy.
    from mezzo.formats.rounding import (
        limits_of,
    )

    return {
        "data": describe_data(ranges.data),
        "values": [_describe_value(value) for value in ranges.values],
        "skipped": list(ranges.skipped),
        "unknown": list(ranges.unknown),
        "limits": {
            str(dtype): {name: number(limit) for name, limit in limits_of(dtype)._asdict().items()}
            for dtype in sort_dtypes(dtype for value in ranges.values for dtype in value.formats)
        },
    }


def _describe_value(value: "ValueRange") -> Document:
    return {
        "value": value.value,
        "node": value.node,
        "op": value.op,
        "count": int(value.count),
        "sampled": int(value.sampled),
        "minimum": number(value.minimum),
        "maximum": number(value.maximum),
        "mean_absolute": number(value.mean_absolute),
        "has_nan": bool(value.has_nan),
        "has_infinity": bool(value.has_infinity),
        "quantiles": [[number(share), number(magnitude)] for share, magnitude in value.quantiles],
        "formats": {
            str(dtype): {
                "beyond": number(value.formats[dtype].beyond),
                "below_normal": number(value.formats[dtype].below_normal),
                "vanishing": number(value.formats[dtype].vanishing),
                "rounding": number(value.formats[dtype].rounding),
            }
            for dtype in sort_dtypes(value.formats)
        },
        "largest_at": value.largest_at,
    }


def describe_errors(
    comparison: "Comparison", formats: Iterable[DType], accumulation: "Accumulation | None"
) -> Document:
    """Errors of a model's outputs and layers against the reference's, and the verdict.

    `formats` are the emulated formats; `accumulation` is the emulated accumulator, None for FP32.
    """
    verdict, metric = comparison.verdict, comparison.metric
    begins = where_error_begins(comparison)
    return {
        "data": describe_data(comparison.data),
        "run": comparison.run,
        "emulation": (
            None
            if comparison.run != "emulated"
            else {
                "formats": [str(dtype) for dtype in sort_dtypes(formats)],
                "accumulate": None if accumulation is None else str(accumulation.dtype),
                "tile": None if accumulation is None else int(accumulation.tile),
            }
        ),
        "outputs": [_describe_deviation(deviation) for deviation in comparison.outputs],
        "layers": [_describe_deviation(deviation) for deviation in comparison.layers],
        "begins": None if begins is None else begins.name,
        "verdict": {
            "is_same": bool(verdict.is_same),
            "ruling": verdict.ruling.value,
            "error": _describe_interval(verdict.error),
            "budget": number(verdict.budget),
            "budget_source": verdict.budget_source,
            "budget_asked": None if verdict.budget_asked is None else number(verdict.budget_asked),
            "noise": number(verdict.noise),
            "because": verdict.because,
            "unknown": list(verdict.unknown),
        },
        "metric": (
            None
            if metric is None
            else {
                "name": metric.name,
                "reference": number(metric.reference),
                "candidate": number(metric.candidate),
                "drop": number(metric.drop),
            }
        ),
    }


def _describe_deviation(deviation: "Deviation") -> Document:
    return {
        "name": deviation.name,
        "samples": int(deviation.samples),
        "relative_l2": _describe_interval(deviation.relative_l2),
        "cosine": number(deviation.cosine),
        "sqnr_db": number(deviation.sqnr_db),
        "largest_absolute": number(deviation.largest_absolute),
        "largest_ulp": number(deviation.largest_ulp),
        "ulp_format": str(deviation.ulp_format),
        "fault": deviation.fault,
        "top1": None if deviation.top1 is None else _describe_interval(deviation.top1),
        "topk": None if deviation.topk is None else _describe_interval(deviation.topk),
        "k": None if deviation.k is None else int(deviation.k),
        "ruling": None if deviation.ruling is None else deviation.ruling.value,
        "budget": None if deviation.budget is None else number(deviation.budget),
        "budget_source": deviation.budget_source,
        "budget_asked": None if deviation.budget_asked is None else number(deviation.budget_asked),
        "noise": None if deviation.noise is None else number(deviation.noise),
        "unknown": deviation.unknown,
        "worry": deviation.worry,
        "doubt": deviation.doubt,
        "worst": None if deviation.worst is None else number(deviation.worst),
        "worst_at": None if deviation.worst_at is None else int(deviation.worst_at),
        "figures": {name: number(figure) for name, figure in deviation.figures.items()},
    }


def _describe_interval(interval: "Interval") -> Document:
    return {
        "estimate": number(interval.estimate),
        "low": number(interval.low),
        "high": number(interval.high),
        "confidence": number(interval.confidence),
    }


def describe_units(sensitivity: "Sensitivity") -> Document:
    """The output error of each unit when it alone runs in low precision."""
    return {
        "data": describe_data(sensitivity.data),
        "all_low": number(sensitivity.all_low),
        "runs": int(sensitivity.runs),
        "unknown": list(sensitivity.unknown),
        "units": [
            {
                "name": unit.name,
                "nodes": list(unit.nodes),
                "error": number(unit.error),
                "is_measured": bool(unit.is_measured),
                "together": int(unit.together),
                "low": None if unit.low is None else number(unit.low),
                "high": None if unit.high is None else number(unit.high),
                "fault": unit.fault,
            }
            for unit in sensitivity.units
        ],
    }


def describe_costs(costs: "CostTable") -> Document:
    """The cost of each node in each precision."""
    nodes = [
        {"node": cost.node, "high": number(cost.high), "low": number(cost.low)}
        for cost in costs.nodes
    ]
    return {"source": costs.source, "unit": costs.unit, "nodes": nodes}


def describe_frontier(points: "Iterable[FrontierPoint]") -> list[Document]:
    """The plans of a search, one for each weight of the error, in the search's order."""
    return [
        {
            "weight": number(point.weight),
            "cost": number(point.cost),
            "low_nodes": int(point.low_nodes),
            "predicted_error": number(point.predicted_error),
            "error": None if point.error is None else number(point.error),
            "is_chosen": bool(point.is_chosen),
        }
        for point in points
    ]


def describe_search(search: "SearchRecord") -> Document:
    """Statistics of a search, and the reason why it stopped."""
    held_out, prediction = search.held_out_error, search.prediction
    return {
        "budget": number(search.budget),
        "margin": number(search.margin),
        "evaluations": int(search.evaluations),
        "partial_evaluations": int(search.partial_evaluations),
        "checks": int(search.checks),
        "error": number(search.error),
        "held_out_error": None if held_out is None else number(held_out),
        "is_within_budget": bool(search.is_within_budget),
        "stopped_by": search.stopped_by,
        "time_s": number(search.time_s),
        "costliest": search.costliest,
        "unknown": list(search.unknown),
        "prediction": (
            None
            if prediction is None
            else {
                "factor": number(prediction.factor),
                "low": number(prediction.low),
                "high": number(prediction.high),
                "points": int(prediction.points),
            }
        ),
    }


def describe_timing(timing: "Timing") -> Document:
    """Times of models relative to the first of them."""
    models = [
        {
            "name": model.name,
            "fault": model.fault,
            "median_ns": None if model.median_ns is None else number(model.median_ns),
            "least_ns": None if model.least_ns is None else number(model.least_ns),
            "speed": None if model.speed is None else _describe_interval(model.speed),
        }
        for model in timing.models
    ]
    load = (
        None
        if timing.load is None
        else {"before": number(timing.load[0]), "after": number(timing.load[1])}
    )
    return {
        "target": timing.target, "runtime": timing.runtime, "turns": timing.turns, "load": load,
        "models": models
    }  # fmt: skip


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


def describe_memory(held: "MemoryLimit") -> Document | None:
    """The memory bound and its effect; None if there was no bound and the model was not split."""
    if not held.is_asked and not held.segments:
        return None
    bound_bytes = held.bound_bytes if held.is_asked else None
    return {"bound_bytes": bound_bytes, "segments": held.segments, "most_bytes": held.most_bytes}
