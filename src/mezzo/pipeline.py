"""From a model to a converted model: the verbs of the library. Puts the planner and the ONNX front end together."""

import difflib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo import planfile
from mezzo.check import check
from mezzo.discovery import policy as find_policy
from mezzo.discovery import strategy as find_strategy
from mezzo.discovery import target as find_target
from mezzo.dtypes import FORMATS, HIGH, LOW_DTYPES, DType
from mezzo.errors import ContractError, InputError
from mezzo.graph import Graph, Kind
from mezzo.lower import lower
from mezzo.plan import AddCast, Plan, PlannedNode, Reason, uniform
from mezzo.planner import Judged, Wishes, judge, reasons, rows_of
from mezzo.policy import Category
from mezzo.strategy import Choice
from mezzo.structure import View
from mezzo.structure.constants import out_of_range as find_out_of_range

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.frontends.onnx.model import OnnxModel, Reading

_log = logging.getLogger(__name__)

Model = "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model"
Progress = Callable[[str, int, int], None]
IO = str | Mapping[str, str]

# How often a result that the checker refuses is planned again without the operators it names.
_REPAIRS = 4


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a conversion, validated. See `convert`."""

    wishes: Wishes
    out_of_range: str
    opset: str
    settings: tuple[tuple[str, str], ...]


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
    """A result. `model` is read back from the file where one was written."""

    plan: Plan
    summary: Summary
    path: Path | None = None
    _model: "onnx.ModelProto | None" = field(default=None, repr=False)

    @property
    def model(self) -> "onnx.ModelProto":
        if self._model is None:
            import onnx

            assert self.path is not None, "a result is in memory or in a file"
            self._model = onnx.load(str(self.path))
        return self._model


@dataclass(frozen=True)
class _Decided:
    """A reading with its plan, ready to apply."""

    reading: "Reading"
    plan: Plan
    is_low: Sequence[bool]


def convert(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: str | os.PathLike[str] | None = None,
    *,
    to: str = "fp16",
    policy: str = "balanced",
    strategy: str = "mincut",
    target: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    io: IO = "keep",
    out_of_range: str = "protect",
    opset: str = "auto",
    plan: Plan | str | os.PathLike[str] | None = None,
    trust_external_paths: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Convert an FP32 ONNX model to a typed mixed-precision one. The source is never changed.

    Args:
        to: "fp16" or "bf16".
        target: what must load the result; by default ONNX Runtime for fp16, the ONNX schema alone for bf16.
        include, exclude: globs on node names, or "op:" and a glob on operators; exclude wins.
        io: "keep", "low", or a mapping of input and output names to "fp16", "bf16" or "fp32".
        out_of_range: what becomes of weights past the format's range: "protect" keeps their users in FP32, "clamp"
            stores the largest finite number, "error" refuses.
        opset: "auto" raises the model's opset where only a newer one allows the type; "keep" never does.
        plan: a plan to replay instead of deciding; it has to be of this model.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, a pattern, the plan or the file is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise, or `out_of_range="error"` refuses.
    """
    options = _options(to, policy, strategy, target, include, exclude, io, out_of_range, opset)
    model = _open(src, trust_external_paths, progress)
    decided, result = _decide_and_apply(model, options, _given_plan(plan))
    path = None if dst is None else Path(dst)
    if path is not None:
        size = model.write(result, path, overwrite=overwrite)
        return Converted(decided.plan, _summary(model, decided, size), path)
    filled = model.materialize(result)
    return Converted(decided.plan, _summary(model, decided, filled.ByteSize()), None, filled)


