"""One conversion: read, judge, assign, lower, check, apply, verify; and again without what the checker refuses."""

import gc
import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mezzo.converting.opset_steps import assign, settle
from mezzo.converting.recalling import asks_for_more, spell_record, spell_replay
from mezzo.core.graph import Graph, Kind
from mezzo.core.levels import uniform
from mezzo.core.plans import AddCopy, Edit, Plan, PlannedNode, Reason, Retype
from mezzo.core.policy import Category
from mezzo.core.strategy import Choice, Problem, Side
from mezzo.deciding.check import check
from mezzo.deciding.choosing import refusal_of
from mezzo.deciding.lower import lower
from mezzo.deciding.options import Options, check_pair
from mezzo.deciding.planner import Judged, judge, rows_of
from mezzo.deciding.reasons import reasons
from mezzo.deciding.recalled import Recalled
from mezzo.deciding.recording import Decisions, category_of, precision_of
from mezzo.deciding.wishes import Wishes
from mezzo.dtypes import FORMATS, HIGH
from mezzo.errors import ContractError, InputError, MezzoError, ModelError
from mezzo.frontends.onnx.model import OnnxModel, Reading, suspects
from mezzo.structure import View
from mezzo.structure.constants import out_of_range as find_out_of_range

if TYPE_CHECKING:
    import onnx

_log = logging.getLogger(__name__)

# How often a result that the checker refuses is planned again without the operators it names.
_REPAIRS = 4
_LONGEST_FAULT = 300


@dataclass(frozen=True)
class Decided:
    """A reading with its plan, ready to apply."""

    reading: Reading
    plan: Plan
    problem: Problem
    levels: Sequence[int]
    spell_record: Callable[[], str] | None = None  # how the result was made, once its edits are applied

    def count_nodes(self) -> tuple[int, int]:
        """Operators that run beside the base, and those that could and do not."""
        counts = self.problem.graph.columns.is_kind(Kind.OP) & ~self.problem.is_absent
        beside = np.array(self.levels, np.int64) != self.problem.line.base
        return int((counts & beside).sum()), int((counts & ~beside).sum())


def convert_model(model: OnnxModel, options: Options, given: Plan | None) -> "tuple[Decided, onnx.ModelProto]":
    """Plan, apply and verify. What goes wrong on a model that the checker refuses is the model's fault, and says so.

    Raises:
        ModelError: the model is not valid ONNX.
        InputError: the plan does not fit the model.
        ContractError: the result would break a promise.
    """
    try:
        with _collector_paused():
            return decide_and_apply(model, options, given)
    except MezzoError:
        raise
    except Exception as error:
        if model.standing.fault is None:
            raise
        raise _invalid(model) from error


def _invalid(model: OnnxModel) -> ModelError:
    fault = (model.standing.fault or "")[:_LONGEST_FAULT]
    return ModelError(f"{model.source.blobs.name} is not valid ONNX: {fault}; mend the model first")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Hold the cyclic garbage collector off. A conversion makes millions of tuples and no cycles worth looking for,
    and the collector would look through all of them again and again: a third of the time, and not linear."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # someone else's frozen objects would thaw with ours
                # Straight to the oldest generation, or the first collection would look through all of them at once.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def decide_and_apply(model: OnnxModel, options: Options, given: Plan | None) -> "tuple[Decided, onnx.ModelProto]":
    """Plan, apply and verify. What the checker refuses is taken back, with its reason."""
    if given is None and options.recalled is not None and not asks_for_more(options):
        return _keep(model, options, options.recalled)
    banned: dict[str, str] = {}
    fault: str | None = None
    for attempt in range(_REPAIRS + 1):
        _tell(model, "planning")
        decided = _replay(model, options, given) if given is not None else _decide(model, options, banned)
        graph = decided.reading.graph
        result = model.apply(decided.reading, decided.plan.edits)
        _tell(model, "checking")
        fault = model.fault(result)
        if fault is None:
            return _with_note(model, decided), result
        if model.standing.strictness is None:
            raise _invalid(model)
        if given is not None:
            raise ContractError(f"the plan's result would not be valid ONNX: {fault[:_LONGEST_FAULT]}; change the plan")
        _log.debug("the checker refused attempt %d: %s", attempt, fault)
        problem = decided.problem  # what the model holds low as it came, mezzo cannot take back
        may_go_back = problem.allowed[problem.line.base]
        low = {n.id for n in graph.nodes if decided.levels[n.id] != problem.line.base and may_go_back[n.id]}
        culprits = suspects(graph, fault) & low if attempt < _REPAIRS - 1 else low
        for number in culprits or low:
            banned[graph.nodes[number].name] = f"the ONNX checker refused it low: {fault[:200]}"
    return _leave_alone(model, options, fault or "")


