"""How far two values are apart that were made alike from operands near one another: f(x + h) and f(x), the softmaxes of
nearly equal logits.

Each is as large as the other, what they leave is not, and moments that take them for independent do not see it.
"""

import math
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import LOST, Moments, rms
from mezzo.analysis.estimates.patterns.tangents import distance
from mezzo.analysis.estimates.site import Site
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# So many pairs of values are looked at for one difference, and a difference counts where less than half is left.
_MOST_PAIRS = 24
_CANCELS = 0.5


def apart(site: Site, first: int, second: int) -> float | None:
    """Root mean square of the difference of two values made alike, where it is far below their sizes."""
    size = min(_spread(site, first), _spread(site, second))
    found = _Walk(site).apart(first, second)
    return found if found is not None and found < _CANCELS * size else None


def _spread(site: Site, value: int) -> float:
    x = site.held[value]
    return 0.0 if x.flags & LOST else x.std


@dataclass
class _Walk:
    """A walk back from two values at once."""

    site: Site
    pairs: int = 0

    def apart(self, first: int, second: int) -> float | None:
        site = self.site
        if site.kept[first] == site.kept[second]:
            return 0.0
        self.pairs += 1
        one, other = site.producer(site.kept[first]), site.producer(site.kept[second])
        if self.pairs > _MOST_PAIRS or site.held[first].flags & LOST or site.held[second].flags & LOST:
            return None
        if one is not other and _is_alike(site, one, other):
            found = self._made_alike(one, other)
            if found is not None:
                return found
        return distance(site, first, second)

    def _made_alike(self, one: Node, other: Node) -> float | None:
        """What the operands' differences become; None where operands have nothing in common."""
        site = self.site
        differences = []
        for first, second in zip(one.inputs, other.inputs, strict=True):
            if first is None or second is None:
                differences.append(0.0 if first is second else None)
            else:
                differences.append(self.apart(first, second))
        if not differences or any(difference is None for difference in differences):
            return None
        result = one.outputs[0]
        assert result is not None, "one of two values"
        y = site.held[result]
        pairs = zip(one.inputs, differences, strict=True)
        parts = [
            difference * _gain(site.transfer(one), site.held[value], y)
            for value, difference in pairs
            if value is not None and difference
        ]
        return math.hypot(*parts) if parts else None


def _is_alike(site: Site, one: Node, other: Node) -> bool:
    return (
        one.kind is Kind.OP
        and one.op == other.op
        and len(one.inputs) == len(other.inputs)
        and len(one.outputs) == len(other.outputs) == 1
        and site.transfer(one) in _SMOOTH
        and one.attributes == other.attributes
    )


def _gain(transfer: Transfer | None, x: Moments, y: Moments) -> float:
    """By what an operator multiplies a small difference of one operand: as it does the operand's spread."""
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
    {Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.RECIPROCAL, Transfer.SQUARE_ROOT, Transfer.POWER,
     Transfer.SQUARE, Transfer.RECIPROCAL_ROOT,
     Transfer.EXPONENTIAL, Transfer.LOGARITHM, Transfer.ABSOLUTE, Transfer.SUM, Transfer.MEAN, Transfer.POOL,
     Transfer.CONTRACT, Transfer.EINSUM, Transfer.SOFTMAX, Transfer.RELU, Transfer.BENT, Transfer.GELU, Transfer.SILU,
     Transfer.SIGMOID, Transfer.HARD_SIGMOID, Transfer.SOFTPLUS, Transfer.ERROR_FUNCTION, Transfer.TANH, Transfer.SINE,
     Transfer.COSINE, Transfer.CLIP, Transfer.MAXIMUM, Transfer.MINIMUM, Transfer.STANDARDIZE, Transfer.NORMALIZE_SIZE,
     Transfer.GIVEN_STATISTICS}
)  # fmt: skip
