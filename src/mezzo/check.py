"""Say whether an assignment and its edits are legal. The only place that says so; it trusts neither strategy nor lower."""

from collections.abc import Sequence

from mezzo.graph import Graph, Kind, Role
from mezzo.plan import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.strategy import Choice, Problem


def check(problem: Problem, is_low: Sequence[bool], edits: Sequence[Edit]) -> list[str]:
    """List what is wrong, one line each; empty if all is well."""
    return [*_check_nodes(problem, is_low), *_check_edits(problem, is_low, edits)]


def _check_nodes(problem: Problem, is_low: Sequence[bool]) -> list[str]:
    found = []
    for node, choice, low in zip(problem.graph.nodes, problem.choices, is_low, strict=True):
        if choice is Choice.HIGH and low:
            found.append(f"node {node.name!r} ({node.op}) runs in {problem.low}, but has to stay {problem.high}")
        if choice is Choice.LOW and not low:
            found.append(f"node {node.name!r} ({node.op}) runs in {problem.high}, but has to be {problem.low}")
        if choice is not Choice.ABSENT and low and problem.low not in node.signature.legal:
            found.append(f"node {node.name!r} ({node.op}) runs in {problem.low}, which its schema does not allow")
        root = problem.linked[node.id]
        if choice is not Choice.ABSENT and problem.choices[root] is not Choice.ABSENT and is_low[root] != low:
            other = problem.graph.nodes[root].name
            found.append(f"nodes {node.name!r} and {other!r} share a sequence and have to agree on one dtype")
    return found


def _check_edits(problem: Problem, is_low: Sequence[bool], edits: Sequence[Edit]) -> list[str]:
    graph, found = problem.graph, []
    native = {number: value.dtype for number, value in enumerate(graph.values)}
    native.update({edit.value: edit.dtype for edit in edits if isinstance(edit, Retype)})
    made: set[tuple[int, object]] = set()
    for edit in edits:
        if isinstance(edit, AddCast | AddCopy):
            name = graph.values[edit.value].name
            is_source = graph.nodes[graph.values[edit.value].producer].kind is Kind.SOURCE
            if (edit.value, edit.dtype) in made or native[edit.value] is edit.dtype:
                found.append(f"value {name!r} is made in {edit.dtype} twice")
            if isinstance(edit, AddCast) and not graph.values[edit.value].is_castable:
                found.append(f"value {name!r} is a sequence or optional and cannot be cast")
            if isinstance(edit, AddCopy) != is_source:
                found.append(f"value {name!r} is {'cast' if is_source else 'copied'} where it should be the other")
            made.add((edit.value, edit.dtype))
    reads = {(edit.node, edit.operand): edit for edit in edits if isinstance(edit, Rewire)}
    for node in graph.nodes:
        if node.kind is Kind.CAST:
            continue
        for operand, (value, role) in enumerate(zip(node.inputs, node.signature.inputs, strict=True)):
            if value is None or role is Role.ANY or graph.values[value].dtype not in (problem.high, problem.low):
                continue
            rewire = reads.get((node.id, operand))
            held = problem.high if (node.id, operand) in graph.widened else native[value]
            got = rewire.dtype if rewire is not None else held
            want = graph.values[value].dtype
            if role is Role.GROUP:
                want = problem.low if is_low[node.id] else problem.high
            elif (node.id, operand) in graph.widened:
                want = problem.high
            if got is not want:
                found.append(f"node {node.name!r} ({node.op}) reads operand {operand} in {got} where it needs {want}")
    return found
