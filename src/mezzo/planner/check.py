"""Legality check of an assignment and its edits. It trusts neither the strategy nor `lower`."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import numpy as np

from mezzo.contracts.plans import (
    AddCast,
    AddCopy,
    Edit,
    Quantize,
    Retype,
    Rewire,
    RunDynamic,
    StoreInBlocks,
)
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType
from mezzo.ir.columns import ANY, Bools, Ints
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use


def check(problem: Problem, levels: Sequence[int], edits: Sequence[Edit]) -> list[str]:
    """List every violation, one line each; an empty list means that the plan is legal."""
    return [*check_nodes(problem, levels), *_check_edits(problem, levels, edits)]


def check_nodes(problem: Problem, levels: Sequence[int]) -> list[str]:
    """List the nodes whose level is not allowed. No edits can be derived from such levels."""
    violations = []
    nodes, line, at = problem.graph.nodes, problem.line, np.array(levels, np.int64)
    is_present = ~problem.is_absent
    is_allowed = problem.allowed[at, np.arange(len(nodes))]
    is_converted = is_present & (at != line.base)
    for number in np.flatnonzero(is_converted & ~is_allowed).tolist():
        legal = _allowed(problem, number)
        violations.append(
            f"{_where(nodes[number])} runs in {line.dtypes[at[number]]}, but has to stay {legal}"
        )
    for number in np.flatnonzero(is_converted).tolist():
        dtype = line.dtypes[at[number]]
        if dtype not in nodes[number].signature.legal:
            violations.append(
                f"{_where(nodes[number])} runs in {dtype}, which its schema does not allow"
            )
    for number in np.flatnonzero(is_present & (at == line.base) & ~is_allowed).tolist():
        legal = _allowed(problem, number)
        violations.append(
            f"{_where(nodes[number])} runs in {line.base_dtype}, but has to be {legal}"
        )
    return violations + _check_links(problem, at)


def _allowed(problem: Problem, number: int) -> str:
    """The dtypes that a node may run in, as text."""
    levels = np.flatnonzero(problem.allowed[:, number]).tolist()
    return " or ".join(str(problem.line.dtypes[level]) for level in levels)


def _check_links(problem: Problem, at: Ints) -> list[str]:
    violations: dict[tuple[int, int], str] = {}
    nodes = problem.graph.nodes
    for threshold, roots in zip(problem.line.thresholds, problem.linked, strict=True):
        linked = np.array(roots, np.int64)
        differs = (
            ((at > threshold) != (at[linked] > threshold))
            & ~problem.is_absent
            & ~problem.is_absent[linked]
        )
        for number in np.flatnonzero(differs).tolist():
            name, root = nodes[number].name, nodes[roots[number]].name
            text = f"nodes {name!r} and {root!r} share a sequence and have to agree on one dtype"
            violations.setdefault((number, roots[number]), text)
    return [*violations.values()]


def _check_edits(problem: Problem, levels: Sequence[int], edits: Sequence[Edit]) -> list[str]:
    # Split by type once: a model has tens of thousands of edits, most of them of one kind.
    retypes = [edit for edit in edits if type(edit) is Retype]
    conversions = [edit for edit in edits if type(edit) is AddCast or type(edit) is AddCopy]
    rewires = [edit for edit in edits if type(edit) is Rewire]
    quantized = [edit for edit in edits if type(edit) is Quantize]
    dynamic = [edit for edit in edits if type(edit) is RunDynamic]
    in_blocks = [edit for edit in edits if type(edit) is StoreInBlocks]
    native = _Native(problem, levels, retypes, quantized)
    return [
        *_check_quantized(problem, quantized),
        *_check_dynamic(problem, levels, dynamic),
        *_check_makers(problem, levels, native),
        *_check_blocks(problem, native, in_blocks, quantized),
        *_check_stored_floats(problem, native, rewires),
        *_check_forms(
            problem,
            native,
            conversions,
            {*problem.stored_floats, *(edit.value for edit in in_blocks)},
        ),
        *_check_readers(
            problem, levels, native, [*conversions, *quantized], [*rewires, *_read_alone(quantized)]
        ),
    ]


def _where(node: Node) -> str:
    return f"node {node.name!r} ({node.op})"


class _Native:
    """Dtype of each value after the edits, without casts. `levels` by value id; dtypes outside the
    plan count as the base.

    A value that its producer quantizes counts as quantized and is available at the base as well. So
    does a value whose kernel can output either type, unless a use reads it quantized.
    """

    def __init__(
        self,
        problem: Problem,
        levels: Sequence[int],
        retypes: Sequence[Retype],
        quantized: Sequence[Quantize],
    ) -> None:
        self._values = problem.graph.values
        self.changed = {edit.value: edit.dtype for edit in retypes}
        level_of = {dtype: problem.line.level_of(dtype) for dtype in {*self.changed.values()}}
        by_dtype = {
            dtype: problem.line.base if level is None else level
            for dtype, level in level_of.items()
        }
        self.levels = problem.current_levels.copy()
        self.levels[[*self.changed]] = [by_dtype[dtype] for dtype in self.changed.values()]
        self.is_both = np.zeros(len(self.levels), bool)
        if problem.line.quantized is not None and problem.quantized is not None:
            self.is_both[[edit.value for edit in quantized if edit.takes_over]] = True
            has_either = np.zeros(len(self.levels), bool)
            has_either[sorted(problem.quantized.either_output)] = True
            has_either &= (
                (problem.produced_levels(levels) == problem.line.quantized)
                & ~self.is_both
                & problem.is_planned
            )
            columns, wants = problem.graph.columns, problem.needed_levels(levels)
            has_either[columns.use_value[(wants == problem.line.quantized) & columns.use_wants]] = (
                False
            )
            passes_through = np.zeros(len(self.levels), bool)
            passes_through[sorted(problem.quantized.passed_through)] = True
            self.is_both |= has_either | (
                passes_through
                & (problem.produced_levels(levels) == problem.line.quantized)
                & problem.is_planned
            )
            self.levels[self.is_both] = problem.line.quantized

    def __getitem__(self, number: int) -> DType | None:
        return self.changed.get(number, self._values[number].dtype)


def _check_makers(problem: Problem, levels: Sequence[int], native: "_Native") -> list[str]:
    """Check that every value has its producer's dtype; only a source may have any."""
    graph, columns, violations = problem.graph, problem.graph.columns, []
    makes = problem.produced_levels(levels)
    for number in np.flatnonzero(problem.is_planned & (makes != native.levels)).tolist():
        name, producer = graph.values[number].name, graph.nodes[columns.value_producer[number]].name
        want = problem.line.dtypes[makes[number]]
        violations.append(
            f"value {name!r} is noted as {native[number]}, but {producer!r} makes {want}"
        )
    changed = np.fromiter(native.changed, np.int64, len(native.changed))
    for number in changed[~problem.is_planned[changed]].tolist():
        value, dtype = graph.values[number], native[number]
        if dtype is not value.dtype and dtype not in graph.nodes[value.producer].signature.legal:
            violations.append(
                f"value {value.name!r} becomes {dtype}, which cannot be: it is {value.dtype}"
            )
    return violations


