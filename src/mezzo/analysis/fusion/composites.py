"""Decomposed activations: GELU with Erf or Tanh, and SiLU."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_MOST_INSIDE = 8  # operators between the input and the Erf or Tanh
_CLOSE = 1e-3
_PRODUCTS = frozenset({Function.MULTIPLY, Function.DIVIDE})
_SUMS = frozenset(
    {Function.ADD, Function.MULTIPLY, Function.DIVIDE, Function.POWER, Function.SQUARE}
)
_CUBIC = 0.044715
_SLOPE = math.sqrt(2 / math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """A decomposed activation: its input value, its nodes, and the node with its result.

    `is_usual`: the form that every fusion recognises: the Erf's input is divided by a number, not
    multiplied, and the factor 1/2 applies to the input or the result, not to the sum.
    """

    name: str
    value: int
    nodes: frozenset[int]
    end: Node
    is_usual: bool = True


def composites(view: FusionView) -> tuple[Composite, ...]:
    """All decomposed activations of a graph. Cached per view."""
    return view.once(_search)


def composites_of(view: FusionView) -> Mapping[int, tuple[Composite, ...]]:
    """Decomposed activations by their input value, before Identity operators."""
    return view.once(_by_value)


def composites_at(view: FusionView) -> Mapping[int, Composite]:
    """Decomposed activations by their last node."""
    return view.once(_by_end)


def _by_value(view: FusionView) -> dict[int, tuple[Composite, ...]]:
    by_value: dict[int, tuple[Composite, ...]] = {}
    for composite in composites(view):
        by_value[composite.value] = (*by_value.get(composite.value, ()), composite)
    return by_value


def _by_end(view: FusionView) -> dict[int, Composite]:
    return {composite.end.id: composite for composite in composites(view)}


def _search(view: FusionView) -> tuple[Composite, ...]:
    matches = []
    for node in view.graph.nodes:
        match view.op(node):
            case "Erf" | "Tanh":
                matches += list(_gelu(view, node))
            case "Sigmoid":
                matches += list(_silu(view, node))
    return tuple(matches)


def _gelu(view: FusionView, core: Node) -> Iterator[Composite]:
    """x / 2 * (1 + erf(x / sqrt 2)), or with tanh of a cubic, with factors in any order."""
    shifted = view.sole_reader(core)
    if (
        shifted is None
        or view.function(shifted) is not Function.ADD
        or _other_number(view, shifted, core) != 1.0
    ):
        return
    nodes, end, value = {core.id, shifted.id}, shifted, None
    is_halved = halves_sum = False
    while value is None or not is_halved:
        product = view.sole_reader(end)
        if product is None or view.function(product) not in _PRODUCTS:
            return
        number = _factor(view, product, end)
        if number is None and view.function(product) is Function.MULTIPLY and value is None:
            value, half = _half_of(view, product, end)
            if half is not None:
                nodes.add(half.id)
                is_halved = True
        elif number is not None and math.isclose(number, 0.5, rel_tol=_CLOSE) and not is_halved:
            is_halved = True
            halves_sum = value is None
        else:
            return
        nodes.add(product.id)
        end = product
    inner = _inner(view, core, value)
    if inner is None:
        return
    numbers, below = inner
    coefficients = (1 / math.sqrt(2),) if view.op(core) == "Erf" else (_CUBIC, _SLOPE)
    if not all(_has(numbers, coefficient) for coefficient in coefficients) and not _has(
        numbers, _CUBIC * _SLOPE
    ):
        return
    nodes |= below
    if not any(view.escapes(view.graph.nodes[node], nodes) for node in nodes - {end.id}):
        name = "gelu-erf" if view.op(core) == "Erf" else "gelu-tanh"
        divides = any(view.function(view.graph.nodes[node]) is Function.DIVIDE for node in below)
        is_usual = view.op(core) == "Tanh" or (divides and not halves_sum)
        yield Composite(name=name, value=value, nodes=frozenset(nodes), end=end, is_usual=is_usual)


def _silu(view: FusionView, gate: Node) -> Iterator[Composite]:
    """x * sigmoid(x), or with x scaled in the sigmoid."""
    product = view.sole_reader(gate)
    if product is None or view.function(product) is not Function.MULTIPLY:
        return
    other = _other(view, product, gate)
    inner = None if other is None else _inner(view, gate, other)
    if other is None or inner is None or len(inner[1]) > 1 or (inner[1] and len(inner[0]) != 1):
        return
    nodes = {gate.id, product.id} | inner[1]
    if not any(view.escapes(view.graph.nodes[node], nodes) for node in nodes - {product.id}):
        yield Composite(name="silu", value=other, nodes=frozenset(nodes), end=product)


def _inner(view: FusionView, core: Node, value: int) -> tuple[list[float], set[int]] | None:
    """Constants and operators of a polynomial in `value` that `core` reads; None if it reads
    anything else.
    """
    numbers: list[float] = []
    nodes: set[int] = set()
    pending = [(core, operand) for operand in range(len(core.inputs))]
    while pending:
        node, operand = pending.pop()
        if view.same(node.inputs[operand], value):
            continue
        number = view.number(node, operand)
        if number is not None:
            is_divisor = view.function(node) is Function.DIVIDE and operand == 1 and number != 0
            numbers.append(1 / number if is_divisor else number)
            continue
        maker = view.maker(node, operand)
        if maker is None or view.function(maker) not in _SUMS or len(nodes) >= _MOST_INSIDE:
            return None
        if maker.id not in nodes:
            nodes.add(maker.id)
            pending += [(maker, operand) for operand in range(len(maker.inputs))]
    return numbers, nodes


def _half_of(view: FusionView, product: Node, end: Node) -> tuple[int | None, Node | None]:
    """The other factor of a multiplication: a value, or half of one with the node that halves
    it.
    """
    other = _other(view, product, end)
    if other is None:
        return None, None
    maker = view.maker(product, 1 - _place(view, product, end))
    if (
        maker is not None
        and view.function(maker) in _PRODUCTS
        and view.sole_reader(maker) is product
    ):
        for operand in range(2):
            number = view.number(maker, 1 - operand)
            if number is not None and math.isclose(
                _as_factor(view, maker, number), 0.5, rel_tol=_CLOSE
            ):
                halved = maker.inputs[operand]
                return (None if halved is None else view.origin(halved)), maker
    return other, None


def _factor(view: FusionView, product: Node, end: Node) -> float | None:
    """The constant factor of a multiplication or division; None if it is not constant."""
    number = _other_number(view, product, end)
    return None if number is None else _as_factor(view, product, number)


def _as_factor(view: FusionView, node: Node, number: float) -> float:
    return 1 / number if view.function(node) is Function.DIVIDE and number else number


def _other_number(view: FusionView, node: Node, factor: Node) -> float | None:
    return view.number(node, 1 - _place(view, node, factor)) if len(node.inputs) == 2 else None


def _other(view: FusionView, node: Node, factor: Node) -> int | None:
    other = node.inputs[1 - _place(view, node, factor)] if len(node.inputs) == 2 else None
    return None if other is None else view.origin(other)


def _place(view: FusionView, node: Node, producer: Node) -> int:
    """The operand index at which a node reads another node's output."""
    return 0 if view.same(node.inputs[0], producer.outputs[0]) else 1


def _has(numbers: list[float], target: float) -> bool:
    return any(math.isclose(number, target, rel_tol=_CLOSE) for number in numbers)
