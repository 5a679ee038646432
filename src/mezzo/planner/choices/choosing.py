"""Choices per node: the levels that verdicts, schema, target and interface leave open."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from mezzo.analysis.structure import StructureView
from mezzo.common.errors import InputError
from mezzo.common.message_style import listing, setting
from mezzo.common.message_style import option as called
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.contracts.options.option import because_requested
from mezzo.contracts.problem import Choice, Problem
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.format_words import words_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Signature, Use, port_of
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.verdicts.rules import nodes_in, regions_of
from mezzo.plugins.discovery import settle_name
from mezzo.tables.facts import Function
from mezzo.tables.policy import Category, NodeVerdict
from mezzo.tables.target import Refusal


def fix_regions(
    graph: Graph,
    verdicts: list[NodeVerdict],
    choices: list[Choice],
    planning: PlanningOptions,
    low: DType,
    notes: list[str],
) -> None:
    """Apply `keep_region` and `fix_region`; the rest of the graph is planned around these nodes.
    Raises InputError: a pattern matches no node.
    """
    fixed = [(pattern, HIGH, "keep-region") for pattern in planning.keep_regions]
    fixed += [(pattern, dtype, "fix-region") for pattern, dtype in planning.fixed_regions]
    for pattern, dtype, option in fixed:
        members = nodes_in(graph, pattern)
        if not members:
            raise InputError(spell_unmatched_region(graph, option.replace("-", "_"), pattern))
        because = because_requested(option, pattern)
        for number in members:
            if choices[number] not in (Choice.FREE, Choice.HIGH):
                continue
            node, is_asked = graph.nodes[number], dtype is low
            is_impossible = node.kind is Kind.OP and (
                low not in node.signature.legal or refusal_of(node, planning, low) is not None
            )
            is_unavailable = is_impossible or verdicts[number].category is not Category.DENY
            if is_asked and choices[number] is Choice.HIGH and is_unavailable:
                notes.append(f"node {node.name!r} cannot run in {dtype} here, so it stays {HIGH}")
                continue
            is_low = is_asked and low in node.signature.legal
            verdicts[number] = NodeVerdict(
                category=Category.ALLOW if is_low else Category.DENY, rule=option, because=because
            )
            choices[number] = Choice.LOW if is_low else Choice.HIGH


def spell_unmatched_region(graph: Graph, option: str, pattern: str) -> str:
    """Error text for a region without nodes, with the option that it was passed to."""
    asked = aside(did_you_mean(pattern, regions_of(graph), 2))
    return (
        f"{called(option)} {pattern!r} matches no node{asked}; regions are paths of scopes such as"
        f" 'encoder/layer.3', and {listing()} lists every node by its path"
    )


def fix_marks(
    graph: Graph,
    verdicts: list[NodeVerdict],
    choices: list[Choice],
    planning: PlanningOptions,
    low: DType,
    notes: list[str],
) -> None:
    """Apply the precision that the program itself requests for a node; it overrides all rules and
    options. Raises InputError: this conversion has no level of the requested dtype.
    """
    for number, dtype in graph.marks.items():
        node = graph.nodes[number]
        if (
            choices[number] not in (Choice.FREE, Choice.HIGH, Choice.LOW)
            or node.signature.dtype is not HIGH
        ):
            continue
        if dtype is not None and dtype not in planning.line.dtypes:
            raise InputError(
                f"node {node.name!r} is in a region that asks for {dtype}, and this conversion"
                f" has {' and '.join(map(str, planning.line.dtypes))}; ask for one of them there,"
                f" or for {setting('to', words_of([dtype])[0])}"
            )
        is_refused = dtype is low and (
            low not in node.signature.legal or refusal_of(node, planning, low) is not None
        )
        if is_refused:
            notes.append(f"node {node.name!r} cannot run in {dtype} here, so it stays {HIGH}")
        because = (
            "the program keeps it as it is written"
            if dtype is None
            else f"the program asks for {dtype} here"
        )
        is_low = dtype is low and not is_refused
        verdicts[number] = NodeVerdict(
            category=Category.ALLOW if is_low else Category.DENY, rule="region", because=because
        )
        choices[number] = Choice.LOW if is_low else Choice.HIGH


def choices_of(
    view: StructureView, verdicts: Sequence[NodeVerdict], planning: PlanningOptions
) -> list[Choice]:
    """The choice left for each node about running in the view's format."""
    graph, low = view.graph, view.low.dtype
    columns, other_dtypes = (
        graph.columns,
        frozenset(planning.line.dtypes) - {planning.line.base_dtype, low},
    )
    by_signature = [_choice_of(signature, low, other_dtypes) for signature in columns.signatures]
    choices = [by_signature[code] for code in columns.node_signature.tolist()]
    for number in np.flatnonzero(columns.is_kind(Kind.INPUT, Kind.OUTPUT)).tolist():
        choices[number] = _interface_choice(graph, graph.nodes[number], planning, low)
    for number in np.flatnonzero(columns.is_kind(Kind.SOURCE)).tolist():
        choices[number] = Choice.ABSENT
    for number, verdict in enumerate(verdicts):
        if verdict.category is Category.DENY and choices[number] is Choice.FREE:
            choices[number] = Choice.HIGH
    for node in view.nodes(Function.IDENTITY):
        if choices[node.id] is Choice.FREE and _is_second_name(graph, node, choices):
            choices[node.id] = Choice.HIGH
    refusable = [planning.target.may_refuse(*s.operator, low) for s in columns.signatures]
    for number in np.flatnonzero(np.array(refusable, bool)[columns.node_signature]).tolist():
        if (
            choices[number] is Choice.FREE
            and refusal_of(graph.nodes[number], planning, low) is not None
        ):
            choices[number] = Choice.HIGH
    return choices


