"""What nodes of a graph compute, as polynomials in one of its values."""

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.polynomials import Polynomial, X, as_moment
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node

_MOST_NODES = 24
_MOST_KEPT = 4096  # results for operands, as layers of a model have the same formulas
_LEAST_RANK = 1  # of a base of unknown rank
_FUNCTIONS = {"Erf": "erf", "Tanh": "tanh"}


class Formula(NamedTuple):
    """A value as a polynomial in the base; `is_dropped`: means of it have lost their axes."""

    polynomial: Polynomial
    is_dropped: bool = False


class Formulas:
    """Polynomials of values in a base value. `nodes`: those of each value, by id."""

    def __init__(self, view: FusionView, base: int, scope: int) -> None:
        self._view, self._base, self._scope = view, view.origin(base), scope
        self._first = view.graph.values[self._base].producer  # nodes are in topological order
        shape = view.graph.shapes.get(self._base)
        self._rank = _LEAST_RANK if shape is None else len(shape)
        self._found: dict[int, tuple[Formula, frozenset[int]] | None] = {
            self._base: (Formula(X), frozenset())
        }
        self.weights: list[int] = []  # values of the factors that are weights, by their keys

    def of(self, value: int) -> Polynomial | None:
        """A value's polynomial; None if it reads another value, or computes what has none."""
        found = self._of(value)
        return None if found is None or found[0].is_dropped else found[0].polynomial

    def is_foreign(self, value: int) -> bool:
        """Whether a value has no polynomial, not even with dropped axes."""
        return self._of(value) is None

    def nodes(self, value: int) -> frozenset[int]:
        """The nodes between the base and a value that has a polynomial."""
        found = self._of(value)
        assert found is not None, "asked of values that have one"
        return found[1]

    def _of(self, value: int) -> tuple[Formula, frozenset[int]] | None:
        value = self._view.origin(value)
        if value not in self._found:
            self._found[value] = None  # while its operands are computed
            self._found[value] = self._constant(value) or self._computed(value)
        return self._found[value]

    def _constant(self, value: int) -> tuple[Formula, frozenset[int]] | None:
        if not self._view.is_constant(value) or len(self._shape(value) or ()) > self._rank:
            return None
        facts = self._view.graph.constants.get(value)
        number = None if facts is None else facts.number
        integers = self._view.graph.integers.get(value, ())
        if len(integers) == 1:
            number = float(integers[0])
        if number is None:
            number = self._folded(value)
        if number is not None:
            return Formula(_number(number)), frozenset()
        self.weights.append(value)  # counted per base: formulas of all layers are the same
        return Formula(_weight(len(self.weights) - 1)), frozenset()

    def _folded(self, value: int) -> float | None:
        """The number that operators make of other numbers; None for other constants."""
        node = self._view.producer(value)
        if not has_rule(self._view, node) or len(node.present_inputs) < len(node.inputs):
            return None
        operands = [found[0] for found in map(self._of, node.present_inputs) if found is not None]
        if len(operands) < len(node.inputs) or any(
            each.polynomial.as_number is None for each in operands
        ):
            return None
        formula = _RULES[node.op](self, node, operands)
        return None if formula is None else formula.polynomial.as_number

    def _computed(self, value: int) -> tuple[Formula, frozenset[int]] | None:
        node = self._view.producer(value)
        is_before_base = node.id < self._first
        if is_before_base or node.scope != self._scope or not has_rule(self._view, node):
            return None
        if value != node.outputs[0] or node.signature.dtype is not DType.FLOAT32:
            return None
        formulas, inside = [], {node.id}
        for operand in node.inputs[: _READ.get(node.op, len(node.inputs))]:
            found = None if operand is None else self._of(operand)
            if found is None:
                return None
            formulas.append(found[0])
            inside |= found[1]
        if not formulas or len(inside) > _MOST_NODES:
            return None
        formula = _RULES[node.op](self, node, formulas)
        return None if formula is None else (formula, frozenset(inside))

    # -- rules of operators ------------------------------------------------------------------------

    def sum(self, node: Node, operands: list[Formula]) -> Formula | None:
        """Sum of any number of operands."""
        result = operands[0]
        for other in operands[1:]:
            if other.is_dropped != result.is_dropped:
                return None
            result = result._replace(polynomial=result.polynomial + other.polynomial)
        return result

    def binary(self, node: Node, operands: list[Formula]) -> Formula | None:
        left, right = operands
        return _binary(node.op, left, right)

    def root(self, node: Node, operands: list[Formula]) -> Formula | None:
        """Sqrt and Reciprocal, as powers."""
        result = operands[0].polynomial.to_the(0.5 if node.op == "Sqrt" else -1.0)
        return None if result is None else operands[0]._replace(polynomial=result)

    def negative(self, node: Node, operands: list[Formula]) -> Formula | None:
        return operands[0]._replace(polynomial=operands[0].polynomial.scaled(-1.0))

    def reduced(self, node: Node, operands: list[Formula]) -> Formula | None:
        """A mean or a sum over the last axes."""
        formula, shape = operands[0], self._shape(node.inputs[0])
        axes = self._axes(node)
        if formula.is_dropped or axes is None:
            return None
        result = _mean(formula.polynomial, axes)
        if node.op == "ReduceSum":
            sizes = () if shape is None else shape[len(shape) - axes :]
            known = [size for size in sizes if size is not None]
            if len(known) < axes:
                return None
            result = result.scaled(float(math.prod(known)))
        return Formula(result, is_dropped=node.attributes.get("keepdims", 1) == 0)

    def reshaped(self, node: Node, operands: list[Formula]) -> Formula | None:
        """Means whose axes are restored with one element each, or repeated to the base's shape."""
        formula, base = operands[0], self._shape(self._base)
        before, after = self._shape(node.inputs[0]), self._shape(node.outputs[0])
        if not formula.polynomial.is_mean or base is None or before is None or after is None:
            return None
        if formula.is_dropped:
            restored = (*before, *(1,) * (len(base) - len(before)))
            return Formula(formula.polynomial) if _is_one_shape(restored, after) else None
        is_kept = _is_one_shape(before, after) or _is_one_shape(base, after)
        return formula if is_kept else None

    def clipped(self, node: Node, operands: list[Formula]) -> Formula | None:
        """Clip, Relu and Max with constant bounds; no bound is needed by what is not negative."""
        formula = operands[0]
        bounds: dict[str, float | None] = {"min": None, "max": None}
        if node.op in ("Relu", "Max"):
            bounds["min"] = 0.0
            if node.op == "Max":
                sides = [each.polynomial.as_number for each in operands]
                if len(sides) != 2 or 0.0 not in sides:
                    return None
                formula = operands[1 - sides.index(0.0)]
        else:
            for place, name in ((1, "min"), (2, "max")):
                bounds[name] = node.float_attribute(name)
                if node.operand(place) is not None:
                    bounds[name] = self._view.number(node, place)
                    if bounds[name] is None:
                        return None
        low, high = bounds["min"], bounds["max"]
        if low is not None and low <= 0 and high is None and as_moment(formula.polynomial):
            return formula
        if low is None or high is None or not high > low:
            return None
        unit = (formula.polynomial - Polynomial.number(low)).scaled(1 / (high - low))
        clip = Polynomial.factor("clip", unit).scaled(high - low)
        return formula._replace(polynomial=clip + Polynomial.number(low))

    def hard_sigmoid(self, node: Node, operands: list[Formula]) -> Formula | None:
        slope, shift = node.float_attribute("alpha"), node.float_attribute("beta")
        inside = operands[0].polynomial.scaled(0.2 if slope is None else slope)
        inside += Polynomial.number(0.5 if shift is None else shift)
        return operands[0]._replace(polynomial=Polynomial.factor("clip", inside))

    def function(self, node: Node, operands: list[Formula]) -> Formula | None:
        name = _FUNCTIONS[node.op]
        return operands[0]._replace(polynomial=Polynomial.factor(name, operands[0].polynomial))

    def _axes(self, node: Node) -> int | None:
        """How many trailing axes a node reduces; None if it reduces others."""
        axes = sorted(self._view.reduced_axes(node) or ())
        return len(axes) if axes and axes == list(range(-len(axes), 0)) else None

    def _shape(self, value: int | None) -> tuple[int | None, ...] | None:
        return None if value is None else self._view.graph.shapes.get(value)