def _check_blocks(
    problem: Problem,
    native: "_Native",
    edits: Sequence[StoreInBlocks],
    quantized: Sequence[Quantize],
) -> list[str]:
    """Check that the problem's weights, and no other values, are stored in blocks, once each."""
    graph, violations = problem.graph, []
    counts, as_integers = Counter(edit.value for edit in edits), {edit.value for edit in quantized}
    for edit in edits:
        name, storage = graph.values[edit.value].name, edit.storage
        if problem.in_blocks.get(edit.value) != storage:
            violations.append(f"value {name!r} is stored in other blocks than were asked for")
        if native[edit.value] is not storage.scale_dtype:
            violations.append(
                f"value {name!r} is noted as {native[edit.value]}, but its blocks have scales of"
                f" {storage.scale_dtype}"
            )
        if edit.value in as_integers:
            violations.append(f"value {name!r} is stored in blocks and as integers of a kernel")
    for number in problem.in_blocks:
        if counts[number] != 1:
            name = graph.values[number].name
            violations.append(f"value {name!r} is stored in blocks {counts[number]} times")
    return violations


def _check_stored_floats(
    problem: Problem, native: "_Native", rewires: Sequence[Rewire]
) -> list[str]:
    """Check that the problem's weights have their low float, and that every use reads the Cast."""
    graph, violations = problem.graph, []
    read = {Use(edit.node, edit.operand) for edit in rewires}
    for number, low in problem.stored_floats.items():
        name = graph.values[number].name
        if native[number] is not low:
            violations.append(f"value {name!r} is stored in {native[number]}, not in {low}")
        for use in graph.uses[number]:
            if use not in read:
                reader = graph.nodes[use.node].name
                violations.append(f"{reader!r} reads value {name!r} in {low} as it is stored")
    return violations


