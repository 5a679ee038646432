"""GELU in both kinds, with a bias or without, and x times its sigmoid, each as one operator.

What is written out is taken for an activation by what it gives, not by how it is spelled: it is worked out at some
points, and has to be the activation's value there as far as FP32 tells.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mezzo.analysis.fusion.composites import Composite, composites_at
from mezzo.analysis.fusion.own.rule import DIALECT, Rule, end_of, in_order, keeps_rank, use_of, vector_of
from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Node, Use
from mezzo.tables.facts import Function
from mezzo.tables.fused_operators import Fused

_POINTS = (-6.0, -3.0, -1.5, -0.7, -0.2, 0.0, 0.3, 1.0, 2.2, 5.0)
# Constants in FP32 are off by half an eps of 2^-23 each, and an activation has up to eight: a quarter of what two
# answers may differ by.
_CLOSE = 2.5e-6
_BINARY: Mapping[Function, Callable[[float, float], float]] = {
    Function.ADD: lambda x, y: x + y,
    Function.SUBTRACT: lambda x, y: x - y,
    Function.MULTIPLY: lambda x, y: x * y,
    Function.DIVIDE: lambda x, y: x / y,
    Function.POWER: lambda x, y: x**y,
}


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _swish(alpha: float, x: float) -> float:
    return x * _sigmoid(alpha * x)


_UNARY: Mapping[str, Callable[[float], float]] = {"Erf": math.erf, "Tanh": math.tanh, "Sigmoid": _sigmoid}


def _gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def _fast_gelu(x: float) -> float:
    return x * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _follows(view: View, nodes: Sequence[Node], value: int, wanted: Callable[[float], float]) -> bool:
    """Whether nodes make of a value what a function does."""
    try:
        return all(
            math.isclose(_value_at(view, nodes, value, x), wanted(x), rel_tol=_CLOSE, abs_tol=_CLOSE) for x in _POINTS
        )
    except (KeyError, ValueError, ArithmeticError, TypeError):
        return False  # an operator that is none of these, or an operand that is no number


def _value_at(view: View, nodes: Sequence[Node], value: int, x: float) -> float:
    """What nodes make of a number, the last of them at the end. Raises KeyError: one is nothing known here."""
    known = {value: x}
    result: float = x
    for node in nodes:
        if view.hands_on(node):
            continue
        operands = []
        for operand, held in enumerate(node.inputs):
            number = view.number(node, operand)
            operands.append(known[view.origin(held or 0)] if number is None else number)
        function = view.function(node)
        if function is Function.SQUARE:
            result = operands[0] * operands[0]
        elif function in _BINARY and len(operands) == 2:
            result = _BINARY[function](*operands)
        else:
            (only,) = operands
            result = _UNARY[view.op(node)](only)
        known[node.outputs[0] or 0] = result
    return result


def _composite_in(view: View, nodes: Sequence[Node]) -> tuple[Composite, list[Node]] | None:
    """The activation in small operators that ends a unit, with those of its nodes, in graph order."""
    end = end_of(view, nodes)
    composite = None if end is None else composites_at(view).get(end.id)
    if composite is None:
        return None
    inside = [node for node in nodes if node.id in composite.nodes]
    shape = view.graph.shapes.get(composite.value)
    return (composite, inside) if all(keeps_rank(view, node, shape) for node in inside) else None


_NAMED = {"gelu-erf": ("Gelu", _gelu), "gelu-tanh": ("FastGelu", _fast_gelu)}


def _write_gelu(view: View, nodes: Sequence[Node]) -> Fused | None:
    found = _composite_in(view, nodes)
    if found is None or found[0].name not in _NAMED:
        return None
    composite, inside = found
    op, wanted = _NAMED[composite.name]
    read = _first_use(view, inside, composite.value)
    if read is None or not _follows(view, inside, composite.value, wanted):
        return None
    return Fused(dialect=DIALECT, op=op, nodes=in_order(nodes, composite.end), reads=(read,))


def _write_biased(view: View, nodes: Sequence[Node]) -> Fused | None:
    """A sum with a vector and GELU, in one operator or in small ones."""
    found = _composite_in(view, nodes)
    if found is not None:
        composite, inside = found
        op, wanted = _NAMED[composite.name]
        added = view.graph.nodes[view.graph.values[composite.value].producer]
        if not _follows(view, inside, composite.value, wanted):
            return None
        end = composite.end
    else:
        end = next((node for node in nodes if view.op(node) == "Gelu"), nodes[-1])
        made = view.maker(end, 0)
        if view.op(end) != "Gelu" or made is None:
            return None
        added, op = made, "Gelu" if end.attributes.get("approximate", "none") == "none" else "FastGelu"
    if added not in nodes or view.op(added) != "Add":
        return None
    made_shape = view.graph.shapes.get(added.outputs[0] or 0)
    width = None if not made_shape else made_shape[-1]
    vector = None if width is None else vector_of(view, added, width)
    if vector is None:
        return None
    other = Use(added.id, 1 - vector.operand)
    if (view.shape(added, other.operand) or (None,))[-1] != width:
        return None  # the vector is laid along more than there was
    named = "BiasGelu" if op == "Gelu" else op
    return Fused(dialect=DIALECT, op=named, nodes=in_order(nodes, end), reads=(other, vector))


def _write_silu(view: View, nodes: Sequence[Node]) -> Fused | None:
    found = _composite_in(view, nodes)
    if found is None or found[0].name != "silu":
        return None
    composite, inside = found
    read = _first_use(view, inside, composite.value)
    numbers = [one for node in inside for at in range(len(node.inputs)) if (one := view.number(node, at)) is not None]
    for alpha in (1.0, *numbers, *(1 / number for number in numbers if number)):
        if read is not None and _follows(view, inside, composite.value, partial(_swish, alpha)):
            gone = in_order(nodes, composite.end)
            return Fused(dialect=DIALECT, op="QuickGelu", nodes=gone, reads=(read,), attributes={"alpha": alpha})
    return None


def _first_use(view: View, nodes: Sequence[Node], value: int) -> Use | None:
    return next((use for node in nodes if (use := use_of(view, node, value)) is not None), None)


ACTIVATIONS: Mapping[str, Rule] = {"gelu": _write_gelu, "bias-gelu": _write_biased, "silu": _write_silu}
# By the name of what is written out, in whatever spelling, alone and with the sum before it.
SPELLED: Mapping[str, Rule] = {"gelu-erf": _write_gelu, "gelu-tanh": _write_gelu, "silu": _write_silu}
BIASED: Mapping[str, Rule] = {"gelu-erf": _write_biased, "gelu-tanh": _write_biased}