def _is_second_name(graph: Graph, node: Node, choices: Sequence[Choice]) -> bool:
    """Whether an operator only renames a value that a Cast of the model widened to FP32, for an
    FP32 output; it then stays FP32.
    """
    if Use(node.id, 0) not in graph.widened:
        return False
    users = [
        graph.nodes[use.node]
        for value in node.outputs
        if value is not None
        for use in graph.uses[value]
    ]
    return bool(users) and all(
        user.kind is Kind.OUTPUT and choices[user.id] is Choice.HIGH for user in users
    )


def _choice_of(signature: Signature, low: DType, other_dtypes: Set[DType]) -> Choice:
    """The choice that a schema leaves. `other_dtypes`: those of other non-base levels."""
    if signature.dtype is None:
        return Choice.ABSENT
    if signature.dtype is low:
        return Choice.LOW
    return (
        Choice.FREE
        if low in signature.legal and signature.dtype not in other_dtypes
        else Choice.HIGH
    )


def _interface_choice(graph: Graph, node: Node, planning: PlanningOptions, low: DType) -> Choice:
    if node.signature.dtype is None:  # integers, truth values and text have no precision
        return Choice.ABSENT
    value = node.outputs[0] if node.kind is Kind.INPUT else node.inputs[0]
    name = port_of(node)
    dtype = planning.io.get(name)
    if dtype is None and planning.io_default is None:
        can_follow = node.kind is Kind.OUTPUT and low in node.signature.legal
        return Choice.FREE if can_follow else Choice.HIGH
    if dtype is None:
        current = node.signature.dtype
        is_plain = value is not None and graph.values[value].is_castable
        dtype = planning.io_default if current is HIGH and is_plain else current
    return Choice.LOW if dtype is low and low in node.signature.legal else Choice.HIGH


def check_interface(graph: Graph, planning: PlanningOptions) -> None:
    if not planning.io:
        return
    names = {port_of(n): n for n in graph.nodes if n.kind in (Kind.INPUT, Kind.OUTPUT)}
    for name, dtype in planning.io.items():
        if name not in names:
            asked = aside(did_you_mean(name, names, 1))
            raise InputError(
                f"{called('io')} {name!r} is no input or output of the model{asked}; choose one "
                f"of {', '.join(sorted(names))}"
            )
        if dtype not in names[name].signature.legal:
            current = names[name].signature.dtype
            problem = (
                "holds no floats"
                if current is None
                else f"holds {current}, and cannot hold {dtype} at this opset"
            )
            raise InputError(
                f"{called('io')} of {name!r} is {dtype}: {name!r} {problem}; leave it out"
            )


