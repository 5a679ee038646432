"""Mixed-precision conversion of a model, and its plan alone: mezzo.convert, mezzo.plan."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting, verb
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.keyword_types import ConvertOptions, PlanOptions
from mezzo.contracts.options.keywords import (
    documents_options,
    named_settings,
    planning_request_of,
    request_of,
)
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import AddCast, Plan
from mezzo.conversion.results import (
    Converted,
    aimed,
    finish,
    open_source,
)
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import AUTO, FP32, plain_word
from mezzo.io import planfile
from mezzo.planner.options import Options, check_parameters, read_options, replay_options
from mezzo.plugins.discovery import frontend_of, targets

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided
    from mezzo.evaluate.data_session import ResumeFiles
    from mezzo.formats.dtypes import DType
    from mezzo.numerics.data.datasets import Data


@documents_options
def convert(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: str | os.PathLike[str] | None = None,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    data: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    steps: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> Converted:
    """Convert an FP32 ONNX model to mixed precision with explicit types; the source is unchanged.

    Args:
        to: "fp16", "bf16" or "int8", or "int8" with one of the floats, as "int8,bf16" or as a
            tuple; by default the format that is faster on the named target and this machine, else
            "fp16". "auto" without a target chooses the target too: whatever the tables expect to
            gain on this machine is converted and timed, and the fastest right result is kept.
            "int4", "int8w", "fp16w" and "bf16w" store weights alone so: operators compute in FP32,
            for the last two with weights behind a Cast. "fp32" widens an FP16 or BF16 model, with
            inputs and outputs unless `io` keeps them.
        policy: a preset's name ("balanced" unless given), the path of a policy file (.toml), a
            Policy, or a function of a `mezzo.ir.selectors.Site`, or of one and "fp16" or "bf16". It
            returns a verdict for each node: "allow", "infer", "clear" or "deny", or one of these
            with the accumulation and output dtypes, or None for the verdict of "balanced".
        strategy: how casts are placed, "mincut" unless given.
        target: the runtime that must load the result: a name, the path of a target file (.toml), or
            a Target; by default ONNX Runtime for fp16 and int8, the ONNX schema alone for bf16,
            OpenVINO for int8,bf16, TensorRT for int8,fp16.
        include, exclude: lists of globs on node names, or "op:" and a glob on operators; exclude
            wins.
        keep_region: paths of scopes or modules to leave unchanged, such as "encoder/layer.3"; globs
            work.
        fix_region: such paths to "fp16", "bf16" or "fp32": those parts run in that format, the rest
            is planned around them.
        io: "keep" (the default), "low", "follow" (outputs have their producer's output type), or a
            mapping of input and output names to "fp16", "bf16" or "fp32".
        out_of_range: handling of numbers outside the format's range: "repair", the default, stores
            values times powers of two where data shows that they overflow, and keeps others' users
            in FP32; "protect" does only that; "clamp" stores the largest finite number in place of
            weights, "error" refuses them.
        opset: "auto", the default, raises the opset version only if a node needs it to run in the
            format; "keep" never does.
        fuse: "standard", the default, simplifies a model before quantization (folds and rewrites it
            in standard ONNX), and leaves float models unchanged, except that a norm by a root's
            reciprocal becomes a division if the target's runtime fuses only that form; "simplify"
            also simplifies float models; "none" changes nothing.
        assume: input names to ranges of their values, such as "0..255", instead of the default
            assumption.
        plan: a plan to replay instead of deciding; it must be of this model, and other options must
            be those it was made with.
        data: files or arrays, as of `mezzo.compare`: nodes that overflow
            on it stay FP32, nodes that were only suspected and fit run in low precision, and the
            result is checked on it in true precision; `labels` names arrays that are no inputs,
            `batch_size` splits along the first axis. "random" draws inputs that fit the model: they
            add protection, and clear no suspicion.
        feedback: outputs that become inputs of the next call, such as "h_n=h_0", or "guess": by
            their names. Elementwise arithmetic of such a state stays FP32 under "balanced"; with
            `data`, its rows are steps of one sequence, as of `mezzo.compare`, `steps` of them at
            most.
        resume: with `data`, a file with the state of searches for nodes that return to FP32, so
            that an interrupted conversion continues; ranges and calibration are in FILE.ranges.npz
            and FILE.calibration.npz. Checks of a result begin anew.
        check: whether the result is run on the target's runtime, if that is installed: its outputs,
            its INT8 kernels, its speed. Nodes that the runtime runs otherwise than planned return
            to floats.
        provenance: whether the result's metadata records mezzo's version, the options and the plan.
            Such a model keeps its FP32 nodes when it is converted again, unless another format,
            policy, strategy or target is requested.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, a pattern, the plan or the file is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise, or `out_of_range="error"` refuses.
    """
    if dst is not None:
        check_destination(dst)
    if plain_word(options.get("to")) == FP32 and frontend_of(src, warns=False).rewrites:
        from mezzo.api.to_fp32 import check_widening, convert_to_fp32

        request = request_of(options)
        others = {"plan": plan, "data": data, "labels": labels, "batch_size": batch_size}
        check_widening(request, {**others, "resume": resume})
        model = open_source(src, request.trust_external_paths, progress)
        return convert_to_fp32(model, dst, request, options.get("io"), overwrite=overwrite)
    replayed = _given_plan(plan)
    if replayed is not None and data is not None:
        raise InputError(
            "data cannot change what a plan has decided; leave one of them out, or use"
            f" {verb('compare')}"
        )
    about_data = {
        "labels": labels or None, "batch_size": batch_size, "steps": steps, "resume": resume,
    }  # fmt: skip
    if data is None and any(value is not None for value in about_data.values()):
        name = next(name for name, value in about_data.items() if value is not None)
        raise InputError(
            f"{option(name)} is about data, and none is given; give {option('data')} too, or leave"
            " it out"
        )
    files: ResumeFiles | None = None
    if resume is not None:
        from mezzo.evaluate.data_session import resume_files

        models = () if dst is None else (Path(dst),)
        files = resume_files(resume, "scores", "ranges", "calibration", models=models)
    request = aimed(src, request_of(options))
    if replayed is not None:
        replaying = replay_options(named_settings(options), replayed)
        replaying = replace(replaying, is_recorded=request.provenance, is_checked=request.check)
        model = open_source(src, request.trust_external_paths, progress)
        return _convert(model, dst, replaying, replayed, overwrite=overwrite)
    model = open_source(src, request.trust_external_paths, progress)
    request = _as_recorded(request, model)
    if request.to == AUTO and request.target is None:
        if files is not None:
            raise InputError(
                f"{option('resume')} continues the conversion to one format, and"
                f" {setting('to', AUTO)} tries several; name one with {option('to')}"
            )
        return _convert_to_fastest(
            model, dst, request, data, labels, batch_size, steps, overwrite=overwrite
        )
    return convert_opened(
        model, dst, request, data, labels, batch_size, files, steps, overwrite=overwrite
    )


def _as_recorded(request: Request, model: "Model") -> Request:
    """The request; of a model that mezzo has made, "auto" means the float and target of its
    metadata, so that it stays as it is.
    """
    if request.to != AUTO or request.target is not None or model.record is None:
        return request
    from mezzo.conversion.recall import recorded_target

    target, low = recorded_target(model)
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    if low not in words or target not in targets():
        return replace(request, to=None)
    return replace(request, to=words[low], target=target)


def _convert_to_fastest(
    model: "Model",
    dst: str | os.PathLike[str] | None,
    request: Request,
    data: "Data | None",
    labels: Sequence[str],
    batch_size: int | None,
    steps: int | None,
    *,
    overwrite: bool,
) -> Converted:
    """Convert to what is fastest here, and write the result."""
    from mezzo.tuning.fastest_format import convert_to_fastest

    def convert_once(tried: Request, on: "Data | None") -> Converted:
        if on is data:
            return convert_opened(model, None, tried, on, labels, batch_size, steps=steps)
        return convert_opened(model, None, tried, on)

    converted = convert_to_fastest(model, request, convert_once, data)
    return converted if dst is None else converted.saved(dst, overwrite=overwrite)


def convert_opened(
    model: "Model",
    dst: str | os.PathLike[str] | None,
    request: Request,
    data: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    files: "ResumeFiles | None" = None,
    steps: int | None = None,
    *,
    overwrite: bool = False,
) -> Converted:
    """Convert an open model, on data if it is given. Options and errors are those of `convert`."""
    options = read_options(request)
    if data is not None:
        from mezzo.evaluate.data_session import naming_data, open_session
        from mezzo.tuning.repair.overflow_protection import convert_on_data

        options = naming_data(options, data)
        session = open_session(
            model, data, labels=labels, batch_size=batch_size, files=files,
            feedback=options.planning.feedback, steps=steps,
        )  # fmt: skip
        return convert_on_data(model, dst, options, session, overwrite=overwrite)
    check_parameters(options)
    if options.prepares_model:
        model, options = _with_weights(model, options)
    return _convert(model, dst, options, None, overwrite=overwrite)


def _with_weights(model: "Model", options: Options) -> "tuple[Model, Options]":
    """The model to plan and its options, with scales of weights alone: there is no data."""
    from mezzo.quantize.calibration import without_data

    return without_data(model, options)


def _convert(
    model: "Model",
    dst: str | os.PathLike[str] | None,
    options: Options,
    plan: Plan | None,
    *,
    overwrite: bool,
) -> Converted:
    from mezzo.conversion.recall import recall

    recalled_options = recall(model, options) if plan is None else options
    model, recalled_options, decided, result = _decide(model, recalled_options, plan)
    if not decided.may_gain:
        return finish(model, decided, result, dst, overwrite=overwrite)
    # A result that cannot gain is not run: what runs and judges results stays unloaded.
    from mezzo.tuning.repair.runtime_check import PlannedResult, measured_without_data

    planned = PlannedResult(decided=decided, result=result, options=recalled_options)
    checked, measured = measured_without_data(model, planned, may_change=plan is None)
    return finish(
        model, checked.decided, checked.result, dst, overwrite=overwrite, measured=measured
    )


def _decide(
    model: "Model", options: Options, plan: Plan | None = None
) -> "tuple[Model, Options, Decided, Artifact]":
    """The model that is planned, its options, plan and result, without data: what estimates suspect
    of overflow is scaled, if that pays. `plan`: one to replay.
    """
    from mezzo.conversion.conversion import collector_paused, convert_model
    from mezzo.conversion.raising import raise_operators

    with collector_paused():
        if plan is None and not options.prepares_model:  # else it is done
            model, options = raise_operators(model, options)
        decided, result = convert_model(model, options, plan)
    if plan is None and decided.may_overflow:
        from mezzo.tuning.repair.range_repair import repair_estimates

        repaired = repair_estimates(model, options)
        if repaired is not None:
            return *repaired, *convert_model(*repaired, None)
    return model, options, decided, result


@documents_options
def plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide every node's precision without converting. Options and errors are those of
    `convert`.
    """
    from mezzo.conversion.recall import asks_for_more, recall

    request = aimed(src, planning_request_of(options))
    chosen = read_options(request)
    model = open_source(src, request.trust_external_paths, progress)
    recorded = _as_recorded(request, model)
    if recorded is not request:
        chosen = read_options(recorded)
    recalled_options = recall(model, chosen)
    is_kept = recalled_options.recalled is not None and not asks_for_more(recalled_options)
    if is_kept or not chosen.prepares_model:
        return _decide(model, recalled_options)[2].plan
    planned = _decide(*_with_weights(model, recalled_options))[2].plan
    # Placeholder scales must not be replayed.
    return planned if chosen.planning.is_dynamic else replace(planned, quantized=())


def casts_of_plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    of: Plan,
    *,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> "list[tuple[str, DType]]":
    """The casts that a saved plan adds to its model: value name and target dtype.

    Raises:
        InputError: the plan is of another model.
        ContractError: the plan cannot be carried out.
    """
    from mezzo.conversion.conversion import convert_model

    model = open_source(src, trust_external_paths, progress)
    decided = convert_model(model, replay_options({}, of), of)[0]
    values = decided.reading.graph.values
    return [
        (values[edit.value].name, edit.dtype)
        for edit in decided.plan.edits
        if isinstance(edit, AddCast)
    ]


def show(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    trust_external_paths: bool = False,
) -> str:
    """A model as typed text: one line per input, weight, node and output."""
    return open_source(src, trust_external_paths, None).show()


def describe_origin(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    trust_external_paths: bool = False,
) -> tuple[str, ...]:
    """Lines on how mezzo made a model, from its metadata; empty without such metadata."""
    from mezzo.conversion.recall import describe_record

    return describe_record(open_source(src, trust_external_paths, None))


def _given_plan(source: Plan | str | os.PathLike[str] | None) -> Plan | None:
    return source if source is None or isinstance(source, Plan) else planfile.load_plan(source)
