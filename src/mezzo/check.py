"""Say whether an assignment and its edits are legal. The only place that does; it trusts neither strategy nor lower."""

from collections.abc import Mapping, Sequence

import numpy as np

from mezzo.columns import ANY
from mezzo.dtypes import DType
from mezzo.graph import Graph, Kind, Node
from mezzo.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.strategy import Choice, Problem


def check(problem: Problem, is_low: Sequence[bool], edits: Sequence[Edit]) -> list[str]:
    """List what is wrong, one line each; empty if all is well."""
    return [*_check_nodes(problem, is_low), *_check_edits(problem, is_low, edits)]


def _check_nodes(problem: Problem, is_low: Sequence[bool]) -> list[str]:
    found = []
    nodes, low = problem.graph.nodes, np.array(is_low, bool) & ~problem.has_choice(Choice.ABSENT)
    illegal = {id(node.signature) for node in nodes if problem.low not in node.signature.legal}
    for number in np.flatnonzero(low & problem.has_choice(Choice.HIGH)).tolist():
        found.append(f"{_where(nodes[number])} runs in {problem.low}, but has to stay {problem.high}")
    for number in np.flatnonzero(low).tolist():
        if id(nodes[number].signature) in illegal:
            found.append(f"{_where(nodes[number])} runs in {problem.low}, which its schema does not allow")
    for number in np.flatnonzero(~low & problem.has_choice(Choice.LOW)).tolist():
        found.append(f"{_where(nodes[number])} runs in {problem.high}, but has to be {problem.low}")
    linked = np.array(problem.linked, np.int64)
    for number in np.flatnonzero(linked != np.arange(len(linked))).tolist():
        root = problem.linked[number]
        if is_low[root] == is_low[number]:
            continue
        if problem.choices[number] is not Choice.ABSENT and problem.choices[root] is not Choice.ABSENT:
            name, other = problem.graph.nodes[number].name, problem.graph.nodes[root].name
            found.append(f"nodes {name!r} and {other!r} share a sequence and have to agree on one dtype")
    return found


def _check_edits(problem: Problem, is_low: Sequence[bool], edits: Sequence[Edit]) -> list[str]:
    # Split by type once: a model has tens of thousands of edits, most of them of one kind.
    retypes = [edit for edit in edits if type(edit) is Retype]
    made = [edit for edit in edits if type(edit) is AddCast or type(edit) is AddCopy]
    rewires = [edit for edit in edits if type(edit) is Rewire]
    native = _Native(problem, retypes)
    return [
        *_check_makers(problem, is_low, native),
        *_check_forms(problem, native, made),
        *_check_readers(problem, is_low, native, made, rewires),
    ]


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"


class _Native:
    """The dtype each value has by itself once the edits are made."""

    def __init__(self, problem: Problem, retypes: Sequence[Retype]) -> None:
        self._values = problem.graph.values
        self.changed = {edit.value: edit.dtype for edit in retypes}
        self.is_low = problem.graph.columns.holds(problem.low).copy()
        numbers = np.fromiter(self.changed, np.int64, len(self.changed))
        self.is_low[numbers] = [dtype is problem.low for dtype in self.changed.values()]

    def __getitem__(self, number: int) -> DType | None:
        return self.changed.get(number, self._values[number].dtype)


def _check_makers(problem: Problem, is_low: Sequence[bool], native: "_Native") -> list[str]:
    """Every value has the dtype that its producer gives it; only a source may be stored in any."""
    graph, columns, found = problem.graph, problem.graph.columns, []
    makes_low = columns.made_in(problem.low, np.array(is_low, bool))
    for number in np.flatnonzero(problem.is_planned & (makes_low != native.is_low)).tolist():
        name, producer = graph.values[number].name, graph.nodes[columns.value_producer[number]].name
        want = problem.low if makes_low[number] else problem.high
        found.append(f"value {name!r} is noted as {native[number]}, but {producer!r} makes {want}")
    changed = np.fromiter(native.changed, np.int64, len(native.changed))
    for number in changed[~problem.is_planned[changed]].tolist():
        value, held = graph.values[number], native[number]
        if held is not value.dtype and held not in graph.nodes[value.producer].signature.legal:
            found.append(f"value {value.name!r} becomes {held}, which cannot be: it is {value.dtype}")
    return found


