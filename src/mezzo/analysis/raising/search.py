"""Search of a graph for operators that are written out."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising import attention, rotary
from mezzo.analysis.raising.formulas import Formulas, has_rule
from mezzo.analysis.raising.lane_symbols import Floats
from mezzo.analysis.raising.operators import OPERATORS, Affine, Match, Row
from mezzo.contracts.replacements import Filled, Operand, Replacement, Reshaped
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Use

_MOST_NEAR = 16  # nodes between a core and the base, and between a core and the result
_MOST_FILLED = 1 << 20  # elements of a scale that the model does not have

_CORES = frozenset[str]().union(*(row.cores for row in OPERATORS))
# Operators raised only for targets that list them, with the operators of which every model that
# has them written out has one.
BY_TARGET = {attention.OP: attention.CORES, rotary.OP: rotary.CORES}
# Whether an operator may be raised: its name, opset and attributes.
Accepts = Callable[[str, int, Mapping[str, object]], bool]
# The elements of a constant; None if it is fed or has no floats.
Read = Callable[[int], Floats | None]


def cores(operators: Collection[str]) -> frozenset[str]:
    """Operators of which every model with something to raise has one. `operators`: those of
    `BY_TARGET` that are raised.
    """
    return _CORES.union(*(found for op, found in BY_TARGET.items() if op in operators))


def raised_in(
    view: FusionView, accepts: Accepts, kept: Collection[int], read: Read
) -> list[Replacement]:
    """Replacements by standard operators, which are disjoint. `kept` are nodes that stay.

    A group replaces all nodes between the value that it reads and its result, which nothing else
    reads; its largest form is taken.
    """
    found = _formulas_in(view, accepts, kept)
    taken = {node for each in found for node in each.nodes}.union(kept)
    if accepts(rotary.OP, rotary.SINCE, {}):
        found += rotary.rotary_in(view, read, taken)
    if accepts(attention.OP, attention.SINCE, {}):
        found += attention.attention_in(view, taken)  # which shares no operator with a rotation
    return found


def _formulas_in(view: FusionView, accepts: Accepts, kept: Collection[int]) -> list[Replacement]:
    """Those that are polynomials of one value."""
    found: list[Replacement] = []
    taken = set(kept)
    for core in view.of_operators(_CORES):
        if core.id in taken or not _is_core(view, core):
            continue
        rows = [row for row in OPERATORS if core.op in row.cores]
        for base in reversed(_bases(view, core)):  # from the farthest, of the largest groups
            largest = _largest(view, core, base, rows, accepts, taken)
            if largest is not None:
                taken.update(largest.nodes)
                found.append(largest)
                break
    return found


def _is_core(view: FusionView, node: Node) -> bool:
    if node.op == "Pow" and view.number(node, 1) not in (0.5, -0.5):
        return False
    return node.signature.dtype is DType.FLOAT32


def _bases(view: FusionView, core: Node) -> list[int]:
    """Values before a core on which alone it depends and that several operators read, as each
    formula has its x twice.
    """
    bases: list[int] = []
    frontier = _data(view, core)
    for _ in range(_MOST_NEAR):
        if not frontier:
            break
        # Nodes are in topological order: no other value of the frontier depends on this one.
        value = max(frontier, key=lambda value: view.graph.values[value].producer)
        if len(frontier) == 1 and len({reader.id for reader, _ in view.readers(value)}) > 1:
            bases.append(value)
        producer = view.producer(value)
        if producer.scope != core.scope or not has_rule(view, producer):
            break
        frontier = frontier - {value} | _data(view, producer)
    return bases


def _data(view: FusionView, node: Node) -> set[int]:
    """The values that a node reads, without constants."""
    return {view.origin(value) for value in node.present_inputs if not view.is_constant(value)}


def _largest(
    view: FusionView,
    core: Node,
    base: int,
    rows: Sequence[Row],
    accepts: Accepts,
    taken: Set[int],
) -> Replacement | None:
    """The replacement of most nodes around a core, none of them taken, by an operator of a base;
    None if there is none.
    """
    formulas = Formulas(view, base, core.scope)
    matches: list[tuple[Row, Match, Node]] = []
    pending, met = [core], {core.id}
    while pending and len(met) <= _MOST_NEAR:
        node = pending.pop(0)
        result = node.outputs[0]
        polynomial = None if result is None else formulas.of(result)
        if result is None or (polynomial is None and formulas.is_foreign(result)):
            continue
        if polynomial is not None:
            found = [(row, row.match(polynomial), node) for row in rows]
            matches += [(row, match, end) for row, match, end in found if match is not None]
        for reader, _ in view.readers(result):
            if reader.kind is Kind.OP and reader.scope == core.scope and reader.id not in met:
                met.add(reader.id)
                pending.append(reader)
    for row, match, end in reversed(matches):  # nodes are met from the core outwards
        replacement = _replacement(view, row, match, end, formulas, base)
        is_free = replacement is not None and taken.isdisjoint(replacement.nodes)
        if is_free and accepts(row.op, row.since, match.attributes):
            return replacement
    return None


def _replacement(
    view: FusionView, row: Row, match: Match, end: Node, formulas: Formulas, base: int
) -> Replacement | None:
    """The replacement of the nodes that make one result, if nothing else reads what is between."""
    match = match.of_weights(formulas.weights)
    shapes, result = view.graph.shapes, end.outputs[0]
    assert result is not None, "it has a formula"
    nodes = formulas.nodes(result)
    known = [shape for value in (base, result) if (shape := shapes.get(value or 0)) is not None]
    ranks = {len(shape) for shape in known}
    if len(ranks) > 1:  # a constant of more axes than x
        return None
    if any(inner != end.id and not nodes.issuperset(_readers(view, inner)) for inner in nodes):
        return None
    readers = [view.graph.nodes[node] for node in sorted(nodes)]
    operands: list[Operand] = [_use_of(view, readers, base)]
    sizes = _normalized(view, match, (base, result)) if match.axes else ()
    for affine in match.operands:
        operand = None if sizes is None else _operand(view, affine, readers, sizes)
        if operand is None:
            return None
        operands.append(operand)
    inner = sorted(node for node in nodes if node != end.id)
    return Replacement(
        op=row.op,
        nodes=(*inner, end.id),
        reads=tuple(operands),
        attributes=match.attributes,
        since=row.since,
    )


def _readers(view: FusionView, node: int) -> Iterator[int]:
    for value in view.graph.nodes[node].present_outputs:
        yield from (reader.id for reader, _ in view.readers(value))


def _use_of(view: FusionView, readers: Sequence[Node], value: int) -> Use:
    """The first use of a value, which one of the readers has."""
    return next(
        Use(node.id, operand)
        for node in readers
        for operand, read in enumerate(node.inputs)
        if read is not None and view.origin(read) == value
    )


def _normalized(
    view: FusionView, match: Match, values: Sequence[int | None]
) -> tuple[int, ...] | None:
    """The sizes of the axes that a norm is over: those of its base or its result, or of its scale;
    None if no shape has them.
    """
    shapes = view.graph.shapes
    for value in (*values, *(affine.weight for affine in match.operands)):
        shape = shapes.get(value, ()) if value is not None else ()
        sizes = [size for size in shape[len(shape) - match.axes :] if size is not None]
        if len(shape) >= match.axes == len(sizes):
            return tuple(sizes)
    return None


def _operand(
    view: FusionView, affine: Affine, readers: Sequence[Node], sizes: tuple[int, ...]
) -> Operand | None:
    """A scale or shift as an operand of these sizes; None if it varies over other axes."""
    if affine.weight is None:
        return (
            Filled(number=affine.number, shape=sizes) if math.prod(sizes) <= _MOST_FILLED else None
        )
    use = _use_of(view, readers, affine.weight)
    own = view.graph.shapes.get(affine.weight)
    if own == sizes:
        return use
    is_stored = affine.weight in view.graph.constants
    is_led_by_ones = own is not None and own == (1,) * (len(own) - len(sizes)) + sizes
    return Reshaped(value=affine.weight, shape=sizes) if is_stored and is_led_by_ones else None
