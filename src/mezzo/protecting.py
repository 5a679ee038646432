"""Conversion that has seen data: what overflows or vanishes on it keeps FP32, and the result is checked on it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.comparing import compare_on
from mezzo.conversion import convert_model, judge_model
from mezzo.data import open_model_data
from mezzo.dtypes import FORMATS, DType
from mezzo.goals import Goal, Memory, shares_of
from mezzo.numerics.measures import Comparison, Measured, Ranges
from mezzo.numerics.protection import protections
from mezzo.options import Options, Request, read_options
from mezzo.pipeline import Converted, finish
from mezzo.planner import rows_of
from mezzo.ranging import measure_ranges
from mezzo.recalling import recall

if TYPE_CHECKING:
    import onnx

    from mezzo.conversion import Decided
    from mezzo.frontends.onnx.model import OnnxModel
    from mezzo.numerics.datasets import Data, Dataset

# Values within this factor of the limit are protected too: other data may hold larger ones.
HEADROOM = 2.0
# Passes over the data that a repair may take.
_REPAIR_EVALUATIONS = 8


def convert_on_data(
    model: "OnnxModel",
    dst: "str | os.PathLike[str] | None",
    request: Request,
    data: "Data",
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    overwrite: bool = False,
) -> Converted:
    """Convert with what the data shows, and check the answers on it in the true precision.

    A result that fails the check is planned again by what each node's error costs, until it holds the check's budget.
    """
    options = recall(model, with_data_settings(read_options(request), data))
    dataset = open_model_data(model, data, labels=labels, batch_size=batch_size)
    options, ranges = protect(model, options, dataset)
    decided, result = convert_model(model, options, None)
    comparison = check(model, result, dataset, None, options.wishes.low)
    measured = Measured(comparison.data, ranges, comparison)
    if _is_wrong(comparison) and options.wishes.strategy.name == "mincut":  # the others know no price of error
        decided, result, measured = _repair(model, options, dataset, measured)
    return finish(model, decided, result, dst, overwrite=overwrite, measured=measured)


def with_data_settings(options: Options, data: "Data", **more: str) -> Options:
    """Note in the plan's settings what data it was made with."""
    name = os.fspath(data) if isinstance(data, str | os.PathLike) else "given batches"
    return replace(options, settings=(*options.settings, ("data", name), *more.items()))


def protect(
    model: "OnnxModel", options: Options, dataset: "Dataset", headroom: float = HEADROOM
) -> tuple[Options, Ranges]:
    """Measure the ranges of a model's values, and add what they forbid to the options.

    Raises: InputError: the data does not fit the model.
    """
    ranges = measure_ranges(model, dataset)
    judged = judge_model(model, options)[1]
    graph, low = judged.problem.graph, FORMATS[options.wishes.low]
    found = protections(graph, rows_of(graph), low, ranges.values, headroom, judged.limits.keys())
    return replace(options, wishes=replace(options.wishes, found=found)), ranges


def check(
    model: "OnnxModel", result: "onnx.ModelProto", dataset: "Dataset", goal: Goal | None, low: DType
) -> Comparison:
    """Compare a result with its model in the true precision, within a goal or else the default budget of `low`."""
    reference = model.materialize(model.source.model)
    found = model.materialize(result)
    if goal is None:
        return compare_on(reference, found, dataset, low=low)
    drop = None if goal.max_drop is None else goal.max_drop.text
    return compare_on(reference, found, dataset, max_error=goal.max_error, metric=goal.metric, max_drop=drop, low=low)


def _is_wrong(comparison: Comparison) -> bool:
    """Whether the answers are off; what more samples would have to decide is not."""
    return comparison.verdict.error.estimate > comparison.verdict.budget or any(o.fault for o in comparison.outputs)


def _repair(
    model: "OnnxModel", options: Options, dataset: "Dataset", failed: Measured
) -> "tuple[Decided, onnx.ModelProto, Measured]":
    """Give nodes back to FP32, the costliest first, until the check holds."""
    from mezzo.searching import Limits, Tuner

    assert failed.comparison is not None, "something has failed"
    verdict = failed.comparison.verdict
    tuner = Tuner(
        model, options, Goal(verdict.budget, margin=1.0, shares=shares_of(failed.comparison)), dataset,
        Limits(evaluations=_REPAIR_EVALUATIONS), Memory(None, {}),
    )  # fmt: skip
    choosing = tuner.choose()
    decided, result = convert_model(model, choosing.options, None)
    comparison = check(model, result, dataset, None, options.wishes.low)
    note = (
        f"by the ranges alone the answers were off ({verdict.because}); nodes went back to FP32 by what their error "
        f"costs: {choosing.stopped_by}"
    )
    measured = replace(failed, comparison=comparison, sensitivity=choosing.sensitivity, notes=(*failed.notes, note))
    return decided, result, measured
