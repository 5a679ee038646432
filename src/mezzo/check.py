"""Say whether an assignment and its edits are legal. The only place that does; it trusts neither strategy nor lower."""

from collections.abc import Mapping, Sequence

from mezzo.dtypes import DType
from mezzo.graph import Graph, Kind, Role
from mezzo.plans import AddCast, AddCopy, Edit, Retype, Rewire
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
    native = {number: value.dtype for number, value in enumerate(problem.graph.values)}
    native.update({edit.value: edit.dtype for edit in edits if isinstance(edit, Retype)})
    return [
        *_check_makers(problem, is_low, native),
        *_check_forms(problem, native, edits),
        *_check_readers(problem, is_low, native, edits),
    ]


def _check_makers(problem: Problem, is_low: Sequence[bool], native: Mapping[int, DType | None]) -> list[str]:
    """Every value has the dtype that its producer gives it; only a source may be stored in any."""
    graph, found = problem.graph, []
    for number, value in enumerate(graph.values):
        producer = graph.nodes[value.producer]
        want = value.dtype
        if producer.kind is Kind.SOURCE or (want is not problem.high and want is not problem.low):
            if native[number] is not want and native[number] not in producer.signature.legal:
                found.append(f"value {value.name!r} becomes {native[number]}, which cannot be: it is {want}")
            continue
        port = 0 if len(producer.outputs) == 1 else producer.outputs.index(number)
        if producer.signature.outputs[port] is Role.GROUP:
            want = problem.low if is_low[producer.id] else problem.high
        if native[number] is not want:
            found.append(f"value {value.name!r} is noted as {native[number]}, but {producer.name!r} makes {want}")
    return found


def _check_forms(problem: Problem, native: Mapping[int, DType | None], edits: Sequence[Edit]) -> list[str]:
    """Every further form is made once, and by what can make it."""
    graph, found = problem.graph, []
    made: set[tuple[int, DType]] = set()
    for edit in edits:
        if not isinstance(edit, AddCast | AddCopy):
            continue
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
    problem: Problem, is_low: Sequence[bool], native: Mapping[int, DType | None], edits: Sequence[Edit]
) -> list[str]:
    """Every operand reads its own value, in a form that exists and in the dtype that its node needs."""
    graph, found = problem.graph, []
    made = {(edit.value, edit.dtype) for edit in edits if isinstance(edit, AddCast | AddCopy)}
    reads: dict[tuple[int, int], Rewire] = {}
    for edit in edits:
        if isinstance(edit, Rewire):
            if (edit.node, edit.operand) in reads:
                found.append(f"node {graph.nodes[edit.node].name!r} has operand {edit.operand} rewired twice")
            reads[edit.node, edit.operand] = edit
    for node in graph.nodes:
        if node.kind is Kind.CAST:
            continue  # it makes its form from whatever its operand has become
        for operand, (value, role) in enumerate(zip(node.inputs, node.signature.inputs, strict=True)):
            if value is None or graph.values[value].dtype not in (problem.high, problem.low):
                continue
            where = f"node {node.name!r} ({node.op}) reads operand {operand}"
            rewire = reads.get((node.id, operand))
            is_widened = (node.id, operand) in graph.widened
            got = problem.high if is_widened else native[value]
            if rewire is not None:
                got = rewire.dtype
                form = rewire.value, rewire.dtype
                if rewire.value not in _behind(graph, value):
                    found.append(f"{where} from {graph.values[rewire.value].name!r}, which is another value")
                if native[rewire.value] is not rewire.dtype and form not in made and form not in graph.forms:
                    found.append(f"{where} in {rewire.dtype}, a form that nothing makes")
            want = problem.high if is_widened else graph.values[value].dtype
            if role is Role.GROUP:
                want = problem.low if is_low[node.id] else problem.high
            if got is not want and role is not Role.ANY:
                found.append(f"{where} in {got} where it needs {want}")
    return found


def _behind(graph: Graph, value: int) -> list[int]:
    """A value and those that it is a narrowing Cast of."""
    found = [value]
    while True:
        producer = graph.nodes[graph.values[found[-1]].producer]
        if producer.kind is not Kind.CAST or producer.inputs[0] is None:
            return found
        found.append(producer.inputs[0])