def _check_forms(
    problem: Problem, native: "_Native", edits: Sequence[AddCast | AddCopy], cast_weights: Set[int]
) -> list[str]:
    """Check that each further form exists once: copied from a source, cast otherwise. Weights in
    blocks or in a low float, `cast_weights`, are cast.
    """
    graph, violations = problem.graph, []
    forms: set[tuple[int, DType]] = set()
    for edit in edits:
        name = graph.values[edit.value].name
        is_source = graph.nodes[graph.values[edit.value].producer].kind is Kind.SOURCE
        is_source &= edit.value not in cast_weights
        if (edit.value, edit.dtype) in forms or native[edit.value] is edit.dtype:
            violations.append(f"value {name!r} is made in {edit.dtype} twice")
        if isinstance(edit, AddCast) and not graph.values[edit.value].is_castable:
            violations.append(f"value {name!r} is a sequence or optional and cannot be cast")
        if isinstance(edit, AddCopy) != is_source:
            violations.append(
                f"value {name!r} is {'cast' if is_source else 'copied'} where it should be the"
                " other"
            )
        if isinstance(edit, AddCast) and edit.reads is not None:
            operand = edit.value, edit.reads
            if (
                operand not in forms
                and operand not in graph.forms
                and native[edit.value] is not edit.reads
            ):
                violations.append(
                    f"value {name!r} is cast to {edit.dtype} from {edit.reads}, a form that nothing"
                    " makes"
                )
        forms.add((edit.value, edit.dtype))
    return violations


def _read_alone(edits: Sequence[Quantize]) -> list[Rewire]:
    """Rewires implied by constants that are quantized for a single use."""
    return [
        Rewire(*edit.reader, edit.value, edit.how.format)
        for edit in edits
        if edit.reader is not None
    ]


def _check_quantized(problem: Problem, edits: Sequence[Quantize]) -> list[str]:
    """Check that every value is quantized once, with the parameters determined for it."""
    graph, violations = problem.graph, []
    parameters = {} if problem.quantized is None else problem.quantized.parameters
    offsets = {} if problem.quantized is None else problem.quantized.offsets
    quantized: set[tuple[int, Use | None]] = set()
    for edit in edits:
        name, producer = (
            graph.values[edit.value].name,
            graph.nodes[graph.values[edit.value].producer],
        )
        if (edit.value, edit.reader) in quantized:
            violations.append(f"value {name!r} is quantized twice")
        if (
            parameters.get(edit.value) if edit.reader is None else offsets.get(edit.reader)
        ) != edit.how:
            violations.append(
                f"value {name!r} is quantized by other parameters than were found for it"
            )
        if edit.takes_over and producer.kind is not Kind.OP:
            violations.append(
                f"value {name!r} is quantized for all its readers, and no operator makes it"
            )
        if (
            edit.reader is not None
            and graph.nodes[edit.reader.node].inputs[edit.reader.operand] != edit.value
        ):
            violations.append(f"value {name!r} is quantized for one who does not read it")
        quantized.add((edit.value, edit.reader))
    return violations


def _check_dynamic(
    problem: Problem, levels: Sequence[int], edits: Sequence[RunDynamic]
) -> list[str]:
    """Check that each node with dynamic quantization has one edit, and no other node has."""
    violations = []
    dynamic = {} if problem.quantized is None else problem.quantized.dynamic
    expected = {
        number: product
        for number, product in dynamic.items()
        if levels[number] == problem.line.quantized
    }
    counts = Counter(edit.node for edit in edits)
    for edit in edits:
        where = _where(problem.graph.nodes[edit.node])
        if expected.get(edit.node) != edit.product:
            violations.append(
                f"{where} is to find its ranges as it runs, which it cannot at its level, or not so"
            )
    for number in expected:
        if counts[number] != 1:
            where = _where(problem.graph.nodes[number])
            violations.append(
                f"{where} has to find its ranges at run time, and has that edit"
                f" {counts[number]} times"
            )
    return violations