def _with_note(model: OnnxModel, decided: Decided) -> Decided:
    """Let the plan say so where the result was held to less than the full check."""
    if model.leniency is None or model.leniency in decided.plan.notes:
        return decided
    return replace(decided, plan=replace(decided.plan, notes=(*decided.plan.notes, model.leniency)))


def _tell(model: OnnxModel, stage: str) -> None:
    if model.progress is not None:
        model.progress(stage, 0, 0)


def _leave_alone(model: OnnxModel, options: Options, fault: str) -> "tuple[Decided, onnx.ModelProto]":
    """The model as it came, with the reason: no conversion of it satisfies the checker."""
    wishes = options.wishes
    reading = model.read(wishes.low)
    judged = judge(reading.graph, wishes)
    banned = {node.name: f"the ONNX checker refuses any change: {fault[:200]}" for node in reading.graph.nodes}
    levels = judged.problem.given_levels
    judged = _ban(judged, banned)
    made = _make_plan(judged, levels, (), reading, None, options, banned)
    record = _recorder(model, reading, judged, levels, options, banned)
    return Decided(reading, made, judged.problem, levels, record), reading.handles.model


def _keep(model: OnnxModel, options: Options, recalled: Recalled) -> "tuple[Decided, onnx.ModelProto]":
    """The model as it came: it tells how it was decided, and nothing else is asked for.

    Raises:
        ModelError: the model is not valid ONNX.
    """
    reading = model.read(options.wishes.low)
    judged = judge(reading.graph, options.wishes)
    levels = judged.problem.given_levels
    made = _make_plan(judged, levels, (), reading, None, options, {})
    _tell(model, "checking")
    fault = model.fault(reading.handles.model)
    if fault is not None:
        raise ModelError(f"{model.source.blobs.name} is not valid ONNX: {fault[:_LONGEST_FAULT]}; mend the model first")
    record = (lambda: recalled.text) if options.is_recorded else None
    return Decided(reading, made, judged.problem, levels, record), reading.handles.model


def _recorder(
    model: OnnxModel,
    reading: Reading,
    judged: Judged,
    levels: Sequence[int],
    options: Options,
    banned: Mapping[str, str],
) -> Callable[[], str] | None:
    """What tells of these decisions in the result; None where it is to tell nothing."""
    if not options.is_recorded or options.wishes.policy.name == "off":  # which is to leave a model as it is
        return None
    told = {name: Reason("contract", because) for name, because in banned.items()}
    return spell_record(model, reading, Decisions(judged, levels, options.wishes, told), options)


def judge_model(model: OnnxModel, options: Options) -> tuple[Reading, Judged]:
    """Read a model and judge its nodes, at the smallest opset that helps where a step is allowed."""
    wishes = options.wishes
    reading, judged = _judge_at(model, options, None)
    while options.opset == "auto":  # a step may let a node run low that makes the next step worth taking
        held = _held_by_schema(judged, wishes)
        step = model.helpful_opset(reading, held, wishes.low, wishes.target.max_opset)
        if step is None:
            break
        reading, judged = _judge_at(model, options, step)
    return reading, judged


def _judge_at(model: OnnxModel, options: Options, opset: int | None) -> tuple[Reading, Judged]:
    reading = model.read(options.wishes.low, opset)
    return reading, judge(reading.graph, options.wishes)


