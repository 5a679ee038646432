"""Search for attention: softmax(scale * Q K^T + mask) V of batch, heads, rows and channels."""

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.sizes import Size, SizeReader
from mezzo.contracts.replacements import Computed, Integers, Operand, Replacement
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Use

OP = "Attention"
SINCE = 23
CORES = frozenset({"Softmax"})
_AXIS_LAST = 13  # the opset since which a softmax without an axis is along the last one
_RANK = 4
_SWAPPED = (0, 1, 3, 2)  # K with its rows last, as it is multiplied
_FROM_ROWS = (0, 2, 3, 1)  # the same, of K with its heads behind its rows
_HEADS_FIRST = (0, 2, 1, 3)


class _Scaled(NamedTuple):
    """An operand, the number that its value is multiplied by, and the nodes that do so."""

    use: Use
    scale: float
    nodes: tuple[int, ...]


class _Keys(NamedTuple):
    """Keys as an operand of Attention, with their sizes."""

    operand: Operand
    sizes: tuple[Size, ...]
    scale: float
    nodes: tuple[int, ...]


def attention_in(view: FusionView, kept: Collection[int]) -> list[Replacement]:
    """Replacements by Attention, which are disjoint. `kept` are nodes that stay."""
    sizes, found, taken = SizeReader(view), list[Replacement](), set(kept)
    for core in view.of_operators(CORES):
        if core.id in taken:
            continue
        replacement = _attention(view, sizes, core)
        if replacement is not None and taken.isdisjoint(replacement.nodes):
            taken.update(replacement.nodes)
            found.append(replacement)
    return found


def _attention(view: FusionView, sizes: SizeReader, core: Node) -> Replacement | None:
    """The replacement around a softmax; None if it is not one of attention."""
    shape = view.shape(core, 0)
    usual = 1 if core.signature.version < _AXIS_LAST else -1
    is_last = core.attributes.get("axis", usual) in (-1, _RANK - 1)
    is_core = core.signature.dtype is DType.FLOAT32
    if shape is None or len(shape) != _RANK or not is_last or not is_core:
        return None
    found = (_around(view, sizes, core, mask) for mask in _masks(view, core))
    return next((each for each in found if each is not None), None)


def _around(
    view: FusionView, sizes: SizeReader, core: Node, mask: Use | None
) -> Replacement | None:
    """The replacement, with this mask."""
    scores = _scaled(view, Use(core.id, 0) if mask is None else Use(mask.node, 1 - mask.operand))
    product = _sole_maker(view, scores.use)
    if product is None or view.op(product) != "MatMul":
        return None
    query, turned = _scaled(view, Use(product.id, 0)), _scaled(view, Use(product.id, 1))
    keys, end = _keys(view, sizes, turned), _weighted(view, core, has_mask=mask is not None)
    if keys is None or end is None:
        return None
    values, scale = Use(end[-1], 1), scores.scale * query.scale * keys.scale
    rows = sizes.of(_value(view, query.use))
    if rows is None or not _are_alike(rows, keys.sizes, sizes.of(_value(view, values)) or ()):
        return None
    reads: tuple[Operand, ...] = (query.use, keys.operand, values)
    if mask is not None:
        fitting = _fitting(view, sizes, mask, (*rows[:3], keys.sizes[2]))
        if fitting is None:
            return None
        reads = (*reads, fitting)
    inner = {core.id, product.id, *end[:-1], *scores.nodes, *query.nodes, *keys.nodes}
    inner |= set() if mask is None else {mask.node}
    if not 0 < scale < math.inf:
        return None
    return Replacement(
        op=OP,
        nodes=(*sorted(inner), end[-1]),
        reads=reads,
        attributes={"scale": scale},
        since=SINCE,
    )


def _value(view: FusionView, use: Use) -> int:
    value = view.graph.nodes[use.node].inputs[use.operand]
    assert value is not None, "operands of matmuls and sums are not optional"
    return value


def _sole_maker(view: FusionView, use: Use) -> Node | None:
    """The operator that makes an operand for this node alone."""
    node = view.graph.nodes[use.node]
    maker = view.sole_maker(node, use.operand)
    return maker if maker is not None and maker.signature.dtype is DType.FLOAT32 else None


def _masks(view: FusionView, core: Node) -> Iterator[Use | None]:
    """The operand of the sum before a softmax that may be the mask; None: there is no mask."""
    yield None
    masking = _sole_maker(view, Use(core.id, 0))
    if masking is not None and view.op(masking) == "Add":
        yield from (Use(masking.id, 1), Use(masking.id, 0))


def _scaled(view: FusionView, use: Use) -> _Scaled:
    """An operand before it is multiplied by numbers."""
    scale, nodes = 1.0, list[int]()
    while (node := _sole_maker(view, use)) is not None and view.op(node) in ("Mul", "Div"):
        numbers = [_number(view, value) for value in node.inputs]
        place = next((n for n in (1, 0) if numbers[n]), None)
        if place is None or (view.op(node) == "Div" and place == 0):
            break
        number = numbers[place] or 1.0
        scale *= 1 / number if view.op(node) == "Div" else number
        nodes.append(node.id)
        use = Use(node.id, 1 - place)
    return _Scaled(use, scale, tuple(nodes))