def _check_forms(problem: Problem, native: "_Native", edits: Sequence[AddCast | AddCopy]) -> list[str]:
    """Every further form is made once, and by what can make it."""
    graph, found = problem.graph, []
    made: set[tuple[int, DType]] = set()
    for edit in edits:
        name = graph.values[edit.value].name
        is_source = graph.nodes[graph.values[edit.value].producer].kind is Kind.SOURCE
        if (edit.value, edit.dtype) in made or native[edit.value] is edit.dtype:
            found.append(f"value {name!r} is made in {edit.dtype} twice")
        if isinstance(edit, AddCast) and not graph.values[edit.value].is_castable:
            found.append(f"value {name!r} is a sequence or optional and cannot be cast")
        if isinstance(edit, AddCopy) != is_source:
            found.append(f"value {name!r} is {'cast' if is_source else 'copied'} where it should be the other")
        made.add((edit.value, edit.dtype))
    return found


def _check_readers(
    problem: Problem,
    is_low: Sequence[bool],
    native: "_Native",
    further: Sequence[AddCast | AddCopy],
    rewires: Sequence[Rewire],
) -> list[str]:
    """Every operand reads its own value, in a form that exists and in the dtype that its node needs."""
    graph, found = problem.graph, []
    made = {(edit.value, edit.dtype) for edit in further}
    reads: dict[tuple[int, int], Rewire] = {}
    for edit in rewires:
        if (edit.node, edit.operand) in reads:
            found.append(f"node {graph.nodes[edit.node].name!r} has operand {edit.operand} rewired twice")
        reads[edit.node, edit.operand] = edit
    for (number, operand), rewire in reads.items():
        node, form = graph.nodes[number], (rewire.value, rewire.dtype)
        value = node.inputs[operand]
        where = f"node {node.name!r} ({node.op}) reads operand {operand}"
        if value is None or rewire.value not in _behind(graph, value):
            found.append(f"{where} from {graph.values[rewire.value].name!r}, which is another value")
        if native[rewire.value] is not rewire.dtype and form not in made and form not in graph.forms:
            found.append(f"{where} in {rewire.dtype}, a form that nothing makes")
    found += _check_operands(problem, is_low, native, reads)
    return found


def _check_operands(
    problem: Problem, is_low: Sequence[bool], native: "_Native", reads: Mapping[tuple[int, int], Rewire]
) -> list[str]:
    """Every operand gets the dtype that its node needs."""
    graph, columns = problem.graph, problem.graph.columns
    low = np.array(is_low, bool)
    got = native.is_low[columns.use_value] & ~columns.use_widened
    if reads:
        # Uses stand in the order of nodes and operands, so their keys are sorted.
        width = int(columns.use_operand.max()) + 1
        keys = columns.use_node * width + columns.use_operand
        wanted = np.array([node * width + operand for node, operand in reads], np.int64)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = keys[places] == wanted
        got[places[known]] = np.array([rewire.dtype is problem.low for rewire in reads.values()], bool)[known]
    planned = columns.holds(problem.high) | columns.holds(problem.low)
    # A model's Cast makes its form from whatever its operand has become.
    is_cast = columns.is_kind(Kind.CAST)[columns.use_node]
    wrong = (
        planned[columns.use_value] & (columns.use_role != ANY) & ~is_cast & (got != columns.wanted_in(problem.low, low))
    )
    found = []
    for at in np.flatnonzero(wrong).tolist():
        node = graph.nodes[columns.use_node[at]]
        held, want = (problem.low, problem.high) if got[at] else (problem.high, problem.low)
        found.append(
            f"node {node.name!r} ({node.op}) reads operand {columns.use_operand[at]} in {held} where it needs {want}"
        )
    return found


def _behind(graph: Graph, value: int) -> list[int]:
    """A value and those that it is a narrowing Cast of."""
    found = [value]
    while True:
        producer = graph.nodes[graph.values[found[-1]].producer]
        if producer.kind is not Kind.CAST or producer.inputs[0] is None:
            return found
        found.append(producer.inputs[0])
