"""Say whether an assignment and its edits are legal. The only place that does; it trusts neither strategy nor lower."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Quantize, Retype, Rewire, RunDynamic
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType
from mezzo.ir.columns import ANY, Bools, Ints
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use


def check(problem: Problem, levels: Sequence[int], edits: Sequence[Edit]) -> list[str]:
    """List what is wrong, one line each; empty if all is well."""
    return [*check_nodes(problem, levels), *_check_edits(problem, levels, edits)]


def check_nodes(problem: Problem, levels: Sequence[int]) -> list[str]:
    """List which nodes may not have their levels: then there are no edits to be had."""
    found = []
    nodes, line, at = problem.graph.nodes, problem.line, np.array(levels, np.int64)
    counts = ~problem.is_absent
    is_allowed = problem.allowed[at, np.arange(len(nodes))]
    beside = counts & (at != line.base)
    for number in np.flatnonzero(beside & ~is_allowed).tolist():
        wanted = _allowed(problem, number)
        found.append(f"{_where(nodes[number])} runs in {line.dtypes[at[number]]}, but has to stay {wanted}")
    for number in np.flatnonzero(beside).tolist():
        dtype = line.dtypes[at[number]]
        if dtype not in nodes[number].signature.legal:
            found.append(f"{_where(nodes[number])} runs in {dtype}, which its schema does not allow")
    for number in np.flatnonzero(counts & (at == line.base) & ~is_allowed).tolist():
        wanted = _allowed(problem, number)
        found.append(f"{_where(nodes[number])} runs in {line.base_dtype}, but has to be {wanted}")
    return found + _check_links(problem, at)


def _allowed(problem: Problem, number: int) -> str:
    """What a node may run in, in words."""
    levels = np.flatnonzero(problem.allowed[:, number]).tolist()
    return " or ".join(str(problem.line.dtypes[level]) for level in levels)


def _check_links(problem: Problem, at: Ints) -> list[str]:
    found: dict[tuple[int, int], str] = {}
    nodes = problem.graph.nodes
    for threshold, roots in zip(problem.line.thresholds, problem.linked, strict=True):
        linked = np.array(roots, np.int64)
        differs = ((at > threshold) != (at[linked] > threshold)) & ~problem.is_absent & ~problem.is_absent[linked]
        for number in np.flatnonzero(differs).tolist():
            name, other = nodes[number].name, nodes[roots[number]].name
            text = f"nodes {name!r} and {other!r} share a sequence and have to agree on one dtype"
            found.setdefault((number, roots[number]), text)
    return [*found.values()]


def _check_edits(problem: Problem, levels: Sequence[int], edits: Sequence[Edit]) -> list[str]:
    # Split by type once: a model has tens of thousands of edits, most of them of one kind.
    retypes = [edit for edit in edits if type(edit) is Retype]
    made = [edit for edit in edits if type(edit) is AddCast or type(edit) is AddCopy]
    rewires = [edit for edit in edits if type(edit) is Rewire]
    quantized = [edit for edit in edits if type(edit) is Quantize]
    dynamic = [edit for edit in edits if type(edit) is RunDynamic]
    native = _Native(problem, levels, retypes, quantized)
    return [
        *_check_quantized(problem, quantized),
        *_check_dynamic(problem, levels, dynamic),
        *_check_makers(problem, levels, native),
        *_check_forms(problem, native, made),
        *_check_readers(problem, levels, native, [*made, *quantized], [*rewires, *_read_alone(quantized)]),
    ]


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"


class _Native:
    """The dtype each value has by itself once the edits are made; `levels` by value, the base for dtypes of none.

    A value that is quantized where it is made counts as that, and can be had at the base as well; so does one whose
    kernel hands on either, as long as nobody reads it quantized.
    """

    def __init__(
        self, problem: Problem, levels: Sequence[int], retypes: Sequence[Retype], quantized: Sequence[Quantize]
    ) -> None:
        self._values = problem.graph.values
        self.changed = {edit.value: edit.dtype for edit in retypes}
        known = {dtype: problem.line.level_of(dtype) for dtype in {*self.changed.values()}}
        by_dtype = {dtype: problem.line.base if level is None else level for dtype, level in known.items()}
        self.levels = problem.held.copy()
        self.levels[[*self.changed]] = [by_dtype[dtype] for dtype in self.changed.values()]
        self.is_both = np.zeros(len(self.levels), bool)
        if problem.line.quantized is not None and problem.quantized is not None:
            self.is_both[[edit.value for edit in quantized if edit.takes_over]] = True
            spared = np.zeros(len(self.levels), bool)
            spared[sorted(problem.quantized.hand_on_either)] = True
            spared &= (problem.made_at(levels) == problem.line.quantized) & ~self.is_both & problem.is_planned
            columns, wants = problem.graph.columns, problem.wanted_at(levels)
            spared[columns.use_value[(wants == problem.line.quantized) & columns.use_wants]] = False
            moved = np.zeros(len(self.levels), bool)
            moved[sorted(problem.quantized.handed_on)] = True
            self.is_both |= spared | (moved & (problem.made_at(levels) == problem.line.quantized) & problem.is_planned)
            self.levels[self.is_both] = problem.line.quantized

    def __getitem__(self, number: int) -> DType | None:
        return self.changed.get(number, self._values[number].dtype)


def _check_makers(problem: Problem, levels: Sequence[int], native: "_Native") -> list[str]:
    """Every value has the dtype that its producer gives it; only a source may be stored in any."""
    graph, columns, found = problem.graph, problem.graph.columns, []
    makes = problem.made_at(levels)
    for number in np.flatnonzero(problem.is_planned & (makes != native.levels)).tolist():
        name, producer = graph.values[number].name, graph.nodes[columns.value_producer[number]].name
        want = problem.line.dtypes[makes[number]]
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
        if isinstance(edit, AddCast) and edit.reads is not None:
            read = edit.value, edit.reads
            if read not in made and read not in graph.forms and native[edit.value] is not edit.reads:
                found.append(f"value {name!r} is cast to {edit.dtype} from {edit.reads}, a form that nothing makes")
        made.add((edit.value, edit.dtype))
    return found


def _read_alone(edits: Sequence[Quantize]) -> list[Rewire]:
    """Forms that are held for one reader, as what that reads."""
    return [Rewire(*edit.reader, edit.value, edit.how.format) for edit in edits if edit.reader is not None]


def _check_quantized(problem: Problem, edits: Sequence[Quantize]) -> list[str]:
    """Every value is quantized once, and as was found for it."""
    graph, found = problem.graph, []
    known = {} if problem.quantized is None else problem.quantized.parameters
    offsets = {} if problem.quantized is None else problem.quantized.offsets
    quantized: set[tuple[int, Use | None]] = set()
    for edit in edits:
        name, producer = graph.values[edit.value].name, graph.nodes[graph.values[edit.value].producer]
        if (edit.value, edit.reader) in quantized:
            found.append(f"value {name!r} is quantized twice")
        if (known.get(edit.value) if edit.reader is None else offsets.get(edit.reader)) != edit.how:
            found.append(f"value {name!r} is quantized by other parameters than were found for it")
        if edit.takes_over and producer.kind is not Kind.OP:
            found.append(f"value {name!r} is quantized for all its readers, and no operator makes it")
        if edit.reader is not None and graph.nodes[edit.reader.node].inputs[edit.reader.operand] != edit.value:
            found.append(f"value {name!r} is quantized for one who does not read it")
        quantized.add((edit.value, edit.reader))
    return found


def _check_dynamic(problem: Problem, levels: Sequence[int], edits: Sequence[RunDynamic]) -> list[str]:
    """What finds ranges as it runs is told so once, at the quantized level and nowhere else."""
    found = []
    given = {} if problem.quantized is None else problem.quantized.dynamic
    known = {number: product for number, product in given.items() if levels[number] == problem.line.quantized}
    told = Counter(edit.node for edit in edits)
    for edit in edits:
        where = _where(problem.graph.nodes[edit.node])
        if known.get(edit.node) != edit.product:
            found.append(f"{where} is to find its ranges as it runs, which it cannot at its level, or not so")
    for number in known:
        if told[number] != 1:
            where = _where(problem.graph.nodes[number])
            found.append(f"{where} has to find its ranges as it runs, and is told so {told[number]} times")
    return found


def _check_readers(
    problem: Problem,
    levels: Sequence[int],
    native: "_Native",
    further: Sequence[AddCast | AddCopy | Quantize],
    rewires: Sequence[Rewire],
) -> list[str]:
    """Every operand reads its own value, in a form that exists and in the dtype that its node needs."""
    graph, found = problem.graph, []
    made = {(e.value, e.how.format if isinstance(e, Quantize) else e.dtype) for e in further}
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
    found += _check_operands(problem, levels, native, reads)
    return found


def _check_operands(
    problem: Problem, levels: Sequence[int], native: "_Native", reads: Mapping[tuple[int, int], Rewire]
) -> list[str]:
    """Every operand gets the dtype that its node needs."""
    graph, columns, line = problem.graph, problem.graph.columns, problem.line
    got = np.where(columns.use_widened, line.base, native.levels[columns.use_value])
    if reads:
        # Uses stand in the order of nodes and operands, so their keys are sorted.
        width = int(columns.use_operand.max()) + 1
        keys = columns.use_node * width + columns.use_operand
        wanted = np.array([node * width + operand for node, operand in reads], np.int64)
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = keys[places] == wanted
        read = np.array([_level_read(problem, native, rewire) for rewire in reads.values()], np.int64)
        got[places[known]] = read[known]
    planned = columns.holds(*line.dtypes)
    # A model's Cast makes its form from whatever its operand has become.
    is_cast = columns.is_kind(Kind.CAST)[columns.use_node]
    wants = problem.wanted_at(levels)
    is_had = (got == wants) | (native.is_both[columns.use_value] & (got == line.quantized) & (wants == line.base))
    wrong = planned[columns.use_value] & (columns.use_role != ANY) & ~is_cast & ~is_had & ~_as_integers(problem, levels)
    found = []
    for at in np.flatnonzero(wrong).tolist():
        node = graph.nodes[columns.use_node[at]]
        held, want = line.dtypes[got[at]], line.dtypes[wants[at]]
        found.append(
            f"node {node.name!r} ({node.op}) reads operand {columns.use_operand[at]} in {held} where it needs {want}"
        )
    return found


def _as_integers(problem: Problem, levels: Sequence[int]) -> Bools:
    """Uses that read a weight's integers, whatever its floats are stored in."""
    columns, known = problem.graph.columns, {} if problem.quantized is None else problem.quantized.dynamic
    found = np.zeros(len(columns.use_node), bool)
    for number, product in known.items():
        if levels[number] == problem.line.quantized:
            found |= (columns.use_node == number) & np.isin(columns.use_operand, [*product.weight_operands])
    return found


def _level_read(problem: Problem, native: "_Native", rewire: Rewire) -> int:
    """What a use that was rewired gets: the base form of a value that is quantized where it is made is both."""
    line = problem.line
    if rewire.dtype is line.base_dtype and native.is_both[rewire.value]:
        return int(native.levels[rewire.value])
    level = line.level_of(rewire.dtype)
    return line.base if level is None else level


def _behind(graph: Graph, value: int) -> list[int]:
    """A value and those that it is a narrowing Cast of."""
    found = [value]
    while True:
        producer = graph.nodes[graph.values[found[-1]].producer]
        if producer.kind is not Kind.CAST or producer.inputs[0] is None:
            return found
        found.append(producer.inputs[0])