def _number(view: FusionView, value: int | None) -> float | None:
    """A constant of one element; None for others."""
    facts = None if value is None else view.graph.constants.get(view.origin(value))
    return None if facts is None else facts.number


def _keys(view: FusionView, sizes: SizeReader, turned: _Scaled) -> _Keys | None:
    """Keys with rows before channels, of those that a matmul reads; None if they come otherwise."""
    node = _sole_maker(view, turned.use)
    if node is None:
        return None
    if view.op(node) == "Reshape":
        return _keys_of_three_axes(view, sizes, node, turned)
    if view.op(node) != "Transpose":
        return None
    order, source = view.integers(node, "perm"), _scaled(view, Use(node.id, 0))
    nodes, scale = (*turned.nodes, node.id, *source.nodes), turned.scale * source.scale
    shape = sizes.of(_value(view, source.use))
    if shape is None:
        return None
    if order == _SWAPPED:
        return _Keys(source.use, shape, scale, nodes)
    if order != _FROM_ROWS:
        return None
    operand = Computed(op="Transpose", reads=(source.use,), attributes={"perm": _HEADS_FIRST})
    return _Keys(operand, tuple(shape[n] for n in _HEADS_FIRST), scale, nodes)


def _keys_of_three_axes(
    view: FusionView, sizes: SizeReader, node: Node, turned: _Scaled
) -> _Keys | None:
    """Keys that are transposed with batch and heads as one axis."""
    transpose, shape = (
        _sole_maker(view, Use(node.id, 0)),
        view.graph.shapes.get(node.outputs[0] or 0),
    )
    if transpose is None or shape is None or None in shape or view.op(transpose) != "Transpose":
        return None
    before = view.shape(transpose, 0)
    batch, heads, channels, rows = (size or 0 for size in shape)
    if view.integers(transpose, "perm") != (0, 2, 1) or before != (batch * heads, rows, channels):
        return None
    whole = (batch, heads, rows, channels)
    operand = Computed(op="Reshape", reads=(Use(transpose.id, 0), Integers(whole)))
    return _Keys(operand, whole, turned.scale, (*turned.nodes, node.id, transpose.id))


def _weighted(view: FusionView, core: Node, *, has_mask: bool) -> list[int] | None:
    """The nodes from the softmax to the product with the values, which is last. Without a mask no
    weight is NaN, so what replaces NaN does nothing.
    """
    readers = {reader.id: reader for reader, _ in view.readers(core.outputs[0] or 0)}
    if len(readers) == 1:
        return _product(view, core.outputs[0], next(iter(readers.values())), [])
    by_op = {view.op(reader): reader for reader in readers.values()}
    if len(readers) != 2 or set(by_op) != {"IsNaN", "Where"} or has_mask:
        return None
    guard, test = by_op["Where"], by_op["IsNaN"]
    is_guard = view.sole_maker(guard, 0) is test and view.number(guard, 1) is not None
    product = view.sole_reader(guard)
    if not is_guard or product is None or not view.same(guard.inputs[2], core.outputs[0]):
        return None
    return _product(view, guard.outputs[0], product, [test.id, guard.id])


def _product(
    view: FusionView, weights: int | None, node: Node, between: list[int]
) -> list[int] | None:
    is_product = node.kind is Kind.OP and view.op(node) == "MatMul"
    is_first = is_product and view.same(node.inputs[0], weights)
    return [*between, node.id] if is_first and not view.same(node.inputs[1], weights) else None


def _are_alike(*sizes: tuple[Size, ...]) -> bool:
    """Whether queries, keys and values have four axes and the same batch and heads."""
    is_known = all(len(shape) == _RANK for shape in sizes)
    return is_known and len({shape[:2] for shape in sizes}) == 1


def _fitting(
    view: FusionView, sizes: SizeReader, use: Use, scores: tuple[Size, ...]
) -> Operand | None:
    """A mask with four axes, all rows and all keys, for each batch and head or for all; None if it
    has other sizes than scores, or unknown ones.
    """
    shape = sizes.of(_value(view, use))
    is_scores = view.same(_value(view, use), _value(view, Use(use.node, 1 - use.operand)))
    if shape is None or len(shape) > _RANK or is_scores:
        return None
    whole = (*(1,) * (_RANK - len(shape)), *shape)
    if any(size not in (1, own) for size, own in zip(whole, scores, strict=True)):
        return None
    mask: Operand = use
    if len(shape) < _RANK:
        added = Integers(tuple(range(_RANK - len(shape))))
        mask = Computed(op="Unsqueeze", reads=(mask, added))
    if whole[2:] == scores[2:]:
        return mask
    rows, keys = scores[2:]
    if not isinstance(rows, int) or not isinstance(keys, int):
        return None
    return Computed(op="Expand", reads=(mask, Integers((1, 1, rows, keys))))
