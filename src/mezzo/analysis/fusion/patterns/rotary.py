"""Fusion pattern of rotary position embeddings: x times cosines plus rotated halves of x times
sines.
"""

from collections.abc import Sequence

from mezzo.analysis.fusion.selector import Free, whole
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_PARTS = frozenset({"Slice", "Split"})


def _rotary(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches the pattern, with the final addition as the seed."""
    if view.function(seed) is not Function.ADD or not view.is_float(seed):
        return None
    products = [view.maker(seed, operand) for operand in range(2)]
    for straight, rotated in (products, products[::-1]):
        if straight is None or rotated is None or straight is rotated:
            continue
        half = _turned(view, straight, rotated)
        if half is None:
            continue
        inner = [straight, rotated, *half]
        if all(free(node.id) for node in inner) and all(
            view.sole_reader(node) is not None for node in inner[:4]
        ):
            return [seed, *inner]
    return None


def _turned(view: FusionView, straight: Node, rotated: Node) -> list[Node] | None:
    """Nodes that rotate the halves of a value before one multiplication (Concat, Neg, slices), if
    the other multiplies the same value; else None.
    """
    if not view.function(straight) is view.function(rotated) is Function.MULTIPLY:
        return None
    for operand in range(2):
        joined = view.maker(rotated, operand)
        if joined is None or view.op(joined) != "Concat" or len(joined.inputs) != 2:
            continue
        negative, first = view.maker(joined, 0), view.maker(joined, 1)
        second = None if negative is None or view.op(negative) != "Neg" else view.maker(negative, 0)
        if (
            negative is None
            or first is None
            or second is None
            or not {view.op(first), view.op(second)} <= _PARTS
        ):
            continue
        if view.same(first.inputs[0], second.inputs[0]) and any(
            view.same(v, first.inputs[0]) for v in straight.inputs
        ):
            return [joined, negative, *({first.id: first, second.id: second}.values())]
    return None


PATTERNS = (
    Pattern(
        name="rotary",
        summary="a value times cosines, plus the value turned by half times sines",
        forms={"": whole(_rotary)},
    ),
)
