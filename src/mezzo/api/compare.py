"""Comparison of two models' outputs on data: errors, a metric, and a verdict."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mezzo.api.outlines import outline_pair
from mezzo.common.errors import InputError
from mezzo.common.machine import find_machine
from mezzo.contracts.frontend import Progress, lab_of
from mezzo.conversion.recall import recorded_target
from mezzo.conversion.results import open_source
from mezzo.evaluate.answers import ComparisonOptions, compare_models, read_accumulation
from mezzo.evaluate.feedback import read_words
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.measures import Comparison
from mezzo.numerics.metrics.user_metric import Metric
from mezzo.numerics.verdicts import read_drop
from mezzo.planner.choices.gains import recorded_gain, recorded_sums, saturating_sums
from mezzo.report.html.page import check_page_path, write_account
from mezzo.report.notebook.notebook import with_call
from mezzo.report.records.account import describe_comparison, with_graph
from mezzo.report.records.headlines import head_comparison

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.numerics.data.datasets import Data


def compare(
    reference: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    model: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    data: "Data",
    *,
    max_error: float | None = None,
    run: str = "emulated",
    labels: Sequence[str] = (),
    metric: str | Metric | None = None,
    max_drop: str | float | None = None,
    batch_size: int | None = None,
    layers: bool = True,
    accumulate: str | None = None,
    tile: int | None = None,
    feedback: str | Sequence[str] = (),
    steps: int | None = None,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a model's outputs with a reference's on data, and locate the differences.

    The verdict's `ruling` is "cannot tell" if the data or the reference's outputs are not
    informative: NaN or infinities among them, no sample, or outputs that never change; and if INT8
    products may saturate on this machine's CPU, unless `run` is "native".

    Args:
        data: a file (.npz, .npy, .csv, .txt, an image), a folder, a pattern, several of these, or
            `mezzo.DataFiles`; an array, dicts or tuples of arrays by the reference's inputs, an
            iterable of them, or a function that returns one; "random", or "random:" and a seed,
            draws inputs that fit the reference, which proves little.
        max_error: largest relative L2 error of an output, ||y - ref|| / ||ref|| over the data; by
            default a few eps of the coarsest float format that an output depends on, never below
            the noise of FP32 in that output.
        run: "emulated" rounds every result to its type; "native" relies on the runtime, which may
            compute in FP32.
        labels: arrays of the data that only the metric uses.
        metric: a function of (outputs, labels), both dicts by name, or its "module:function"; it
            returns one score per sample or one for the batch, larger is better.
        max_drop: largest decrease of the metric, "0.005" or "0.5%" of the reference's; it decides
            unless `max_error` is given too, then both must hold.
        batch_size: splits the data along the first axis.
        layers: whether inner values of the same name are compared as well.
        accumulate: "fp16" or "bf16": the emulated model's accumulators are rounded to it after
            every `tile` products. Otherwise a model that mezzo converted sums as its target does.
        feedback: outputs that become inputs of the next call, such as "h_n=h_0", or "guess": by
            their names. The data's rows are then steps of one sequence, through which each model is
            fed its own outputs, and the worst step decides.
        steps: with `feedback`, the number of steps: the first of the data, or as many random ones.

    Raises:
        InputError: an option, a model or the data is at fault, or the models' inputs or outputs do
            not match.
        ModelError: a model is not valid ONNX.
        ContractError: the model does not run.
    """
    options = ComparisonOptions(
        max_error=max_error,
        metric=metric,
        max_drop=None if max_drop is None else read_drop(max_drop),
        run=run,
        accumulation=read_accumulation(accumulate, tile, run),
        has_layers=layers,
        names=(_name(reference, "the reference"), _name(model, "the model")),
        progress=progress,
    )
    options.check()
    first, second = (
        open_source(source, trust_external_paths, None) for source in (reference, model)
    )
    if first.frontend is not second.frontend:
        forms = first.frontend.words.form, second.frontend.words.form
        raise InputError(
            f"{first.name} is {forms[0]} and {second.name} is {forms[1]}; compare models of one"
            " kind"
        )
    target, low = recorded_target(second)
    if run == "emulated" and options.accumulation is None:
        options = replace(options, accumulation=recorded_sums(target, low))
    options = replace(options, pair_sum=saturating_sums(target, find_machine()))
    # A fixed batch size of either model applies to both.
    fixed = lab_of(first).inputs.fixed_length or lab_of(second).inputs.fixed_length
    dataset = open_model_data(
        first, data, labels=labels, batch_size=batch_size, fixed_length=fixed,
        feedback=read_words(feedback), steps=steps,
    )  # fmt: skip
    comparison = compare_models(first, second.runnable(second.original), dataset, options, second)
    gain = None if target is None or low is None else recorded_gain(target, low)
    is_swapped = comparison.is_swapped or (low is None and recorded_target(first)[1] is not None)
    notes = [
        f"{first.name} has low precision and {second.name} has none: the reference comes first"
    ]
    return replace(
        comparison,
        sizes_bytes=(first.size_bytes, second.size_bytes),
        target=target,
        gain=gain,
        names=options.names,
        is_swapped=is_swapped,
        notes=(*(notes if is_swapped else ()), *comparison.notes),
    )


def write_page(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the HTML page of a comparison, with the model's graph if both models are files.

    Raises InputError: the path cannot be written, or is another file than such a page.
    """
    check_page_path(path)
    machine = find_machine()
    headline = with_call(head_comparison(*comparison.names, comparison, machine))
    document = describe_comparison(
        *comparison.names, comparison, machine=machine, headline=headline
    )
    if all(map(os.path.isfile, comparison.names)):
        document = with_graph(document, outline_pair(*comparison.names))
    write_account(path, document)


def _name(source: Any, default: str) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else default
