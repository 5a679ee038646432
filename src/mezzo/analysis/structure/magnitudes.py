"""Powers and magnitudes before a logarithm that is guarded far below the format's smallest normal number.

The guard says how quiet the signal may be: log(max(|X|^2, 1e-12)) of a spectrum. A logarithm answers to each number's
own relative error, and squares of small numbers lose that long before their size says so. Ranges do not show it, so
data lifts none of this.
"""

from collections.abc import Iterable

from mezzo.analysis.structure import StructureRule, View
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Cost, Function
from mezzo.tables.policy import Finding

_GUARDING = frozenset({Function.ADD, Function.MAXIMUM, Function.CLIP})
# What is never negative, whatever it is made of, and sums of that.
_MAGNITUDES = frozenset({Function.SQUARE, Function.SUM_OF_SQUARES, Function.L2_NORM, Function.ABS, Function.VARIANCE})
_OF_MAGNITUDES = frozenset(
    {Function.ADD, Function.SUM, Function.MEAN, Function.SQRT, Function.MATMUL, Function.IDENTITY}
)


def log_magnitudes(view: View) -> Iterable[Finding]:
    """What makes the operand of a guarded logarithm, back to the signed signal."""
    seen: set[int] = set()
    for logarithm in view.nodes(Function.LOG):
        guard = view.producer(logarithm, 0)
        operand = None if guard is None else _guarded_operand(view, guard)
        if guard is None or operand is None:
            continue
        queue = [view.producer(guard, operand)]
        while queue:
            node = queue.pop()
            if node is None or node.id in seen or not view.is_decided(node) or not _is_magnitude(view, node):
                continue
            seen.add(node.id)
            text = f"is taken the logarithm of by {logarithm.name!r}, down to what {guard.name!r} guards it with"
            yield Finding(node=node.id, rule="log-magnitude", because=text, cause=logarithm.id)
            makers = [view.producer(node, k) for k in range(len(node.inputs)) if view.constant(node, k) is None]
            queue += [maker for maker in makers if not _makes_positive(view, node) or _is_positive(view, maker)]


def _guarded_operand(view: View, guard: Node) -> int | None:
    """The operand that a constant below the smallest normal number is added to, or bounds."""
    if view.function(guard) not in _GUARDING:
        return None
    sides = []
    for k in range(min(len(guard.inputs), 2)):
        facts = view.constant(guard, k)
        if facts is None:
            sides.append(k)
        elif not 0.0 < facts.largest < view.low.smallest_normal:
            return None
    return sides[0] if len(sides) == 1 and len(guard.inputs) > 1 else None


def _makes_positive(view: View, node: Node) -> bool:
    """Whether what an operator makes is a magnitude although its operand may be signed."""
    is_square = view.function(node) is Function.MULTIPLY and node.inputs[0] == node.inputs[1]
    return is_square or view.function(node) in _MAGNITUDES | {Function.POWER}


def _is_positive(view: View, node: Node | None) -> bool:
    return node is not None and view.function(node) in _MAGNITUDES | {Function.SQRT}


def _is_magnitude(view: View, node: Node) -> bool:
    """Whether an operator makes magnitudes of a signal, or numbers of magnitudes."""
    function, row = view.function(node), view.rows[node.id]
    if function is Function.MULTIPLY:
        return node.inputs[0] == node.inputs[1] or any(view.constant(node, k) is not None for k in range(2))
    if function is Function.POWER:
        return view.constant(node, 1) is not None
    is_mover = row is not None and row.keeps_values and row.cost is Cost.MOVEMENT
    return is_mover or function in _MAGNITUDES | _OF_MAGNITUDES


RULES = (StructureRule("log-magnitude", "powers before a guarded logarithm", log_magnitudes),)
