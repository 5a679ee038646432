"""Shape inference where the front end has no shapes: bodies of functions and loops, and shapes
computed by the graph.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from mezzo.analysis.estimates.site import EstimatedGraph, Shape
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import REDUCTIONS, Transfer

Shapes = Sequence[Shape | None]


def derive_shape(site: EstimatedGraph, node: Node) -> None:
    """Infer the shape of a node's first output, or of all outputs of a tie, if the front end left a
    dimension unknown; it stays unknown where inference is not simple.
    """
    outputs = node.outputs if node.kind is Kind.TIE else node.outputs[:1]
    results = [value for value in outputs if value is not None]
    if not any(_may_tell_more(site, node, value) for value in results):
        return
    shapes = [site.shape(value) for value in node.inputs]
    infer = _shape_of_tie if node.kind is Kind.TIE else _shape_of_result
    try:
        shape = infer(site, node, shapes)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):
        return  # a body may reuse a name for a value of another rank
    if shape is not None:
        for value in results:
            _note(site, value, shape)


def _may_tell_more(site: EstimatedGraph, node: Node, value: int) -> bool:
    shape = site.graph.shapes.get(value)
    if shape is None:
        return True
    if None not in shape:
        return False
    return not site.worked_out.isdisjoint(node.inputs)


def _note(site: EstimatedGraph, value: int, shape: Shape) -> None:
    """Merge an inferred shape into the front end's, whose dimensions take precedence."""
    declared = site.graph.shapes.get(value)
    if declared is not None:
        if len(declared) != len(shape):
            return
        shape = tuple(
            own if size is None else size for size, own in zip(declared, shape, strict=True)
        )
        if shape == declared:
            site.derived.pop(value, None)
            return
    site.note_shape(value, shape)


def _shape_of_tie(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    first, axis = shapes[0], site.scanned.get(node.id)
    if axis is None:
        present = [shape for shape in shapes if shape is not None]
        if len(set(map(len, present))) != 1:
            return None
        return tuple(
            sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*present, strict=True)
        )
    if first is None or axis.has_batches:
        return None
    if axis.leaves:
        place = axis.place % (len(first) + 1)
        return (*first[:place], site.trips.get(axis.loop), *first[place:])
    place = axis.place % len(first)
    return (*first[:place], *first[place + 1 :])


