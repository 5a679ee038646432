"""Transfer laws of activation functions and bounds."""

import math
from collections.abc import Callable

from mezzo.analysis.estimates.laws.law import (
    LEAST_SHARE,
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    demand_of_one,
    eased,
    of_one,
    passed,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    HARD,
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    RARE,
    TOUCHING,
    UNIT,
    UNKNOWN,
    Moments,
    largest,
    moments,
    rms,
    sampled,
    share_between,
    slope,
    steepness_of_step,
)
from mezzo.analysis.estimates.patterns.gates import share_where_steep
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

Curve = Callable[[float], float]
# The largest FP32 number means "no bound".
_NO_BOUND = 3.0e38


def _sigmoid(t: float) -> float:
    return 1.0 / (1.0 + math.exp(-t)) if t > -300.0 else 0.0


def _gelu(t: float) -> float:
    return 0.5 * t * (1.0 + math.erf(t / math.sqrt(2.0)))


def _silu(t: float) -> float:
    return t * _sigmoid(t)


def _softplus(t: float) -> float:
    return t if t > 30.0 else math.log1p(math.exp(t))


def _relu(t: float) -> float:
    return t if t > 0.0 else 0.0


def _hard_sigmoid(t: float) -> float:
    return min(max(0.2 * t + 0.5, 0.0), 1.0)


# Assumed limit on how many standard deviations a layer's mean is below zero.
_SILENT = 1.0
# Saturating functions are steep between the negative of this and this.
_STEEP = 3.0
# Beyond this magnitude, saturating functions are within 1e-4 of their bounds.
_SATURATED = 9.0