def _check_readers(
    problem: Problem,
    levels: Sequence[int],
    native: "_Native",
    further: Sequence[AddCast | AddCopy | Quantize],
    rewires: Sequence[Rewire],
) -> list[str]:
    """Check that every rewired operand reads an existing form of its own value."""
    graph, violations = problem.graph, []
    forms = {(e.value, e.how.format if isinstance(e, Quantize) else e.dtype) for e in further}
    reads: dict[tuple[int, int], Rewire] = {}
    for edit in rewires:
        if (edit.node, edit.operand) in reads:
            violations.append(
                f"node {graph.nodes[edit.node].name!r} has operand {edit.operand} rewired twice"
            )
        reads[edit.node, edit.operand] = edit
    for (number, operand), rewire in reads.items():
        node, form = graph.nodes[number], (rewire.value, rewire.dtype)
        value = node.inputs[operand]
        where = f"node {node.name!r} ({node.op}) reads operand {operand}"
        if value is None or rewire.value not in _behind(graph, value):
            violations.append(
                f"{where} from {graph.values[rewire.value].name!r}, which is another value"
            )
        if (
            native[rewire.value] is not rewire.dtype
            and form not in forms
            and form not in graph.forms
        ):
            violations.append(f"{where} in {rewire.dtype}, a form that nothing makes")
    violations += _check_operands(problem, levels, native, reads)
    return violations


def _check_operands(
    problem: Problem,
    levels: Sequence[int],
    native: "_Native",
    reads: Mapping[tuple[int, int], Rewire],
) -> list[str]:
    """Check that every operand gets the dtype that its node needs."""
    graph, columns, line = problem.graph, problem.graph.columns, problem.line
    actual = np.where(columns.use_widened, line.base, native.levels[columns.use_value])
    if reads:
        # Uses are ordered by node and operand, so their keys are sorted.
        width = int(columns.use_operand.max()) + 1
        keys = columns.use_node * width + columns.use_operand
        rewired = np.array([node * width + operand for node, operand in reads], np.int64)
        places = np.minimum(np.searchsorted(keys, rewired), len(keys) - 1)
        is_rewired = keys[places] == rewired
        rewired_levels = np.array(
            [_level_read(problem, native, rewire) for rewire in reads.values()], np.int64
        )
        actual[places[is_rewired]] = rewired_levels[is_rewired]
    planned = columns.holds(*line.dtypes)
    # A model's own Cast accepts any operand dtype.
    is_cast = columns.is_kind(Kind.CAST)[columns.use_node]
    expected = problem.needed_levels(levels)
    is_met = (actual == expected) | (
        native.is_both[columns.use_value] & (actual == line.quantized) & (expected == line.base)
    )
    wrong = (
        planned[columns.use_value]
        & (columns.use_role != ANY)
        & ~is_cast
        & ~is_met
        & ~_as_integers(problem, levels)
    )
    violations = []
    for at in np.flatnonzero(wrong).tolist():
        node = graph.nodes[columns.use_node[at]]
        dtype, needed = line.dtypes[actual[at]], line.dtypes[expected[at]]
        violations.append(
            f"node {node.name!r} ({node.op}) reads operand {columns.use_operand[at]} in {dtype}"
            f" where it needs {needed}"
        )
    return violations


def _as_integers(problem: Problem, levels: Sequence[int]) -> Bools:
    """Uses that read a weight's integers, whatever dtype its floats are stored in."""
    columns, dynamic = (
        problem.graph.columns,
        {} if problem.quantized is None else problem.quantized.dynamic,
    )
    is_integer = np.zeros(len(columns.use_node), bool)
    for number, product in dynamic.items():
        if levels[number] == problem.line.quantized:
            for use in product.weight_uses:
                is_integer |= (columns.use_node == use.node) & (columns.use_operand == use.operand)
    return is_integer


def _level_read(problem: Problem, native: "_Native", rewire: Rewire) -> int:
    """Level that a rewired use reads; values quantized by their producer have both forms."""
    line = problem.line
    if rewire.dtype is line.base_dtype and native.is_both[rewire.value]:
        return int(native.levels[rewire.value])
    level = line.level_of(rewire.dtype)
    return line.base if level is None else level


def _behind(graph: Graph, value: int) -> list[int]:
    """A value and the operands of the chain of narrowing Casts that produced it."""
    chain = [value]
    while True:
        producer = graph.nodes[graph.values[chain[-1]].producer]
        if producer.kind is not Kind.CAST or producer.inputs[0] is None:
            return chain
        chain.append(producer.inputs[0])
