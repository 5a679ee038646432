"""From a model to a converted model: the verbs of the library. Puts the planner and a front end together."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, verb
from mezzo.common.safe_paths import check_destination, check_destinations, kept_beside
from mezzo.contracts.options.keyword_types import ConvertOptions, PlanOptions
from mezzo.contracts.options.keywords import named_settings, request_of, tells_options
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import AddCast, Plan
from mezzo.conversion.results import Converted, Progress, aimed, finish, open_source, read_plan_options
from mezzo.io import planfile
from mezzo.planner.options import Options, check_parameters, read_options, replay_options

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model
    from mezzo.formats.dtypes import DType
    from mezzo.numerics.data.datasets import Data


@tells_options
def convert(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: str | os.PathLike[str] | None = None,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    data: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> Converted:
    """Convert an FP32 ONNX model to a typed mixed-precision one. The source is never changed.

    Args:
        to: "fp16", "bf16" or "int8", or "int8" beside one of the floats, as "int8,bf16" or as a tuple; left out what
            gains on the target that is named, on this machine, else "fp16". Two floats are refused: no two of them
            stand on one line of levels.
        policy: a preset's name ("balanced" unless given), the path of a policy file (.toml), a Policy, or a function
            that says of each node what it wants: of a `mezzo.ir.selectors.Site`, or of one and "fp16" or "bf16". It
            returns "allow", "infer", "clear" or "deny", or one of these with the dtypes it sums up and hands on in, or
            None for what "balanced" says.
        strategy: how casts are placed, "mincut" unless given.
        target: what must load the result: a name, the path of a target file (.toml), or a Target; by default ONNX
            Runtime for fp16 and int8, the ONNX schema alone for bf16, OpenVINO for int8,bf16, TensorRT for int8,fp16.
        include, exclude: lists of globs on node names, or "op:" and a glob on operators; exclude wins.
        keep_region: paths of scopes or modules to leave as they are, such as "encoder/layer.3"; globs work.
        fix_region: such paths to "fp16", "bf16" or "fp32": those parts run so, the rest is planned around them.
        io: "keep" (the default), "low", "follow" (outputs take what their producer makes), or a mapping of input and
            output names to "fp16", "bf16" or "fp32".
        out_of_range: what becomes of weights past the format's range: "protect", the default, keeps their users in
            FP32, "clamp" stores the largest finite number, "error" refuses.
        opset: "auto", the default, raises the version of the model's dialect, ONNX's opset, where only a newer one
            allows the type; "keep" never does.
        fuse: "standard", the default, brings what is to be quantized to normal form, folds and rewrites it in standard
            ONNX, and leaves floats as they are, but for norms by a root's reciprocal, which are written as quotients
            where the target's runtime knows no others; "simplify" does so for floats too; "none" leaves all as it is.
        assume: input names to the ends of what they hold, such as "0..255", in place of what is assumed without data.
        plan: a plan to replay instead of deciding; it has to be of this model, and options given beside it have to be
            those it was made with.
        data: an .npz file, a folder of them, or dicts of arrays by input name: what overflows on it keeps FP32, what
            was only suspected and fits runs low, and the result is checked on it in the true precision; `labels` names
            arrays that are no inputs, `batch_size` splits along the first axis. "random" draws inputs that fit it:
            they add protection, and lift none.
        resume: with `data`, a file that keeps what searches for nodes that go back to FP32 have run, so that a
            conversion that was ended goes on; what was measured and collected before is kept beside it, in
            FILE.ranges.npz and FILE.calibration.npz. Checks of a result begin anew.
        check: whether the result is run on the target's runtime where that is installed: what it answers, what it
            computes on integers, how fast it is. What the runtime does otherwise than planned goes back to floats.
        provenance: whether the result's metadata says what made it: mezzo's version, the options and the plan. A model
            that says so keeps its FP32 nodes when it is converted again, unless another format, policy, strategy or
            target is asked for.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, a pattern, the plan or the file is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise, or `out_of_range="error"` refuses.
    """
    if dst is not None:
        check_destination(dst)
    kept = {what: kept_beside(resume, what) for what in ("ranges", "calibration")}
    check_destinations({"resume": resume, **kept}, () if dst is None else (Path(dst),))
    replayed = _given_plan(plan)
    if replayed is not None and data is not None:
        raise InputError(f"data cannot change what a plan has decided; leave one of them out, or use {verb('compare')}")
    about_data = {"labels": labels or None, "batch_size": batch_size, "resume": resume}
    if data is None and any(value is not None for value in about_data.values()):
        name = next(name for name, value in about_data.items() if value is not None)
        raise InputError(f"{option(name)} is about data, and none is given; give {option('data')} too, or leave it out")
    request = aimed(src, request_of(options))
    if replayed is not None:
        replaying = replay_options(named_settings(options), replayed)
        replaying = replace(replaying, is_recorded=request.provenance, is_checked=request.check)
        model = open_source(src, request.trust_external_paths, progress)
        return _convert(model, dst, replaying, replayed, overwrite=overwrite)
    model = open_source(src, request.trust_external_paths, progress)
    if data is None:
        return convert_opened(model, dst, request, overwrite=overwrite)
    from mezzo.tuning.repair.overflow_protection import convert_on_data

    return convert_on_data(
        model, dst, request, data, labels=labels, batch_size=batch_size, overwrite=overwrite, resume=resume
    )


def convert_opened(
    model: "Model", dst: str | os.PathLike[str] | None, request: Request, *, overwrite: bool = False
) -> Converted:
    """Convert a model that is open. Options and errors are those of `convert`."""
    options = check_parameters(read_options(request))
    if options.prepares_model:
        model, options = _with_weights(model, options)
    return _convert(model, dst, options, None, overwrite=overwrite)


def _with_weights(model: "Model", options: Options) -> "tuple[Model, Options]":
    """The model to plan and its options, with the scales of weights, where no data gives those of data."""
    from mezzo.quantize.calibration import without_data

    return without_data(model, options)


def _convert(
    model: "Model", dst: str | os.PathLike[str] | None, options: Options, plan: Plan | None, *, overwrite: bool
) -> Converted:
    from mezzo.conversion.conversion import convert_model
    from mezzo.conversion.recall import recall

    heeding = recall(model, options) if plan is None else options
    decided, result = convert_model(model, heeding, plan)
    if not decided.may_gain:
        return finish(model, decided, result, dst, overwrite=overwrite)
    from mezzo.tuning.repair.runtime_check import PlannedResult, measured_without_data

    first = PlannedResult(decided=decided, result=result, options=heeding)
    last, measured = measured_without_data(model, first, may_change=plan is None)
    return finish(model, last.decided, last.result, dst, overwrite=overwrite, measured=measured)


@tells_options
def plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide without converting. Options and errors are those of `convert`."""
    from mezzo.conversion.conversion import convert_model
    from mezzo.conversion.recall import asks_for_more, recall

    chosen, trust = read_plan_options(src, options)
    model = open_source(src, trust, progress)
    heeding = recall(model, chosen)
    is_kept = heeding.recalled is not None and not asks_for_more(heeding)
    if is_kept or not chosen.prepares_model:
        return convert_model(model, heeding, None)[0].plan
    planned = convert_model(*_with_weights(model, heeding), None)[0].plan
    # Scales that stand for none are none to be replayed.
    return planned if chosen.planning.is_dynamic else replace(planned, quantized=())


def casts_of_plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    of: Plan,
    *,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> "list[tuple[str, DType]]":
    """The casts that a saved plan makes of its model: the value's name and the dtype made.

    Raises:
        InputError: the plan is of another model.
        ContractError: the plan cannot be carried out.
    """
    from mezzo.conversion.conversion import convert_model

    model = open_source(src, trust_external_paths, progress)
    decided = convert_model(model, replay_options({}, of), of)[0]
    values = decided.reading.graph.values
    return [(values[edit.value].name, edit.dtype) for edit in decided.plan.edits if isinstance(edit, AddCast)]


def show(src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False) -> str:
    """The typed text of a model: one line per input, weight, node and output."""
    return open_source(src, trust_external_paths, None).show()


def tell_origin(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> tuple[str, ...]:
    """What a model's metadata says of how mezzo made it, a line each; nothing where it does not say."""
    from mezzo.conversion.recall import tell_record

    return tell_record(open_source(src, trust_external_paths, None))


def _given_plan(given: Plan | str | os.PathLike[str] | None) -> Plan | None:
    return given if given is None or isinstance(given, Plan) else planfile.load_plan(given)