def _decide(model: OnnxModel, options: Options, banned: Mapping[str, str]) -> Decided:
    wishes = options.wishes
    reading, judged = judge_model(model, options)
    if options.out_of_range == "error":
        _refuse_out_of_range(reading.graph, wishes, range(len(reading.graph.nodes)))

    def judge_smaller(opset: int | None) -> tuple[Reading, Judged]:
        # What was measured belongs to the nodes of the first reading.
        reading, judged = _judge_at(model, replace(options, wishes=replace(wishes, measured=None)), opset)
        return reading, _ban(judged, banned)

    planned = assign(reading, _ban(judged, banned), wishes.strategy)
    planned = settle(model, planned, wishes.strategy, judge_smaller)
    reading, judged, levels = planned.reading, planned.judged, planned.levels
    opset = reading.opset if reading.opset != model.opset else None
    made = _make_plan(judged, levels, planned.edits, reading, opset, options, banned)
    return Decided(reading, made, judged.problem, levels, _recorder(model, reading, judged, levels, options, banned))


def _make_plan(
    judged: Judged,
    levels: Sequence[int],
    edits: Sequence[Edit],
    reading: Reading,
    opset: int | None,
    options: Options,
    banned: Mapping[str, str],
) -> Plan:
    problem, wishes = judged.problem, options.wishes
    return Plan(
        problem.line,
        opset,
        options.settings,
        tuple(edits),
        _stored_within(reading.graph, edits),
        (*_notes(judged, wishes, levels), *options.notes),
        make_nodes=lambda: _tell_nodes(options, _planned_nodes(judged, levels, wishes, banned)),
        make_fingerprint=lambda: problem.graph.fingerprint,
        origin=options.notes,
    )


def _held_by_schema(judged: Judged, wishes: Wishes) -> list[int]:
    """Nodes that policy and target would grant low, and only the schema at this opset does not."""
    columns = judged.problem.graph.columns
    held = [s.dtype is HIGH and s.dialect == "onnx" and wishes.low not in s.legal for s in columns.signatures]
    is_held = np.array(held, bool)[columns.node_signature] & columns.is_kind(Kind.OP)
    nodes, verdicts = judged.problem.graph.nodes, judged.verdicts()
    return [
        number
        for number in np.flatnonzero(is_held).tolist()
        if verdicts[number].category is not Category.DENY and refusal_of(nodes[number], wishes, wishes.low) is None
    ]


def _ban(judged: Judged, banned: Mapping[str, str]) -> Judged:
    if not banned:
        return judged
    nodes = judged.problem.graph.nodes
    sides = tuple(
        replace(
            side,
            choices=tuple(
                Choice.HIGH if choice is Choice.FREE and node.name in banned else choice
                for node, choice in zip(nodes, side.choices, strict=True)
            ),
        )
        for side in judged.problem.sides
    )
    return replace(judged, problem=replace(judged.problem, sides=sides))


def _refuse_out_of_range(graph: Graph, wishes: Wishes, nodes: Container[int]) -> None:
    """Raises ContractError: one of the nodes reads a weight that the low format cannot hold."""
    view = View(graph, rows_of(graph), FORMATS[wishes.low])
    for finding in find_out_of_range(view):
        if finding.node not in nodes:
            continue
        name = graph.nodes[finding.node].name
        raise ContractError(
            f"node {name!r}: {finding.because}; use --out-of-range protect or clamp, or mend the weights"
        )


def _planned_nodes(
    judged: Judged, levels: Sequence[int], wishes: Wishes, banned: Mapping[str, str]
) -> tuple[PlannedNode, ...]:
    problem = judged.problem
    why = reasons(judged, levels, wishes)
    for number, node in enumerate(problem.graph.nodes):
        if node.name in banned:
            why[number] = Reason("contract", banned[node.name])
    nodes, is_absent = problem.graph.nodes, problem.is_absent.tolist()
    return tuple(
        PlannedNode(
            node.name,
            node.op,
            node.kind.value,
            precision_of(judged, node.id, levels[node.id]),
            category_of(judged, node.id, levels[node.id]),
            reason.rule,
            reason.because,
            None if reason.cause is None else nodes[reason.cause].name,
        )
        for node, reason in zip(nodes, why, strict=True)
        if not is_absent[node.id]
    )


def _tell_nodes(options: Options, nodes: tuple[PlannedNode, ...]) -> tuple[PlannedNode, ...]:
    return nodes if options.recalled is None else options.recalled.tell(nodes)


