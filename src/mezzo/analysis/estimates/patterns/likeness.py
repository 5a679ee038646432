"""Difference of two values computed alike from nearby operands: f(x + h) - f(x), softmaxes of
nearly equal logits.

Both are large and their difference is small, which moments of independent values do not show.
"""

import math
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import LOST, Moments, rms
from mezzo.analysis.estimates.patterns.tangents import distance
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Maximum number of value pairs visited per difference; a difference below half the size counts.
_MOST_PAIRS = 24
_CANCELS = 0.5


def apart(site: EstimatedGraph, first: int, second: int) -> float | None:
    """Root mean square of the difference of two values computed alike, if far below their sizes;
    else None.
    """
    size = min(_spread(site, first), _spread(site, second))
    difference = _Walk(site).apart(first, second)
    return difference if difference is not None and difference < _CANCELS * size else None


def _spread(site: EstimatedGraph, value: int) -> float:
    x = site.estimates[value]
    return 0.0 if x.flags & LOST else x.std


@dataclass
class _Walk:
    """Backward traversal of the producers of two values in parallel."""

    site: EstimatedGraph
    pairs: int = 0

    def apart(self, first: int, second: int) -> float | None:
        site = self.site
        if site.kept[first] == site.kept[second]:
            return 0.0
        self.pairs += 1
        left, right = site.producer(site.kept[first]), site.producer(site.kept[second])
        if (
            self.pairs > _MOST_PAIRS
            or site.estimates[first].flags & LOST
            or site.estimates[second].flags & LOST
        ):
            return None
        if left is not right and _is_alike(site, left, right):
            difference = self._made_alike(left, right)
            if difference is not None:
                return difference
        return distance(site, first, second)

    def _made_alike(self, left: Node, right: Node) -> float | None:
        """The difference of two outputs, propagated from those of the operands; None if operands
        are unrelated.
        """
        site = self.site
        differences = []
        for first, second in zip(left.inputs, right.inputs, strict=True):
            if first is None or second is None:
                differences.append(0.0 if first is second else None)
            else:
                differences.append(self.apart(first, second))
        if not differences or any(difference is None for difference in differences):
            return None
        result = left.outputs[0]
        assert result is not None, "one of two values"
        y = site.estimates[result]
        pairs = zip(left.inputs, differences, strict=True)
        parts = [
            difference * _gain(site.transfer(left), site.estimates[value], y)
            for value, difference in pairs
            if value is not None and difference
        ]
        return math.hypot(*parts) if parts else None


def _is_alike(site: EstimatedGraph, left: Node, right: Node) -> bool:
    return (
        left.kind is Kind.OP
        and left.op == right.op
        and len(left.inputs) == len(right.inputs)
        and len(left.outputs) == len(right.outputs) == 1
        and site.transfer(left) in _SMOOTH
        and left.attributes == right.attributes
    )


def _gain(transfer: Transfer | None, x: Moments, y: Moments) -> float:
    """Gain of an operator on a small difference of one operand, taken as its gain on the standard
    deviation.
    """
    if transfer in _KEEPING:
        return 1.0
    if transfer is Transfer.SOFTMAX:
        return rms(y)
    return y.std / x.std if x.std else rms(y) / (rms(x) or 1.0)


_KEEPING = frozenset(
    {Transfer.ADD, Transfer.SUBTRACT, Transfer.NEGATE, Transfer.KEEP, Transfer.MOVE, Transfer.CAST,
     Transfer.LOG_SOFTMAX, Transfer.LOG_SUM_EXP, Transfer.EXTREME}
)  # fmt: skip
_SMOOTH = _KEEPING | frozenset(
    {
        Transfer.MULTIPLY,
        Transfer.DIVIDE,
        Transfer.RECIPROCAL,
        Transfer.SQUARE_ROOT,
        Transfer.POWER,
        Transfer.SQUARE,
        Transfer.RECIPROCAL_ROOT,
        Transfer.EXPONENTIAL,
        Transfer.LOGARITHM,
        Transfer.ABSOLUTE,
        Transfer.SUM,
        Transfer.MEAN,
        Transfer.POOL,
        Transfer.CONTRACT,
        Transfer.EINSUM,
        Transfer.SOFTMAX,
        Transfer.RELU,
        Transfer.BENT,
        Transfer.GELU,
        Transfer.SILU,
        Transfer.SIGMOID,
        Transfer.HARD_SIGMOID,
        Transfer.SOFTPLUS,
        Transfer.ERROR_FUNCTION,
        Transfer.TANH,
        Transfer.SINE,
        Transfer.COSINE,
        Transfer.CLIP,
        Transfer.MAXIMUM,
        Transfer.MINIMUM,
        Transfer.STANDARDIZE,
        Transfer.NORMALIZE_SIZE,
        Transfer.GIVEN_STATISTICS,
    }
)