def plan(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    to: str = "fp16",
    policy: str = "balanced",
    strategy: str = "mincut",
    target: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    io: IO = "keep",
    out_of_range: str = "protect",
    opset: str = "auto",
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Decide without converting. Options and errors are those of `convert`."""
    options = _options(to, policy, strategy, target, include, exclude, io, out_of_range, opset)
    return _decide_and_apply(_open(src, trust_external_paths, progress), options, None)[0].plan


def explain(of: Plan, node: str) -> tuple[PlannedNode, ...]:
    """The node, the node that caused its precision, the one that caused that, and so on.

    Raises:
        InputError: the plan has no such node.
    """
    found = of.by_name.get(node)
    if found is None:
        close = difflib.get_close_matches(node, of.by_name, n=3)
        hint = f"did you mean {', '.join(repr(c) for c in close)}?" if close else "names are those of 'mezzo show'"
        raise InputError(f"the model has no node {node!r}; {hint}")
    chain = [found]
    while chain[-1].cause is not None and chain[-1].cause in of.by_name:
        following = of.by_name[chain[-1].cause]
        if following in chain:
            break
        chain.append(following)
    return tuple(chain)


def show(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> str:
    """The typed text of a model: one line per input, weight, node and output."""
    from mezzo.frontends.onnx.show import show_model

    return show_model(_open(src, trust_external_paths, None).source.model)


def _open(src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", trust: bool, progress: Progress | None) -> "OnnxModel":
    from mezzo.frontends.onnx.model import open_model

    return open_model(src, trust_external_paths=trust, progress=progress)


def _given_plan(given: Plan | str | os.PathLike[str] | None) -> Plan | None:
    return given if given is None or isinstance(given, Plan) else planfile.load_plan(given)


def _choose(option: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InputError(f"{option} is {value!r}; choose one of {', '.join(choices)}")
    return value


def _options(
    to: str, policy: str, strategy: str, target: str | None, include: Sequence[str], exclude: Sequence[str], io: IO,
    out_of_range: str, opset: str,
) -> Options:  # fmt: skip
    low = LOW_DTYPES[_choose("to", to, tuple(LOW_DTYPES))]
    _choose("out_of_range", out_of_range, ("protect", "clamp", "error"))
    _choose("opset", opset, ("auto", "keep"))
    if target is None:
        target = "onnxruntime-cpu" if low is DType.FLOAT16 else "any"
    chosen = find_policy(policy)
    if out_of_range == "clamp":
        chosen = replace(chosen, findings=chosen.findings - {"constant-out-of-range"})
    dtypes = {**LOW_DTYPES, "fp32": HIGH}
    by_name: dict[str, DType] = {}
    default = HIGH
    if isinstance(io, str):
        default = low if _choose("io", io, ("keep", "low")) == "low" else HIGH
    else:
        for name, text in io.items():
            by_name[name] = dtypes[_choose(f"io of {name!r}", text, tuple(dtypes))]
            if by_name[name] not in (HIGH, low):
                raise InputError(f"io of {name!r} is {text!r}; this conversion knows fp32 and {to}")
    wishes = Wishes(
        low, chosen, find_strategy(strategy), find_target(target), tuple(include), tuple(exclude), by_name, default
    )
    settings = (
        ("to", to), ("policy", policy), ("strategy", strategy), ("target", target), ("include", " ".join(include)),
        ("exclude", " ".join(exclude)), ("io", io if isinstance(io, str) else ",".join(f"{k}={v}" for k, v in io.items())),
        ("out_of_range", out_of_range), ("opset", opset),
    )  # fmt: skip
    return Options(wishes, out_of_range, opset, settings)


def _decide_and_apply(model: "OnnxModel", options: Options, given: Plan | None) -> "tuple[_Decided, onnx.ModelProto]":
    """Plan, apply and verify. What the checker refuses is taken back, with its reason."""
    from mezzo.frontends.onnx.model import suspects

    banned: dict[str, str] = {}
    for attempt in range(_REPAIRS + 1):
        decided = _replay(model, options, given) if given is not None else _decide(model, options, banned)
        graph = decided.reading.graph
        result = model.apply(decided.reading, decided.plan.edits, is_clamped=options.out_of_range == "clamp")
        fault = model.fault(result)
        if fault is None:
            return decided, result
        original = model.fault(model.source.model)
        if original is not None:
            from mezzo.errors import ModelError

            raise ModelError(f"{model.source.blobs.name} is not valid ONNX: {original[:300]}; mend the model first")
        if given is not None or attempt == _REPAIRS or not decided.plan.edits:
            break
        _log.debug("the checker refused attempt %d: %s", attempt, fault)
        low = {n.id for n in graph.nodes if decided.is_low[n.id]}
        culprits = suspects(graph, fault) & low if attempt < _REPAIRS - 1 else low
        for number in culprits or low:
            banned[graph.nodes[number].name] = f"the ONNX checker refused it low: {fault[:200]}"
    raise ContractError(f"the result would not be valid ONNX: {fault[:300]}; report this model")


def _decide(model: "OnnxModel", options: Options, banned: Mapping[str, str]) -> _Decided:
    wishes = options.wishes
    reading = model.read(wishes.low)
    judged = judge(reading.graph, wishes)
    if options.opset == "auto":
        step = model.helpful_opset(reading.graph, _held_by_schema(judged, wishes), wishes.low, wishes.target.max_opset)
        if step is not None:
            reading = model.read(wishes.low, step)
            judged = judge(reading.graph, wishes)
    if options.out_of_range == "error":
        _refuse_out_of_range(reading.graph, wishes)
    if banned:
        judged = _ban(judged, banned)
    problem = judged.problem
    is_low = wishes.strategy.assign(problem)
    edits = lower(problem.graph, problem.high, problem.low, is_low)
    faults = check(problem, is_low, edits)
    assert not faults, f"strategy {wishes.strategy.name} or lower broke a rule: {faults[0]}"
    why = reasons(judged, is_low, wishes)
    for number, node in enumerate(problem.graph.nodes):
        if node.name in banned:
            why[number] = Reason("contract", banned[node.name])
    opset = reading.opset if reading.opset != model.opset else None
    made = Plan(
        problem.graph.fingerprint, problem.high, problem.low, opset, options.settings,
        _planned_nodes(judged, is_low, why), edits, _notes(reading.graph, wishes, is_low),
    )  # fmt: skip
    return _Decided(reading, made, is_low)


def _held_by_schema(judged: Judged, wishes: Wishes) -> list[int]:
    """Nodes that policy and target would grant low, and only the schema at this opset does not."""
    found = []
    for node, verdict in zip(judged.problem.graph.nodes, judged.verdicts, strict=True):
        signature = node.signature
        if node.kind is not Kind.OP or signature.dtype is not HIGH or signature.dialect != "onnx":
            continue
        is_refused = any(
            r.op == signature.op and r.refuses(signature.version, node.attributes, wishes.low) for r in wishes.target.refusals
        )
        if wishes.low not in signature.legal and verdict.category is not Category.DENY and not is_refused:
            found.append(node.id)
    return found


def _ban(judged: Judged, banned: Mapping[str, str]) -> Judged:
    choices = tuple(
        Choice.HIGH if choice is Choice.FREE and node.name in banned else choice
        for node, choice in zip(judged.problem.graph.nodes, judged.problem.choices, strict=True)
    )
    return Judged(replace(judged.problem, choices=choices), judged.verdicts)


def _refuse_out_of_range(graph: Graph, wishes: Wishes) -> None:
    view = View(graph, rows_of(graph), FORMATS[wishes.low])
    for finding in find_out_of_range(view):
        name = graph.nodes[finding.node].name
        raise ContractError(f"node {name!r}: {finding.because}; use --out-of-range protect or clamp, or mend the weights")


def _planned_nodes(judged: Judged, is_low: Sequence[bool], why: Sequence[Reason]) -> tuple[PlannedNode, ...]:
    problem = judged.problem
    high, low = uniform(problem.high), uniform(problem.low)
    nodes = problem.graph.nodes
    return tuple(
        PlannedNode(
            node.name, node.op, node.kind.value, low if is_low[node.id] else high, problem.categories[node.id],
            reason.rule, reason.because, None if reason.cause is None else nodes[reason.cause].name,
        )
        for node, reason, choice in zip(nodes, why, problem.choices, strict=True)
        if choice is not Choice.ABSENT
    )  # fmt: skip


def _notes(graph: Graph, wishes: Wishes, is_low: Sequence[bool]) -> tuple[str, ...]:
    notes = list(graph.notes)
    if any(is_low[n.id] for n in graph.nodes if n.kind is Kind.OP):
        notes += wishes.target.notes
    else:
        notes.append("nothing gains from low precision here, so nothing was changed")
    return tuple(notes)


def _replay(model: "OnnxModel", options: Options, given: Plan) -> _Decided:
    """Read the assignment from a plan, and lower it anew.

    Raises:
        InputError: the plan is of another model, misses a node, or asks for what is not legal.
    """
    reading = model.read(given.low, given.opset)
    graph = reading.graph
    if graph.fingerprint != given.fingerprint:
        raise InputError("the plan was made for another model: their structures differ; make a new one with 'mezzo plan'")
    wishes = replace(options.wishes, low=given.low)
    judged = judge(graph, wishes)
    problem = judged.problem
    is_low = [False] * len(graph.nodes)
    choices = list(problem.choices)
    for node in graph.nodes:
        if choices[node.id] is Choice.ABSENT:
            continue
        entry = given.by_name.get(node.name)
        if entry is None:
            raise InputError(f"the plan says nothing of node {node.name!r}; add it or make a new plan with 'mezzo plan'")
        if entry.precision not in (uniform(given.high), uniform(given.low)):
            raise InputError(
                f"node {node.name!r}: the plan asks for {entry.precision.compute}; this model can be replayed in "
                f"{given.high} and {given.low}"
            )
        is_low[node.id] = entry.precision.compute is given.low
        if node.kind in (Kind.INPUT, Kind.OUTPUT) or choices[node.id] is not Choice.LOW:
            choices[node.id] = Choice.FREE
    problem = replace(problem, choices=tuple(choices))
    edits = lower(graph, given.high, given.low, is_low)
    faults = check(problem, is_low, edits)
    if faults:
        raise InputError(f"the plan cannot be carried out: {faults[0]}; change its precision in the plan")
    return _Decided(reading, replace(given, edits=edits), is_low)


def _summary(model: "OnnxModel", decided: _Decided, size_after_bytes: int) -> Summary:
    ops = [node for node in decided.plan.nodes if node.kind == "op"]
    low = sum(1 for node in ops if node.precision.compute is decided.plan.low)
    before = model.opset or 0
    notes = list(decided.plan.notes)
    if decided.plan.opset is not None and decided.plan.opset != before:
        notes.append(f"the opset went from {before} to {decided.plan.opset}: only there the schema allows {decided.plan.low}")
    return Summary(
        low, len(ops) - low, sum(isinstance(e, AddCast) for e in decided.plan.edits), model.source.size_bytes,
        size_after_bytes, before, decided.plan.opset or before, tuple(notes),
    )  # fmt: skip
