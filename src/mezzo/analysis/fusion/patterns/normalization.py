"""Fusion patterns of norms: decomposed, as one operator, and with the residual addition before
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.analysis.fusion.chains import sizes_may_agree
from mezzo.analysis.fusion.norm_joins import joined_norms
from mezzo.analysis.fusion.selector import Form, Free, Make, shape, whole
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function
from mezzo.tables.fusions import Fusion

_BOUNDS = frozenset({"Add", "Clip", "Max"})
_RANK_OF_SKIP = 3  # batch, rows, channels


@dataclass(frozen=True, slots=True)
class Norm:
    """A matched norm: its nodes, its input value, and its last node."""

    nodes: tuple[Node, ...]
    value: int
    end: Node
    is_centred: bool


def _norm_of(view: FusionView, root: Node, free: Free, *, by_division: bool = True) -> Norm | None:
    """The norm around a root: mean, difference, squares, their mean, epsilon, root, quotient,
    scale, shift.

    `by_division`: only norms that divide by the root, without a reciprocal.
    """
    if view.function(root) not in (Function.SQRT, Function.RSQRT) or not view.is_float(root):
        return None
    epsilon_add = view.maker(root, 0)
    if epsilon_add is None or view.function(epsilon_add) is not Function.ADD:
        return None
    mean_square = next(iter(view.makers(epsilon_add)), None)
    if mean_square is None or view.function(mean_square) is not Function.MEAN:
        return None
    squared = view.maker(mean_square, 0)
    base = None if squared is None else _squared(view, squared)
    if squared is None or base is None:
        return None
    nodes = [root, epsilon_add, mean_square, squared]
    centred = view.producer(base)
    is_centred = _is_centred(view, centred, free)
    if is_centred:
        mean = view.maker(centred, 1)
        assert mean is not None, "a difference from a mean has one"
        nodes += [centred, mean]
    end = _quotient(view, root, base, nodes)
    if end is None:
        return None
    if by_division and any(
        view.function(node) in (Function.RECIPROCAL, Function.RSQRT) for node in nodes
    ):
        return None
    end = _affine(view, end, nodes, free, takes_shift=is_centred)
    value = centred.inputs[0] if is_centred else base
    members = {node.id for node in nodes}
    if value is None or any(not free(node.id) for node in nodes) or len(members) != len(nodes):
        return None
    if any(
        view.escapes(node, members | _handing_on(view, node)) for node in nodes if node is not end
    ):
        return None
    return Norm(tuple(nodes), view.origin(value), end, is_centred)


def _handing_on(view: FusionView, node: Node) -> set[int]:
    """Identity operators after a node; their readers count as the node's."""
    operators: set[int] = set()
    pending = [value for value in node.outputs if value is not None]
    while pending:
        for use in view.graph.uses[pending.pop()]:
            reader = view.graph.nodes[use.node]
            if view.is_identity(reader) and reader.outputs[0] is not None:
                operators.add(reader.id)
                pending.append(reader.outputs[0])
    return operators


def _squared(view: FusionView, node: Node) -> int | None:
    """The value that a node squares; else None."""
    function = view.function(node)
    value = node.inputs[0] if node.inputs else None
    is_power = function is Function.POWER and view.number(node, 1) == 2.0
    is_product = function is Function.MULTIPLY and len(node.inputs) == 2 and view.same(*node.inputs)
    is_square = is_power or is_product or function is Function.SQUARE
    return view.origin(value) if is_square and value is not None else None


def _is_centred(view: FusionView, node: Node, free: Free) -> bool:
    """Whether a node subtracts a value's mean from it."""
    if view.function(node) is not Function.SUBTRACT or not free(node.id):
        return False
    mean = view.maker(node, 1)
    return (
        mean is not None
        and view.function(mean) is Function.MEAN
        and view.same(mean.inputs[0], node.inputs[0])
    )


def _quotient(view: FusionView, root: Node, base: int, nodes: list[Node]) -> Node | None:
    """The node that divides by the root, directly or through its reciprocal; else None."""
    reader = view.sole_reader(root)
    if reader is None:
        return None
    inverse = view.function(root) is Function.RSQRT
    is_reciprocal = view.function(reader) is Function.RECIPROCAL or (
        view.function(reader) is Function.DIVIDE and view.number(reader, 0) == 1.0
    )
    if is_reciprocal and not inverse:
        nodes.append(reader)
        following = view.sole_reader(reader)
        if following is None:
            return None
        reader, inverse = following, True
    if len(reader.inputs) != 2 or not any(view.same(value, base) for value in reader.inputs):
        return None
    if view.function(reader) is (Function.MULTIPLY if inverse else Function.DIVIDE):
        nodes.append(reader)
        return reader
    return None


