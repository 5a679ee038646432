"""From a model to a converted model: the verbs of the library. Puts the planner and the ONNX front end together."""

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from mezzo.core.plans import AddCast, Plan, PlannedNode
from mezzo.core.request import IO, PolicyLike, Request, TargetLike
from mezzo.deciding.options import Options, read_options, replay_options
from mezzo.errors import InputError
from mezzo.files import planfile
from mezzo.places import check_destination

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.converting.conversion import Decided
    from mezzo.dtypes import DType
    from mezzo.frontends.onnx.model import OnnxModel
    from mezzo.numerics.datasets import Data
    from mezzo.numerics.measures import Measured
    from mezzo.views.outline import Outline
    from mezzo.views.picture import Picture

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a conversion did. Nodes count operators with a floating compute group; sizes include external data."""

    low_nodes: int
    high_nodes: int
    casts: int
    size_before_bytes: int
    size_after_bytes: int
    opset_before: int
    opset_after: int
    notes: tuple[str, ...]


@dataclass
class Converted:
    """A result. `model` is read back from the file where one was written. `measured` is what data has shown, if any
    was given.
    """

    plan: Plan
    summary: Summary
    path: Path | None = None
    measured: "Measured | None" = None
    _model: "onnx.ModelProto | None" = field(default=None, repr=False)
    _decided: "Decided | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def picture(self) -> "Picture":
        """What runs in which precision in numbers, and what stayed FP32 together; worked out when first asked for."""
        from mezzo.views.picture import draw

        assert self._decided is not None, "a conversion knows what it decided"
        return draw(self._decided.problem, self._decided.levels, self.plan)

    def outline(self) -> "Outline":
        """The graph that was planned, with the plan, as a report draws it."""
        from mezzo.views.outline import outline, outline_plan

        assert self._decided is not None, "a conversion knows what it decided"
        graph = self._decided.reading.graph
        return outline(graph, [outline_plan(graph, "result", self.plan)])

    @property
    def model(self) -> "onnx.ModelProto":
        if self._model is None:
            from mezzo.frontends.onnx.model import load_result

            assert self.path is not None, "a result is in memory or in a file"
            self._model = load_result(self.path)
        return self._model


def convert(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    policy: "PolicyLike | None" = None,
    strategy: str | None = None,
    target: TargetLike = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    keep_region: Sequence[str] | None = None,
    fix_region: Mapping[str, str] | None = None,
    io: IO | None = None,
    out_of_range: str | None = None,
    opset: str | None = None,
    assume: Mapping[str, str] | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    data: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    trust_external_paths: bool = False,
    overwrite: bool = False,
    provenance: bool = True,
    progress: Progress | None = None,
) -> Converted:
    """Convert an FP32 ONNX model to a typed mixed-precision one. The source is never changed.

    Args:
        to: "fp16", the default, or "bf16".
        policy: a preset's name ("balanced" unless given), the path of a policy file (.toml), a Policy, or a function
            that says of each node what it wants: of a `mezzo.core.selectors.Site`, or of one and "fp16" or "bf16". It
            returns "allow", "infer", "clear" or "deny", or one of these with the dtypes it sums up and hands on in, or
            None for what "balanced" says.
        strategy: how casts are placed, "mincut" unless given.
        target: what must load the result: a name, the path of a target file (.toml), or a Target; by default ONNX
            Runtime for fp16, the ONNX schema alone for bf16.
        include, exclude: lists of globs on node names, or "op:" and a glob on operators; exclude wins.
        keep_region: paths of scopes or modules to leave as they are, such as "encoder/layer.3"; globs work.
        fix_region: such paths to "fp16", "bf16" or "fp32": those parts run so, the rest is planned around them.
        io: "keep" (the default), "low", "follow" (outputs take what their producer makes), or a mapping of input and
            output names to "fp16", "bf16" or "fp32".
        out_of_range: what becomes of weights past the format's range: "protect", the default, keeps their users in
            FP32, "clamp" stores the largest finite number, "error" refuses.
        opset: "auto", the default, raises the model's opset where only a newer one allows the type; "keep" never does.
        assume: input names to the ends of what they hold, such as "0..255", in place of what is assumed without data.
        plan: a plan to replay instead of deciding; it has to be of this model, and options given beside it have to be
            those it was made with.
        data: an .npz file, a folder of them, or dicts of arrays by input name: what overflows on it keeps FP32, what
            was only suspected and fits runs low, and the result is checked on it in the true precision; `labels` names
            arrays that are no inputs, `batch_size` splits along the first axis.
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
    replayed = _given_plan(plan)
    if replayed is not None and data is not None:
        raise InputError("data cannot change what a plan has decided; leave one of them out, or use 'mezzo compare'")
    options = {
        "to": to, "policy": policy, "strategy": strategy, "target": target, "include": include, "exclude": exclude,
        "keep_region": keep_region, "fix_region": fix_region, "io": io, "out_of_range": out_of_range, "opset": opset,
        "assume": assume,
    }  # fmt: skip
    named = {name: value for name, value in options.items() if value is not None}
    if replayed is not None:
        replaying = replace(replay_options(named, replayed), is_recorded=provenance)
        model = open_source(src, trust_external_paths, progress)
        return _convert(model, dst, replaying, replayed, overwrite=overwrite)
    request = Request(**named, provenance=provenance)  # type: ignore[arg-type]  # its own fields
    model = open_source(src, trust_external_paths, progress)
    if data is None:
        return convert_opened(model, dst, request, overwrite=overwrite)
    from mezzo.search.protecting import convert_on_data

    return convert_on_data(model, dst, request, data, labels=labels, batch_size=batch_size, overwrite=overwrite)


