"""Search for rotary position embeddings: x by cosines, plus its pairs turned by sines.

With lanes j and k of a pair: y_j = x_j cos_j - x_k sin_j and y_k = x_k cos_j + x_j sin_j. Pairs are
halves of the lanes, or neighbours; lanes behind them may stay as they are.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.lane_moves import STEPS, Lanes
from mezzo.analysis.raising.lane_symbols import Entry, Floats, LaneReader, Term, Terms
from mezzo.contracts.replacements import Computed, Integers, Operand, Replacement
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Use

OP = "RotaryEmbedding"
SINCE = 23
CORES = frozenset({"Concat"})
_RANK = 4  # batch, heads, positions, channels
_MOST_NEAR = 32  # values between a core and x, and nodes between a core and the result
_INTEGERS = (DType.INT64, DType.INT32)


class _Rotation(NamedTuple):
    """How lanes are turned: the first of them, in pairs; the entries of cosines and sines, a pair
    each.
    """

    lanes: int
    is_interleaved: bool
    cosines: tuple[Entry, ...]
    sines: tuple[Entry, ...]


def rotary_in(
    view: FusionView, read: Callable[[int], Floats | None], kept: Collection[int]
) -> list[Replacement]:
    """Replacements by RotaryEmbedding, which are disjoint. `read` gives the elements of a constant;
    `kept` are nodes that stay.
    """
    reader, found = LaneReader(view, read), list[Replacement]()
    taken = set(kept)
    for core in view.of_operators(CORES):
        if core.id in taken or not _is_core(view, core):
            continue
        replacement = _largest(view, reader, core, taken)
        if replacement is not None:
            taken.update(replacement.nodes)
            found.append(replacement)
    return found


def _is_core(view: FusionView, node: Node) -> bool:
    axis, shape = node.attributes.get("axis"), view.shape(node, 0)
    is_last = axis == -1 or (shape is not None and axis == len(shape) - 1)
    return is_last and node.signature.dtype is DType.FLOAT32


def _largest(
    view: FusionView, reader: LaneReader, core: Node, taken: Collection[int]
) -> Replacement | None:
    """The replacement of most nodes around a core; None if there is none."""
    ends = [node for node in _ends(view, core) if node.outputs[0] is not None]
    for end in reversed(ends):
        for base in _bases(view, core):
            width = reader.sizes.last(base)
            result = end.outputs[0]
            if width is None or width % 2 or result is None:
                continue
            lanes = reader.of_base(base, width, result)
            rotation = None if lanes is None else _rotation(reader, lanes, width)
            nodes = None if rotation is None else _nodes_between(view, base, end)
            if rotation is not None and nodes is not None and nodes.isdisjoint(taken):
                return _replacement(view, rotation, base, end, nodes)
    return None


def _ends(view: FusionView, core: Node) -> list[Node]:
    """Nodes that may have the result, from the core on."""
    ends, pending = list[Node](), [core]
    while pending and len(ends) < _MOST_NEAR:
        node = pending.pop(0)
        ends.append(node)
        readers = {reader.id: reader for reader, _ in view.readers(node.outputs[0] or 0)}
        pending += [
            reader
            for reader in readers.values()
            if _is_step(view, reader, core.scope) and reader not in (*ends, *pending)
        ]
    return ends


def _is_step(view: FusionView, node: Node, scope: int) -> bool:
    is_operator = node.kind is Kind.OP and node.scope == scope and view.op(node) in STEPS
    return is_operator and node.signature.dtype is DType.FLOAT32


def _bases(view: FusionView, core: Node) -> Iterator[int]:
    """Values before a core that may be x, from the farthest."""
    pending, bases = [core], list[int]()
    while pending and len(bases) < _MOST_NEAR:
        node = pending.pop(0)
        for value in node.inputs[: None if node.op in ("Concat", "Mul", "Add", "Sub") else 1]:
            if value is None or view.is_constant(value) or view.origin(value) in bases:
                continue
            bases.append(view.origin(value))
            producer = view.producer(bases[-1])
            if _is_step(view, producer, core.scope):
                pending.append(producer)
    ranked = [value for value in bases if len(view.graph.shapes.get(value) or ()) == _RANK]
    yield from sorted(ranked, key=lambda value: view.graph.values[value].producer)


def _rotation(reader: LaneReader, lanes: Lanes, width: int) -> _Rotation | None:
    """Lanes as a rotation of all lanes of x; None if they are anything else."""
    if lanes.symbols.shape != (width,) or lanes.leading != _RANK - 1:
        return None
    terms = [reader.terms(int(symbol)) for symbol in lanes.symbols]
    turned = next((n for n, each in enumerate(terms) if each == (Term(n, 1.0),)), width)
    if turned < 2 or turned % 2:
        return None
    if any(terms[n] != (Term(n, 1.0),) for n in range(turned, width)):
        return None
    half = turned // 2
    for is_interleaved in (False, True):
        firsts = range(0, turned, 2) if is_interleaved else range(half)
        pairs = [(j, j + 1 if is_interleaved else j + half) for j in firsts]
        entries = [_turned_pair(reader, terms[j], terms[k], j, k) for j, k in pairs]
        known = [each for each in entries if each is not None]
        if len(known) == half:
            cosines, sines = zip(*known, strict=True)
            return _Rotation(turned, is_interleaved, cosines, sines)
    return None


def _turned_pair(
    reader: LaneReader, first: Terms, second: Terms, j: int, k: int
) -> tuple[Entry, Entry] | None:
    """The entries of cosine and sine that turn a pair of lanes; None if it is not turned."""
    if len(first) != 2 or len(second) != 2:
        return None
    one, other = (
        {(term.lane, term.number): term.factor for term in each} for each in (first, second)
    )
    cosine, sine = one.get((j, 1.0)), one.get((k, -1.0))
    again = other.get((k, 1.0)), other.get((j, 1.0))
    if cosine is None or sine is None or again[0] is None or again[1] is None:
        return None
    is_turned = reader.same(cosine, again[0]) and reader.same(sine, again[1])
    return (cosine, sine) if is_turned else None


def _nodes_between(view: FusionView, base: int, end: Node) -> set[int] | None:
    """The nodes between x and the result, with those of sizes that nothing else reads; None if
    others read what is between.
    """
    first = view.graph.values[base].producer
    nodes, pending = {end.id}, [end]
    while pending:
        for value in pending.pop().present_inputs:
            producer = view.producer(view.origin(value))
            if producer.id not in nodes and producer.id > first and _depends(view, value, base):
                nodes.add(producer.id)
                pending.append(producer)
    if any(not _readers(view, node) <= nodes for node in nodes - {end.id}):
        return None
    return nodes | _sizes(view, nodes)


def _depends(view: FusionView, value: int, base: int) -> bool:
    """Whether a float value is computed from x by steps."""
    pending, met, first = [view.origin(value)], set[int](), view.graph.values[base].producer
    while pending and len(met) < 2 * _MOST_NEAR:
        value = pending.pop()
        if value == base:
            return True
        producer = view.producer(value)
        if value in met or producer.id <= first or view.op(producer) not in STEPS:
            continue
        met.add(value)
        operands = producer.inputs[: None if producer.op in ("Concat", "Mul", "Add", "Sub") else 1]
        pending += [view.origin(each) for each in operands if each is not None]
    return False


def _readers(view: FusionView, node: int) -> set[int]:
    outputs = view.graph.nodes[node].present_outputs
    return {reader.id for value in outputs for reader, _ in view.readers(value)}


def _sizes(view: FusionView, nodes: Collection[int]) -> set[int]:
    """Nodes that compute integers for these nodes alone."""
    group, pending = set(nodes), [view.graph.nodes[node] for node in nodes]
    while pending:
        for value in pending.pop().present_inputs:
            producer = view.producer(value)
            is_size = view.graph.values[value].dtype in _INTEGERS and producer.kind is Kind.OP
            if is_size and producer.id not in group and _readers(view, producer.id) <= group:
                group.add(producer.id)
                pending.append(producer)
    return group - set(nodes)


def _replacement(
    view: FusionView, rotation: _Rotation, base: int, end: Node, nodes: Collection[int]
) -> Replacement | None:
    uses = [Use(n, k) for n in sorted(nodes) for k, _ in enumerate(view.graph.nodes[n].inputs)]
    data = next(use for use in uses if view.origin(_read(view, use) or 0) == base)
    batch, _, positions, width = view.graph.shapes[base]
    tables = list[Operand]()
    for entries in (rotation.cosines, rotation.sines):
        use = next(use for use in uses if _read(view, use) == entries[0].value)
        table = _table(view, entries, use)
        if table is None or not _widens(table.sizes, (batch, positions)):
            return None
        if None in table.sizes or table.sizes != (batch, positions):
            table = _Table(_expanded(table.operand, data, batch, positions), (batch, positions))
        tables.append(table.operand)
    attributes = {"interleaved": int(rotation.is_interleaved)}
    if rotation.lanes != width:
        attributes["rotary_embedding_dim"] = rotation.lanes
    inner = sorted(node for node in nodes if node != end.id)
    return Replacement(
        op=OP,
        nodes=(*inner, end.id),
        reads=(data, *tables),
        attributes=attributes,
        since=SINCE,
    )


def _read(view: FusionView, use: Use) -> int | None:
    return view.graph.nodes[use.node].inputs[use.operand]


class _Table(NamedTuple):
    """A tensor of batch, positions and pairs, with the sizes of the first two."""

    operand: Operand
    sizes: tuple[int | None, int | None]


def _table(view: FusionView, entries: Sequence[Entry], use: Use) -> _Table | None:
    """The entries, a pair each, as a tensor; None if they differ by head or have no order."""
    (value, first, axes), lanes = entries[0], [entry.lane for entry in entries]
    shape, step = view.graph.shapes[value], lanes[1] - first if len(lanes) > 1 else 1
    if step < 1 or any(entry.value != value for entry in entries):
        return None
    if lanes != list(range(first, lanes[-1] + 1, step)):
        return None
    leading = shape[: len(shape) - axes]
    batch, heads, positions = (1,) * (_RANK - 1 - len(leading)) + leading
    if heads != 1:
        return None
    width = math.prod(size for size in shape[len(leading) :] if size is not None)
    sizes = (0 if batch is None else batch, -1 if leading else 1, width)
    operand: Operand = Computed(op="Reshape", reads=(use, Integers(sizes)))
    if lanes != list(range(width)):
        bounds = (first, lanes[-1] + 1, 2, step)
        operand = Computed(op="Slice", reads=(operand, *(Integers((n,)) for n in bounds)))
    return _Table(operand, (batch, positions))


def _widens(sizes: Sequence[int | None], wanted: Sequence[int | None]) -> bool:
    """Whether a tensor of some sizes may be broadcast to others."""
    pairs = zip(sizes, wanted, strict=True)
    return all(size in (None, 1, other) or other is None for size, other in pairs)


def _expanded(table: Operand, data: Use, batch: int | None, positions: int | None) -> Operand:
    """A table with the batch and positions of x."""
    if batch is not None and positions is not None:
        return Computed(op="Expand", reads=(table, Integers((batch, positions, 1))))
    sizes = Computed(op="Gather", reads=(Computed(op="Shape", reads=(data,)), Integers((0, 2))))
    joined = Computed(op="Concat", reads=(sizes, Integers((1,))), attributes={"axis": 0})
    return Computed(op="Expand", reads=(table, joined))
