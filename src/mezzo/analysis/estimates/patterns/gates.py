"""Self-gating activations: x times a sigmoid, a clip or an error function of x, in any
decomposition.

A gate is steep only where it has not saturated, which is where x is small: an error in the gate is
multiplied by that small x, not by one of typical size. Without this pattern, tolerances would
shrink in each layer of a deep network.
"""

import math

from mezzo.analysis.estimates.moments import Moments, rms
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Maximum number of operators between x and its gate; exporters write six.
_LONGEST = 8


def note_gates(site: EstimatedGraph, node: Node) -> None:
    """Record the saturating operators that compute one factor of a product from the other."""
    first, second = node.inputs
    if first is not None and second is not None:
        for gate, value in ((first, second), (second, first)):
            for number in _saturating(site, gate, _unscaled(site, value)):
                site.gated[number] = value


def share_where_steep(
    site: EstimatedGraph, node: Node, x: Moments, low: float, high: float
) -> float:
    """Size of the gated value where the operand x is between two ends, relative to its usual
    size.
    """
    gated = site.gated.get(node.id)
    if gated is None or not x.std:
        return 1.0
    value = site.estimates[gated]
    slope = value.std / x.std
    ends = [value.mean + slope * (end - x.mean) for end in (low, high)]
    # Of a uniform distribution.
    inside = math.sqrt((ends[0] ** 2 + ends[0] * ends[1] + ends[1] ** 2) / 3.0)
    size = rms(value)
    return min(inside / size, 1.0) if size else 1.0


def _saturating(site: EstimatedGraph, gate: int, source: int) -> list[int]:
    """Saturating operators between a value and its gate; empty for any other dependency."""
    steep: list[int] = []
    value = gate
    for _ in range(_LONGEST):
        if site.kept[value] == source:
            return steep
        transfer = site.made_by[value]
        if transfer in _SATURATING:
            steep.append(site.producer(value).id)
        elif transfer not in _PASSING:
            return []
        source_value = _only_varying(site, value)
        if source_value is None:
            return []
        value = source_value
    return []


def _only_varying(site: EstimatedGraph, value: int) -> int | None:
    """The only operand of a value's producer that is not constant; None if there are several."""
    operands = site.producer(value).present_inputs
    varying = [operand for operand in operands if site.estimates[operand].std]
    return varying[0] if len(varying) == 1 else None


def _unscaled(site: EstimatedGraph, value: int) -> int:
    """The value that another is a constant multiple of."""
    for _ in range(_LONGEST):
        value = site.kept[value]
        if site.made_by[value] not in _SCALING:
            break
        source = _only_varying(site, value)
        if source is None:
            break
        value = source
    return value


_SCALING = frozenset({Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.NEGATE})
_SATURATING = frozenset(
    {
        Transfer.SIGMOID,
        Transfer.HARD_SIGMOID,
        Transfer.TANH,
        Transfer.ERROR_FUNCTION,
        Transfer.CLIP,
        Transfer.MINIMUM,
        Transfer.MAXIMUM,
    }
)
_PASSING = _SCALING | {
    Transfer.ADD,
    Transfer.SUBTRACT,
    Transfer.KEEP,
    Transfer.RELU,
    Transfer.SOFTPLUS,
}