def convert_opened(
    model: "OnnxModel", dst: str | os.PathLike[str] | None, request: Request, *, overwrite: bool = False
) -> Converted:
    """Convert a model that is open. Options and errors are those of `convert`."""
    return _convert(model, dst, read_options(request), None, overwrite=overwrite)


def _convert(
    model: "OnnxModel", dst: str | os.PathLike[str] | None, options: Options, plan: Plan | None, *, overwrite: bool
) -> Converted:
    from mezzo.converting.conversion import convert_model
    from mezzo.converting.recalling import recall

    heeding = recall(model, options) if plan is None else options
    decided, result = convert_model(model, heeding, plan)
    return finish(model, decided, result, dst, overwrite=overwrite)


def finish(
    model: "OnnxModel",
    decided: "Decided",
    result: "onnx.ModelProto",
    dst: str | os.PathLike[str] | None,
    *,
    overwrite: bool = False,
    measured: "Measured | None" = None,
) -> Converted:
    """Write a result, or keep it in memory where there is no `dst`."""
    path = None if dst is None else Path(dst)
    if decided.spell_record is not None:
        model.note_record(result, decided.spell_record())
    if path is not None:
        size = model.write(result, path, overwrite=overwrite)
        return Converted(decided.plan, _summary(model, decided, size), path, measured, None, decided)
    filled = model.materialize(result)
    return Converted(decided.plan, _summary(model, decided, filled.ByteSize()), None, measured, filled, decided)


class PlanOptions(TypedDict, total=False):
    """The options of `convert` that decide; their defaults are the same."""

    to: str
    policy: PolicyLike
    strategy: str
    target: TargetLike
    include: Sequence[str]
    exclude: Sequence[str]
    keep_region: Sequence[str]
    fix_region: Mapping[str, str]
    io: IO
    out_of_range: str
    opset: str
    assume: Mapping[str, str]
    trust_external_paths: bool


def read_plan_options(given: PlanOptions) -> tuple[Options, bool]:
    """Validate what decides, and say whether external paths are trusted. Errors are those of `convert`."""
    options = given.copy()
    trust = options.pop("trust_external_paths", False)
    return read_options(Request(**options)), trust  # type: ignore[misc]  # what is left are a request's fields


def plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide without converting. Options and errors are those of `convert`."""
    from mezzo.converting.conversion import convert_model
    from mezzo.converting.recalling import recall

    chosen, trust = read_plan_options(options)
    model = open_source(src, trust, progress)
    return convert_model(model, recall(model, chosen), None)[0].plan


def explain(of: Plan, node: str) -> tuple[PlannedNode, ...]:
    """The node, the node that caused its precision, the one that caused that, and so on.

    Raises:
        InputError: the plan has no such node.
    """
    found = of.by_name.get(node)
    if found is None:
        close = difflib.get_close_matches(node, of.by_name, n=3)
        hint = (
            f"did you mean {', '.join(repr(c) for c in close)}?" if close else "'mezzo plan MODEL --nodes' lists them"
        )
        raise InputError(f"no node {node!r} computes floats in this model; {hint}")
    chain = [found]
    while chain[-1].cause is not None and chain[-1].cause in of.by_name:
        following = of.by_name[chain[-1].cause]
        if following in chain:
            break
        chain.append(following)
    return tuple(chain)


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
    from mezzo.converting.conversion import convert_model

    model = open_source(src, trust_external_paths, progress)
    decided = convert_model(model, replay_options({}, of), of)[0]
    values = decided.reading.graph.values
    return [(values[edit.value].name, edit.dtype) for edit in decided.plan.edits if isinstance(edit, AddCast)]


def show(src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False) -> str:
    """The typed text of a model: one line per input, weight, node and output."""
    from mezzo.frontends.onnx.show import show_model

    return show_model(open_source(src, trust_external_paths, None).source.model)


def tell_origin(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> tuple[str, ...]:
    """What a model's metadata says of how mezzo made it, a line each; nothing where it does not say."""
    from mezzo.converting.recalling import tell_record

    return tell_record(open_source(src, trust_external_paths, None))


def decided_nodes(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> tuple[PlannedNode, ...]:
    """What a model's metadata says of its nodes: what each runs in, and why; nothing where it does not say."""
    from mezzo.converting.recalling import read_record

    recalled = read_record(open_source(src, trust_external_paths, None))[0]
    return () if recalled is None else tuple(recalled.planned.values())


def open_source(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", trust: bool, progress: Progress | None
) -> "OnnxModel":
    """Open a model, of whatever kind. Errors are those of `convert`."""
    from mezzo.frontends.onnx.model import open_model

    return open_model(src, trust_external_paths=trust, progress=progress)


def _given_plan(given: Plan | str | os.PathLike[str] | None) -> Plan | None:
    return given if given is None or isinstance(given, Plan) else planfile.load_plan(given)


def _summary(model: "OnnxModel", decided: "Decided", size_after_bytes: int) -> Summary:
    low, high = decided.count_nodes()
    before = model.opset or 0
    notes = list(decided.plan.notes)
    if decided.plan.opset is not None and decided.plan.opset != before:
        notes.append(
            f"the opset went from {before} to {decided.plan.opset}: only there the schema allows {decided.plan.low}"
        )
    return Summary(
        low, high, sum(isinstance(e, AddCast) for e in decided.plan.edits), model.source.size_bytes,
        size_after_bytes, before, decided.plan.opset or before, tuple(notes),
    )  # fmt: skip