def _curve(f: Curve, flags: int = 0) -> Law:
    """The law of a smooth function of one operand: errors scale with the average slope."""

    def forward(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
        x = xs[0]
        if x.flags & LOST:
            return Moments(0.5, 0.3, 0.0, 1.0, flags) if flags & UNIT else UNKNOWN
        y = sampled(f, x, flags)
        if flags & HARD and largest(x) > _SATURATED:  # both ends are reached
            bottom = 0.0 if flags & UNIT else -1.0
            low, high = (
                (bottom if x.low < -_SATURATED else y.low),
                (1.0 if x.high > _SATURATED else y.high),
            )
            y = y._replace(low=low, high=high, flags=flags | (TOUCHING if flags & UNIT else 0))
        return y

    def backward(
        site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
    ) -> Demands:
        # For saturating functions, the relative error of the result and of its complement is at
        # most the operand's absolute error.
        steepness = slope(f, xs[0])
        if flags & HARD:
            steepness = min(steepness, steepness_of_step(f, xs[0], _STEEP))
            steepness *= share_where_steep(site, node, xs[0], -_STEEP, _STEEP)
        floor = 0.5 * site.tolerance if flags & HARD and largest(xs[0]) > _SATURATED else 0.0
        return (tolerated(xs[0], max(demand.absolute / max(steepness, 1e-3), floor)),)

    return Law(forward, backward)


def relu(x: Moments) -> Moments:
    if x.flags & LOST:
        return x
    touching = TOUCHING if x.low < 0.0 else 0
    return sampled(_relu, _alive(x), POSITIVE | touching | x.flags & (INTEGER | UNIT))


def _alive(x: Moments) -> Moments:
    """Moments with some positive channels: a layer that outputs only zeros is not plausible."""
    if x.mean >= -_SILENT * x.std or x.flags & HARD:
        return x
    size = rms(x)
    std = size / math.hypot(1.0, _SILENT)
    return moments(-_SILENT * std, std, min(x.low, -size), max(x.high, 2.0 * std), x.flags)


def _kept(site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand) -> Demands:
    """Errors of clamped elements vanish: the mean square error scales with the share of elements
    that pass. In deep networks with He initialization each matmul doubles the mean square error,
    and each ReLU halves it.
    """
    x = xs[0]
    if x.flags & LOST or not x.std or demand.absolute == math.inf:
        return passed(site, node, xs, y, demand)
    low = y.low if y.low > x.low else -math.inf
    high = y.high if y.high < x.high else math.inf
    eased_demand = eased(demand, x, low, high)
    if node.id in site.gated:
        steep = share_where_steep(site, node, x, max(low, x.low), min(high, x.high))
        eased_demand = Demand(
            eased_demand.absolute / max(steep, LEAST_SHARE**2), eased_demand.relative
        )
    return (eased_demand, *[demand] * (len(xs) - 1))


def _bent_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Errors of negative elements shrink with the elements."""
    x = xs[0]
    if x.flags & (LOST | POSITIVE) or not x.std or not rms(x) or demand.absolute == math.inf:
        return passed(site, node, xs, y, demand)
    above = max(share_between(x, 0.0, math.inf), LEAST_SHARE)
    below = 1.0 - above
    if node.op.lower() in _EXPONENTIAL:  # the mean of exp(2x) over negative x
        square = x.std**2
        below = min(
            math.exp(min(2.0 * (x.mean + square), 300.0))
            * share_between(x, -math.inf, -2.0 * square),
            below,
        )
    steepness = math.sqrt(above + _leak(node, xs) ** 2 * below)
    return (Demand(demand.absolute / steepness, demand.relative), *[demand] * (len(xs) - 1))


def _kept_of_one(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """As `_kept` for one varying operand; with several, any of them may be the result."""
    spread = [x for x in xs if x.std or x.flags & LOST]
    if len(spread) != 1:
        return passed(site, node, xs, y, demand)
    eased_demand, *_ = _kept(site, node, spread, y, demand)
    return tuple(eased_demand if x is spread[0] else demand for x in xs)


def bent(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """Leaky activations: positive numbers stay, negative ones shrink."""
    x = xs[0]
    if x.flags & (LOST | POSITIVE):
        return x
    return sampled(_bend(node, xs), x)


# Lower-case operator names of all dialects.
_EXPONENTIAL = frozenset({"elu", "celu", "selu"})


def _bend(node: Node, xs: Operands) -> Curve:
    alpha = _leak(node, xs)
    if node.op.lower() in _EXPONENTIAL:
        return lambda t: t if t > 0.0 else alpha * math.expm1(t)
    return lambda t: t if t > 0.0 else alpha * t


def _leak(node: Node, xs: Operands) -> float:
    """The slope for negative numbers."""
    if node.op.lower() == "prelu":
        return xs[1].mean
    alpha = node.float_attribute("alpha")
    if alpha is None:
        return _LEAK if node.op in _LEAKY else 1.0
    return alpha


_LEAK = 0.01
_LEAKY = frozenset({"LeakyRelu", "leaky_relu"})


def _periodic(f: Curve) -> Law:
    """The law of a sine or cosine; large angles may give any number in [-1, 1]."""

    def forward(x: Moments) -> Moments:
        if x.flags & LOST or largest(x) > 1.5:
            return Moments(0.0, math.sqrt(0.5), -1.0, 1.0, HARD)
        return sampled(f, x)

    return Law(of_one(forward), demand_of_one(_angle_demand))


def _angle_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    if x.flags & LOST or largest(x) > 1.5:
        return tolerated(x, demand.absolute * math.sqrt(2.0))
    steepness = slope(math.cos if y.mean > 0.8 else math.sin, x)
    return tolerated(x, demand.absolute / max(steepness, 1e-3))


def clip(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    least, most = _bound(site, node, 1, "min"), _bound(site, node, 2, "max")
    x = xs[0]
    if x.flags & LOST:
        if least is None or most is None:
            return x
        x = Moments((least + most) / 2, (most - least) / 4, least, most, 0)
    return _between(x, least, most)


def _bound(site: EstimatedGraph, node: Node, operand: int, attribute: str) -> float | None:
    value = node.operand(operand)
    number = node.float_attribute(attribute) if value is None else site.number(value)
    return None if number is None or abs(number) >= _NO_BOUND else number


def _between(x: Moments, least: float | None, most: float | None) -> Moments:
    low = x.low if least is None else max(x.low, least)
    high = x.high if most is None else min(x.high, most)
    rare = 0
    if (
        least is not None
        and 0.0 < least < 1e-3
        and x.low <= max(least, 0.0) + (1e-2 if x.flags & UNIT else 0.0)
    ):
        low = least  # an epsilon, which is assumed to apply to some inputs
        if x.flags & INTEGER:  # for counts, only when the count is zero
            rare = RARE
    if most is not None and 0.0 < 1.0 - most < 1e-3 and x.flags & UNIT:
        high = most
    if low > high:
        low = high = least if least is not None and x.high < least else high
    flags = x.flags & (INTEGER | MASKED | POSITIVE | UNIT | TOUCHING)
    if low > 0.0:
        flags &= ~TOUCHING
    if low == 0.0 and x.low < 0.0:
        flags |= TOUCHING
    if low >= 0.0 and least is not None and least >= 0.0:
        flags |= POSITIVE
        if most is not None and most <= 1.0:
            flags |= UNIT
    flags |= rare
    if (low == least or x.flags & HARD) and (high == most or x.flags & HARD):
        flags |= HARD
    if low == x.low and high == x.high:
        return Moments(x.mean, x.std, low, high, flags)
    bounded = sampled(lambda t: min(max(t, low), high), x, flags)
    return moments(bounded.mean, bounded.std, low, high, flags)


def extreme(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """The elementwise maximum or minimum."""
    is_largest = site.transfer(node) is Transfer.MAXIMUM
    fixed = [x.mean for x in xs if not x.std and not x.flags & LOST]
    others = [x for x in xs if x.std or x.flags & LOST]
    if not others:
        number = max(fixed) if is_largest else min(fixed)
        return Moments(number, 0.0, number, number, POSITIVE if number >= 0.0 else 0)
    result = others[0]
    for x in others[1:]:
        result = _join(result, x, 1.0 if is_largest else -1.0)
    for number in fixed:
        if result.flags & LOST:
            return UNKNOWN
        result = _between(result, number, None) if is_largest else _between(result, None, number)
    return result


def _join(a: Moments, b: Moments, sign: float) -> Moments:
    """Maximum (sign 1) or minimum (-1) of two normal variables. Source: Clark (1961)."""
    if (a.flags | b.flags) & LOST:
        return UNKNOWN
    flags = a.flags & b.flags & (INTEGER | POSITIVE | UNIT)
    mean_a, mean_b, width = sign * a.mean, sign * b.mean, math.hypot(a.std, b.std)
    above = (mean_a - mean_b) / width
    share = 0.5 * (1.0 + math.erf(above * math.sqrt(0.5)))
    density = width * math.exp(-0.5 * above * above) / math.sqrt(2.0 * math.pi)
    mean = mean_a * share + mean_b * (1.0 - share) + density
    square = (
        (mean_a * mean_a + a.std**2) * share
        + (mean_b * mean_b + b.std**2) * (1.0 - share)
        + (mean_a + mean_b) * density
    )
    outer = max if sign > 0.0 else min
    std = math.sqrt(max(square - mean * mean, 0.0))
    return moments(sign * mean, std, outer(a.low, b.low), outer(a.high, b.high), flags)


LAWS: Laws = {
    Transfer.RELU: Law(of_one(relu), _kept),
    Transfer.BENT: Law(bent, _bent_demands),
    Transfer.GELU: _curve(_gelu),
    Transfer.SILU: _curve(_silu),
    Transfer.SIGMOID: _curve(_sigmoid, POSITIVE | UNIT | HARD),
    Transfer.HARD_SIGMOID: _curve(_hard_sigmoid, POSITIVE | UNIT | HARD),
    Transfer.SOFTPLUS: _curve(_softplus, POSITIVE),
    Transfer.ERROR_FUNCTION: _curve(math.erf, HARD),
    Transfer.TANH: _curve(math.tanh, HARD),
    Transfer.SINE: _periodic(math.sin),
    Transfer.COSINE: _periodic(math.cos),
    Transfer.CLIP: Law(clip, _kept),
    Transfer.MAXIMUM: Law(extreme, _kept_of_one),
    Transfer.MINIMUM: Law(extreme, _kept_of_one),
}