def _shape_of_result(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    transfer, rule = site.transfer(node), _RULES.get(node.signature.op)
    if rule is not None:
        return rule(site, node, shapes)
    first = shapes[0] if shapes else None
    of_first = _OF_FIRST.get(node.signature.op, _reduced if transfer in REDUCTIONS else None)
    if of_first is not None:
        return None if first is None else of_first(site, node, first)
    if transfer in _RESHAPING or transfer is None:
        return None
    if transfer not in _ELEMENTWISE:
        return first
    present = [shape for shape in shapes if shape is not None]
    return _broadcast(present) if present and len(present) == len(shapes) else None


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """The broadcast shape of elementwise operands."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(_common(column) for column in columns)


def _common(sizes: Sequence[int | None]) -> int | None:
    """The length that is not 1; None if an unknown length may be it."""
    longer = [size for size in sizes if size is not None and size != 1]
    return longer[0] if longer else None if None in sizes else 1


def _reduced(site: EstimatedGraph, node: Node, first: Shape) -> Shape:
    axes: Sequence[int] | None = site.reduced_axes(node)
    if node.op.startswith("Global"):
        return tuple(1 if k >= 2 else size for k, size in enumerate(first))
    if axes is None or not first:
        axes = range(len(first))
    reduced_axes = {axis % len(first) for axis in axes}
    if node.attributes.get("keepdims", 1):
        return tuple(1 if k in reduced_axes else size for k, size in enumerate(first))
    return tuple(size for k, size in enumerate(first) if k not in reduced_axes)


def product_of(sizes: Sequence[int | None]) -> int | None:
    """The product of lengths; None if one is unknown."""
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def _matrix_product(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    first, second = shapes[0], shapes[1]
    if not first or not second:
        return None
    rows = first[-2:-1]
    columns = second[-1:] if len(second) > 1 else ()
    return (*_broadcast([first[:-2], second[:-2]]), *rows, *columns)


def _convolved(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    """Batch and channel dimensions; spatial dimensions stay unknown."""
    first, weight = shapes[0], shapes[1]
    if first is None or weight is None or len(first) != len(weight):
        return None
    return (first[0], weight[0], *(None,) * (len(first) - 2))


def _transposed(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    order = node.attributes.get("perm")
    return tuple(first[k] for k in order) if isinstance(order, tuple) else first[::-1]


def _reshaped(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    first, sizes = shapes[0], site.entries(node.inputs[1])
    if sizes is None:
        rank = site.length(node.inputs[1], 0)
        return None if rank is None or rank > _HIGHEST_RANK else (None,) * rank
    if not node.attributes.get("allowzero", 0):
        sizes = tuple(
            (first[k] if first is not None else None) if size == 0 else size
            for k, size in enumerate(sizes)
        )
    if -1 not in sizes:
        return sizes
    whole = None if first is None else product_of(first)
    rest = product_of([size for size in sizes if size != -1])
    left = whole // rest if whole and rest else None
    return tuple(left if size == -1 else size for size in sizes)


def _expanded(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    sizes = site.entries(node.inputs[1])
    return None if sizes is None else _broadcast([first, sizes])


def _counted(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    start, limit, step = [(site.entries(value) or (None,))[0] for value in node.inputs]
    if start is None or limit is None or not step:
        return (None,)
    return (len(range(start, limit, step)),)


def _tiled(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    times = site.entries(node.inputs[1])
    if times is None:
        return None
    return tuple(map(product_of, zip(first, times, strict=True)))


def _axes(site: EstimatedGraph, node: Node, operand: int) -> tuple[int, ...] | None:
    """Axes from the attribute or the operand; None if unknown."""
    stated = node.attributes.get("axes")
    if isinstance(stated, tuple):
        return stated
    entries = site.entries(node.operand(operand))
    axes = tuple(axis for axis in entries or () if axis is not None)
    return axes if entries is not None and len(axes) == len(entries) else None


def _unsqueezed(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    axes = _axes(site, node, 1)
    if axes is None:
        return None
    rank = len(first) + len(axes)
    new_axes, rest = {axis % rank for axis in axes}, iter(first)
    return tuple(1 if k in new_axes else next(rest) for k in range(rank))


def _squeezed(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    axes = _axes(site, node, 1)
    if axes is not None:
        dropped_axes = {axis % len(first) for axis in axes}
    elif None in first:
        return None
    else:
        dropped_axes = {k for k, size in enumerate(first) if size == 1}
    return tuple(size for k, size in enumerate(first) if k not in dropped_axes)


def _gathered(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    first, places, axis = shapes[0], shapes[1], node.attributes.get("axis", 0)
    if not first or places is None or not isinstance(axis, int):
        return None
    axis %= len(first)
    return (*first[:axis], *places, *first[axis + 1 :])


def _sliced(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    bounds = [node.attributes.get(name) for name in ("starts", "ends")]
    starts, ends = (
        stated if isinstance(stated, tuple) else site.entries(node.operand(k + 1))
        for k, stated in enumerate(bounds)
    )
    count = len(starts or ends or first)
    has_axes = "axes" in node.attributes or node.operand(3) is not None
    axes = _axes(site, node, 3) if has_axes else tuple(range(count))
    stride = node.operand(4)
    steps = (1,) * count if stride is None else site.entries(stride)
    if axes is None:
        return (None,) * len(first)
    sizes = list(first)
    for k, axis in enumerate(axes):
        size = first[axis]
        bound = [None if entries is None else entries[k] for entries in (starts, ends, steps)]
        if size is None or None in bound:
            sizes[axis] = None
        else:
            sizes[axis] = len(range(size)[slice(*bound)])
    return tuple(sizes)


def _joined(site: EstimatedGraph, node: Node, shapes: Shapes) -> Shape | None:
    present = [shape for shape in shapes if shape is not None]
    axis = node.attributes.get("axis")
    if not present or not isinstance(axis, int) or len(set(map(len, present))) > 1:
        return None
    axis %= len(present[0])
    parts = [None if shape is None else shape[axis] for shape in shapes]
    along = None if None in parts else sum(size or 0 for size in parts)
    others = [
        next((s for s in sizes if s is not None), None) for sizes in zip(*present, strict=True)
    ]
    return (*others[:axis], along, *others[axis + 1 :])


def _flattened(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    axis = node.attributes.get("axis", 1)
    if not isinstance(axis, int):
        return None
    axis = axis + len(first) if axis < 0 else axis
    return product_of(first[:axis]), product_of(first[axis:])


def _shape_itself(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    return (len(part_of_shape(node, first)),)


def part_of_shape(node: Node, shape: Shape) -> Shape:
    """The part of a shape that a Shape operator outputs."""
    start, end = node.attributes.get("start"), node.attributes.get("end")
    return shape[start if isinstance(start, int) else None : end if isinstance(end, int) else None]


def _same(site: EstimatedGraph, node: Node, first: Shape) -> Shape | None:
    return first


_HIGHEST_RANK = 8

_RULES: Mapping[str, Callable[[EstimatedGraph, Node, Shapes], Shape | None]] = {
    "Concat": _joined, "ConstantOfShape": lambda site, node, shapes: site.entries(node.inputs[0]),
    "Conv": _convolved, "Gather": _gathered, "MatMul": _matrix_product,
    "MatMulInteger": _matrix_product, "Range": _counted, "Reshape": _reshaped,
    "Size": lambda site, node, shapes: (),
}  # fmt: skip
# Rules that need the first operand's shape.
_OF_FIRST: Mapping[str, Callable[[EstimatedGraph, Node, Shape], Shape | None]] = {
    "Cast": _same, "CastLike": _same, "Dropout": _same, "Expand": _expanded, "Flatten": _flattened,
    "Identity": _same, "Shape": _shape_itself, "Slice": _sliced, "Squeeze": _squeezed,
    "Tile": _tiled, "Transpose": _transposed, "Unsqueeze": _unsqueezed,
}  # fmt: skip
_RESHAPING = frozenset(
    {
        Transfer.KEEP,
        Transfer.MOVE,
        Transfer.JOIN,
        Transfer.CONTRACT,
        Transfer.EINSUM,
        Transfer.INDEX,
        Transfer.SHAPE,
        Transfer.RANGE,
        Transfer.ONE_HOT,
        Transfer.FILL,
        Transfer.POOL,
        Transfer.ATTENTION,
        Transfer.RECURRENT,
    }
)
_ELEMENTWISE = frozenset(
    {
        Transfer.ADD,
        Transfer.SUBTRACT,
        Transfer.AVERAGE,
        Transfer.MULTIPLY,
        Transfer.DIVIDE,
        Transfer.POWER,
        Transfer.MINIMUM,
        Transfer.MAXIMUM,
        Transfer.SELECT,
        Transfer.ABOVE,
        Transfer.BELOW,
        Transfer.TRUTH,
        Transfer.FINITE,
    }
)