def check_links(
    problem: Problem, verdicts: Sequence[Sequence[NodeVerdict]], io: Mapping[str, DType]
) -> None:
    """Check that all nodes sharing a sequence, which cannot be cast, are assigned one level.
    `verdicts` are by side and node. Raises InputError: two requests conflict.
    """
    graph, line = problem.graph, problem.line
    everywhere = problem.linked[0]
    fixed = {
        number: int(problem.allowed[:, number].argmax())
        for number in np.flatnonzero(problem.allowed.sum(axis=0) == 1).tolist()
    }
    by_root: dict[int, dict[int, int]] = {}  # by root and level: a node that must run at that level
    for number, level in fixed.items():
        by_root.setdefault(everywhere[number], {}).setdefault(level, number)
    for number, level in fixed.items():
        node = graph.nodes[number]
        name = port_of(node)
        is_interface = node.kind in (Kind.INPUT, Kind.OUTPUT) and name in io
        fixing = next(
            (side[number] for side in verdicts if side[number].rule == "fix-region"), None
        )
        conflicting = {
            rival: member for rival, member in by_root[everywhere[number]].items() if rival != level
        }
        if not conflicting or not (is_interface or fixing is not None):
            continue
        clash, rival = min(conflicting.items())
        request = (
            f"{called('io')} of {name!r} is {io[name]}: {name!r}"
            if is_interface or fixing is None
            else f"{fixing.because}: {node.name!r}"
        )
        raise InputError(
            f"{request} {'is' if is_interface else 'handles'} a sequence, which cannot be cast, and"
            f" {graph.nodes[rival].name!r} holds it in {line.dtypes[clash]}; ask the same of both,"
            " or leave it out"
        )


def named_weight(graph: Graph, name: str, stored_in: object, dtype: DType | None = None) -> int:
    """The value id of a weight that a plan stores otherwise, by its source's node name. `dtype`:
    what it has to be in, None for any.

    Raises InputError: the name is of no such weight.
    """
    number = graph.by_name.get(name)
    node = None if number is None else graph.nodes[number]
    value = None if node is None or node.kind is not Kind.SOURCE else node.outputs[0]
    if (
        value is None
        or value not in graph.constants
        or dtype not in (None, graph.values[value].dtype)
    ):
        sources = [other.name for other in graph.nodes if other.kind is Kind.SOURCE]
        asked = aside(did_you_mean(name, sources, 1))
        wanted = "" if dtype is None else f" in {dtype}"
        raise InputError(
            f"the plan stores {name!r} in {stored_in}, and it is no weight{wanted}{asked}"
        )
    return value


def weights_in_blocks(
    graph: Graph, by_name: Mapping[str, BlockStorage], dtypes: Sequence[DType]
) -> dict[int, BlockStorage]:
    """Storage of weights by value id. `by_name`: by a source's node name; `dtypes`: the plan's.

    Raises InputError: a name is of no weight, or its elements cannot be stored so.
    """
    result = {}
    for name, storage in by_name.items():
        value = named_weight(graph, name, "blocks")
        facts, shape = graph.constants[value], graph.shapes.get(value)
        problem = None
        if facts.has_nan or facts.has_infinity:
            problem = "it holds numbers that are not finite"
        elif shape is None or storage.axis >= len(shape):
            problem = f"it has no axis {storage.axis}"
        elif storage.scale_dtype not in dtypes:
            formats = " and ".join(map(str, dtypes))
            problem = f"its scales are {storage.scale_dtype}, and the plan has {formats}"
        if problem is not None:
            raise InputError(
                f"the plan stores {name!r} in blocks, and {problem}; change its line in the plan"
            )
        result[value] = replace(storage, rounding=settle_name("rounding", storage.rounding))
    return result


def refusal_of(node: Node, planning: PlanningOptions, low: DType) -> Refusal | None:
    """Why the target cannot run a node in `low`; None if it can."""
    return planning.target.refusal(*node.signature.operator, node.attributes, low)