def _check_precision(entry: PlannedNode, given: Plan) -> None:
    """Raises InputError: a plan's line asks for what the plan's dtypes cannot give."""
    dtypes, base = given.line.dtypes, given.line.base_dtype
    strange = [dtype for dtype in entry.precision if dtype not in dtypes]
    if strange:
        raise InputError(
            f"node {entry.name!r}: the plan asks for {strange[0]}; this model can be replayed in "
            f"{' and '.join(map(str, dtypes))}"
        )
    if entry.precision.compute is base and entry.precision != uniform(base):
        others = " or ".join(str(dtype) for dtype in dtypes if dtype is not base)
        raise InputError(
            f"node {entry.name!r}: the plan asks for products in {base} and less after them; write "
            f"{str(base)!r}, or {others} for the products too"
        )


def _stored_within(graph: Graph, edits: Sequence[Edit]) -> tuple[tuple[str, float], ...]:
    """The constants that edits store within bounds, by the name of their source."""
    return tuple(
        (graph.nodes[graph.values[edit.value].producer].name, edit.limit)
        for edit in edits
        if isinstance(edit, Retype | AddCopy) and edit.limit is not None
    )


def _notes(judged: Judged, wishes: Wishes, levels: Sequence[int]) -> tuple[str, ...]:
    graph = judged.problem.graph
    notes = [*graph.notes, *judged.notes]
    if any(levels[n.id] != judged.problem.line.base for n in graph.nodes if n.kind is Kind.OP):
        notes += wishes.target.notes_for(wishes.low)
    else:
        notes.append("nothing gains from low precision here, so nothing was changed")
    return tuple(notes)


def _replay(model: OnnxModel, options: Options, given: Plan) -> Decided:
    """Read the assignment from a plan, and lower it anew.

    Raises:
        InputError: the plan is of another model, has too many levels, misses a node, or asks for what is not legal.
    """
    check_pair(given)
    reading = model.read(given.low, given.opset)
    graph = reading.graph
    if graph.fingerprint != given.fingerprint:
        raise InputError(
            "the plan was made for another model: their structures differ; make a new one with 'mezzo plan'"
        )
    wishes = replace(options.wishes, line=given.line)
    judged = judge(graph, wishes)
    problem = judged.problem
    strange = given.by_name.keys() - graph.by_name.keys()
    if strange:
        raise InputError(f"the plan has a line for {min(strange)!r}, which the model has not; take the line out")
    levels, problem = _levels_of(given, problem)
    if options.out_of_range == "error":
        _refuse_out_of_range(graph, wishes, {n for n, level in enumerate(levels) if level != problem.line.base})
    made_by = {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    limits = {value: limit for name, limit in given.limits if (value := made_by.get(name)) is not None}
    edits = lower(problem, levels, limits)
    faults = check(problem, levels, edits)
    if faults:
        raise InputError(f"the plan cannot be carried out: {faults[0]}; change its precision in the plan")
    record = spell_replay(model, reading, given) if options.is_recorded else None
    return Decided(reading, replace(given, edits=edits), problem, levels, record)


def _levels_of(given: Plan, problem: Problem) -> tuple[list[int], Problem]:
    """The levels that a plan's lines ask for, and the problem with all that the plan may ask for left to it.

    Raises:
        InputError: a line is missing, or asks for what the plan's dtypes cannot give.
    """
    graph, line = problem.graph, problem.line
    levels, hands_on_base = [line.base] * len(graph.nodes), set[int]()
    for number in np.flatnonzero(~problem.is_absent).tolist():
        node = graph.nodes[number]
        entry = given.by_name.get(node.name)
        if entry is None:
            raise InputError(
                f"the plan says nothing of node {node.name!r}; add it or make a new plan with 'mezzo plan'"
            )
        _check_precision(entry, given)
        level = line.level_of(entry.precision.compute)
        assert level is not None, "every dtype of a line that was checked is a level's"
        levels[number] = level
        if level != line.base and entry.precision.output is line.base_dtype:
            hands_on_base.add(number)
    sides = tuple(_opened(side, graph) for side in problem.sides)
    return levels, replace(problem, sides=sides, hands_on_base=frozenset(hands_on_base))


def _opened(side: Side, graph: Graph) -> Side:
    """The side with every node free but those that are low in the model, which stay as they are."""
    choices = tuple(
        Choice.FREE
        if choice is not Choice.ABSENT and (node.kind in (Kind.INPUT, Kind.OUTPUT) or choice is not Choice.LOW)
        else choice
        for node, choice in zip(graph.nodes, side.choices, strict=True)
    )
    return replace(side, choices=choices)
