"""Norms written out in small operators: the square overflows long before the result does.

Both exports are recognised: reduction axes may be an attribute or an operand, the root a Sqrt, a reciprocal root or a
power.
"""

from collections.abc import Callable, Iterable, Iterator

from mezzo.core.facts import Function
from mezzo.core.nodes import Node
from mezzo.core.policy import Finding, Lifting
from mezzo.structure import StructureRule, View

_ROOTS = (Function.SQRT, Function.RSQRT, Function.POWER)
_REDUCTIONS = frozenset({Function.MEAN, Function.SUM})
_OF_SQUARES = frozenset({Function.SUM_OF_SQUARES, Function.VARIANCE})


def is_square(view: View, node: Node) -> bool:
    """x*x, x**2 or a square operator."""
    function = view.function(node)
    if function is Function.SQUARE:
        return True
    if function is Function.MULTIPLY and len(node.inputs) == 2:
        return node.inputs[0] == node.inputs[1]
    return function is Function.POWER and _exponent(view, node) == 2.0


def _exponent(view: View, node: Node) -> float | None:
    facts = view.constant(node, 1)
    return facts.values[0] if facts is not None and facts.values is not None and len(facts.values) == 1 else None


def norms(view: View) -> tuple[tuple[str, list[Node]], ...]:
    """Each decomposed norm: its rule name and nodes, the root first. Searched once per view."""
    return view.once(_search)


def _search(view: View) -> tuple[tuple[str, list[Node]], ...]:
    return tuple(_norms(view))


def _norms(view: View) -> Iterator[tuple[str, list[Node]]]:
    for root in view.nodes(*_ROOTS):
        if view.function(root) is Function.POWER and _exponent(view, root) not in (0.5, -0.5):
            continue
        below: Node | None = view.producer(root, 0)
        group = [root]
        while below is not None and view.function(below) in (Function.ADD, Function.MAXIMUM, Function.CLIP):
            group.append(below)
            sides = [view.producer(below, k) for k in range(2) if view.constant(below, k) is None]
            below = sides[0] if len(sides) == 1 else None
        if below is None or view.function(below) not in _REDUCTIONS | _OF_SQUARES:
            continue
        group.append(below)
        is_mean = view.function(below) is Function.MEAN
        squared: Node | None = below
        if view.function(below) in _REDUCTIONS:
            squared = view.producer(below, 0)
            if squared is None or not is_square(view, squared):
                continue
            group.append(squared)
        assert squared is not None, "set on every path above"
        centred = view.producer(squared, 0)
        name = "rms-norm" if is_mean else "l2-norm"
        if view.function(below) is Function.VARIANCE:
            name = "layer-norm"
            group += _centring(view, below, _scaling(view, root))
        if centred is not None and view.function(centred) is Function.SUBTRACT:
            mean = view.producer(centred, 1)
            if mean is not None and view.function(mean) is Function.MEAN:
                group += [centred, mean]
                name = "layer-norm"
        group += _scaling(view, root)
        yield name, group


def _centring(view: View, variance: Node, scaling: Iterable[Node]) -> list[Node]:
    """What takes the mean off before it is scaled, and the mean, which may come with the variance."""
    found: list[Node] = []
    for node in scaling:
        for operand in range(2):
            centred = view.producer(node, operand)
            if centred is None or view.function(centred) is not Function.SUBTRACT:
                continue
            mean = view.producer(centred, 1)
            if mean is variance:
                found.append(centred)
            elif mean is not None and view.function(mean) is Function.MEAN:
                found += [centred, mean]
    return found


def _scaling(view: View, root: Node) -> list[Node]:
    """What the root's result divides or multiplies, its reciprocal included."""
    scaling = []
    for reader in view.readers(root):
        function = view.function(reader)
        if function is Function.RECIPROCAL or (function is Function.DIVIDE and view.constant(reader, 0) is not None):
            scaling += [reader, *(r for r in view.readers(reader) if view.function(r) is Function.MULTIPLY)]
        elif function in (Function.DIVIDE, Function.MULTIPLY):
            scaling.append(reader)
        elif function in (Function.MAXIMUM, Function.CLIP) and view.function(root) is not Function.MAXIMUM:
            scaling += [reader, *_divided_by(view, reader)]  # the floor may stand behind the root
    return scaling


def _divided_by(view: View, floor: Node) -> list[Node]:
    """What a floored norm divides, seen through operators that only move it."""
    divisions: list[Node] = []
    for reader in view.readers(floor):
        row = view.rows[reader.id]
        if view.function(reader) is Function.DIVIDE:
            divisions.append(reader)
        elif row is not None and row.keeps_values:
            divisions += [r for r in view.readers(reader) if view.function(r) is Function.DIVIDE]
    return divisions


def _find(wanted: str) -> Callable[[View], Iterable[Finding]]:
    def find(view: View) -> Iterable[Finding]:
        for name, group in norms(view):
            if name == wanted:
                root = group[0]
                text = f"part of a decomposed {name} around {root.name!r}: its squares overflow, so it stays together"
                for node in group:
                    if view.is_decided(node):
                        yield Finding(node=node.id, rule=name, because=text, cause=None if node is root else root.id)

    return find


def squares(view: View) -> Iterable[Finding]:
    """A square that is summed: variance, energy, squared distance."""
    for node in view.nodes(Function.SQUARE, Function.MULTIPLY, Function.POWER):
        if not is_square(view, node):
            continue
        for reader in view.readers(node):
            if view.function(reader) in _REDUCTIONS and view.is_decided(reader):
                text = f"sums the squares that {node.name!r} makes"
                yield Finding(node=node.id, rule="sum-of-squares", because=f"its squares are summed by {reader.name!r}")
                yield Finding(node=reader.id, rule="sum-of-squares", because=text, cause=node.id)


RULES = (
    StructureRule("layer-norm", "LayerNorm or InstanceNorm in small operators", _find("layer-norm"), Lifting.BY_RANGES),
    StructureRule("rms-norm", "RMSNorm in small operators", _find("rms-norm"), Lifting.BY_RANGES),
    StructureRule("l2-norm", "division by an L2 norm in small operators", _find("l2-norm"), Lifting.BY_RANGES),
    StructureRule("sum-of-squares", "squares summed over an axis", squares, Lifting.BY_RANGES),
)