def _affine(
    view: FusionView, end: Node, nodes: list[Node], free: Free, *, takes_shift: bool
) -> Node:
    """The last node of a constant scale and shift after a norm; the norm's own end without one."""
    for function in (Function.MULTIPLY, Function.ADD) if takes_shift else (Function.MULTIPLY,):
        reader = view.sole_reader(end)
        if reader is None or view.function(reader) is not function or not free(reader.id):
            return end
        if not any(view.is_constant(value) for value in reader.inputs):
            return end
        nodes.append(reader)
        end = reader
    return end


def _written_out(*, is_centred: bool, needs_scale: bool = True, by_division: bool = True) -> Form:
    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        norm = _norm_of(view, seed, free, by_division=by_division)
        if norm is None or norm.is_centred is not is_centred:
            return None
        is_scaled = view.function(norm.end) is (
            Function.ADD if is_centred else Function.MULTIPLY
        ) and any(view.is_constant(value) for value in norm.end.inputs)
        return norm.nodes if is_scaled or not needs_scale else None

    return whole(match)


def _operator(fusion: Fusion) -> Make:
    """Matches a norm in one operator."""

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        return [seed] if view.op(seed) in fusion.operators and view.is_float(seed) else None

    return shape(match)


def _by_l2(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches a value divided by its L2 norm with a lower bound: norm, bound, optional Expand,
    quotient.
    """
    if view.function(seed) is not Function.DIVIDE or not view.is_float(seed):
        return None
    nodes, last = [seed], view.maker(seed, 1)
    if last is not None and view.op(last) == "Expand":
        nodes.append(last)
        last = view.maker(last, 0)
    if last is not None and view.op(last) in _BOUNDS:
        nodes.append(last)
        last = next(iter(view.makers(last)), None)
    if last is None or view.op(last) != "ReduceL2" or not view.same(last.inputs[0], seed.inputs[0]):
        return None
    nodes.append(last)
    inner = nodes[1:]
    is_whole = all(free(node.id) and view.sole_reader(node) is not None for node in inner)
    return nodes if is_whole else None


def _with_sum(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches a LayerNormalization, as one operator or decomposed, and the addition of two
    activations before it.
    """
    return _operator_with_sum(view, seed, free) or _written_out_with_sum(view, seed, free)


def _operator_with_sum(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    if view.op(seed) != "LayerNormalization" or not view.is_float(seed):
        return None
    is_last = seed.attributes.get("axis", -1) in (-1, _RANK_OF_SKIP - 1)
    if not is_last or any(
        view.graph.uses[value] for value in seed.outputs[1:] if value is not None
    ):
        return None
    return _joined_by_sum(view, (seed,), seed.inputs[0], free)


def _written_out_with_sum(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    norm = _norm_of(view, seed, free)
    if norm is None or not norm.is_centred or view.function(norm.end) is not Function.ADD:
        return None
    return _joined_by_sum(view, norm.nodes, norm.value, free)


def _joined_by_sum(
    view: FusionView, nodes: tuple[Node, ...], value: int | None, free: Free
) -> Sequence[Node] | None:
    """A norm and the addition before it, if the sum has no other readers: otherwise ONNX Runtime's
    CPU provider does not fuse them.
    """
    if value is None:
        return None
    seed = nodes[0]
    residual_add = view.producer(view.origin(value))
    if (
        residual_add.scope != seed.scope
        or not free(residual_add.id)
        or not _adds_rows(view, residual_add)
    ):
        return None
    inside = {node.id for node in nodes}
    if any(reader.id not in inside for reader, _ in view.readers(view.origin(value))):
        return None
    return [residual_add, *nodes]


def _adds_rows(view: FusionView, node: Node) -> bool:
    """Whether a node adds two activations of rank 3 and one static shape."""
    if view.function(node) is not Function.ADD or not view.is_float(node):
        return False
    if any(value is None or view.is_constant(value) for value in node.inputs):
        return False
    left, right = view.shape(node, 0), view.shape(node, 1)
    if left is None or right is None or not len(left) == len(right) == _RANK_OF_SKIP:
        return False
    is_known = view.has_fixed_inputs or None not in (*left, *right)
    return is_known and sizes_may_agree(left, right)


PATTERNS = (
    Pattern(
        name="skip-layer-norm",
        summary="the sum of two activations and the LayerNormalization of it",
        forms={
            "": whole(_with_sum),
            "operator": whole(_operator_with_sum),
            "written-out": whole(_written_out_with_sum),
        },
    ),
    Pattern(
        name="layer-norm",
        summary="LayerNormalization written out",
        forms={
            "": _written_out(is_centred=True),
            "any-root": _written_out(is_centred=True, needs_scale=False, by_division=False),
        },
        joins=joined_norms,
    ),
    Pattern(
        name="rms-norm",
        summary="RMSNorm written out",
        forms={
            "": _written_out(is_centred=False),
            "any-root": _written_out(is_centred=False, by_division=False),
        },
    ),
    Pattern(
        name="l2-norm",
        summary="a value divided by its L2 norm",
        forms={"": whole(_by_l2)},
    ),
    Pattern(
        name="norm",
        summary="a norm in one operator, which sums in FP32 inside",
        forms={"": _operator},
    ),
)