@lru_cache(_MOST_KEPT)
def _binary(op: str, left: Formula, right: Formula) -> Formula | None:
    operands = left, right
    dropped = {each.is_dropped for each in operands if each.polynomial.as_number is None}
    if len(dropped) > 1:
        return None
    result = _combined(op, left.polynomial, right.polynomial)
    return None if result is None else Formula(result, True in dropped)


def _combined(op: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
    match op:
        case "Add":
            return left + right
        case "Sub":
            return left - right
        case "Mul" | "Div" if len(left.terms) * len(right.terms) > _MOST_NODES:
            return None
        case "Mul":
            return left * right
        case "Div":
            inverse = right.to_the(-1.0)
            return None if inverse is None else left * inverse
        case _:
            power = right.as_number
            return None if power is None else left.to_the(power)


@lru_cache(_MOST_KEPT)
def _number(number: float) -> Polynomial:
    return Polynomial.number(number)


@cache
def _weight(key: int) -> Polynomial:
    return Polynomial.factor("weight", key=key)


@lru_cache(_MOST_KEPT)
def _mean(polynomial: Polynomial, axes: int) -> Polynomial:
    return polynomial.mean(axes)


def _is_one_shape(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    """Whether two shapes of as many elements are one: a single axis may be unknown."""
    if len(one) != len(other):
        return False
    unknown = [None in pair for pair in zip(one, other, strict=True)]
    alike = [a == b for a, b in zip(one, other, strict=True)]
    return sum(unknown) <= 1 and all(map(operator.or_, unknown, alike))


def has_rule(view: FusionView, node: Node) -> bool:
    """Whether what an operator computes may be a polynomial of what its operands are."""
    return node.kind is Kind.OP and view.op(node) in _RULES


_Rule = Callable[[Formulas, Node, list[Formula]], Formula | None]
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow"), Formulas.binary),
    **dict.fromkeys(("Sqrt", "Reciprocal"), Formulas.root),
    **dict.fromkeys(("ReduceMean", "ReduceSum"), Formulas.reduced),
    **dict.fromkeys(("Unsqueeze", "Reshape", "Expand"), Formulas.reshaped),
    **dict.fromkeys(("Clip", "Relu", "Max"), Formulas.clipped),
    **dict.fromkeys(_FUNCTIONS, Formulas.function),
    "Sum": Formulas.sum,
    "Neg": Formulas.negative,
    "HardSigmoid": Formulas.hard_sigmoid,
}
# How many operands are part of the formula; the others are axes, shapes and bounds.
_READ = dict.fromkeys(("ReduceMean", "ReduceSum", "Unsqueeze", "Reshape", "Expand", "Clip"), 1)
