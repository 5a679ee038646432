"""Transfer laws of elementwise products, quotients, powers, exponentials and logarithms."""

import math

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    always,
    demand_of_one,
    of_one,
    passed,
    relative_of,
    share,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    BELIEVABLE,
    HARD,
    HIDDEN,
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    RARE,
    TOUCHING,
    UNIT,
    UNKNOWN,
    Moments,
    crosses_zero,
    cut_off,
    exactly,
    is_singular,
    largest,
    moments,
    nearest_zero,
    rms,
    sampled,
    scaled,
)
from mezzo.analysis.estimates.patterns.gates import note_gates
from mezzo.analysis.estimates.patterns.running_totals import note_scaled, shared
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Flags of values that contain only 0 and 1.
_COUNT = UNIT | INTEGER
# Smallest relative divisor considered where an epsilon applies, as the numerator mostly vanishes
# there too.
_RARELY = 1e-3
# Below this ratio of standard deviation to mean, all elements count as equally large.
_NARROW = 0.5
# From this standard deviation on, few exponents dominate the mean of an exponential.
_BROAD = 8.0


def multiply(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    a, b = xs
    if site.is_same(node):
        return square(a)
    if (a.flags | b.flags) & LOST:
        return UNKNOWN
    if not b.std or not a.std:
        data, factor, total = (
            (a, b.mean, node.inputs[0]) if not b.std else (b, a.mean, node.inputs[1])
        )
        if site.chains and total is not None and node.outputs[0] is not None:
            note_scaled(site, total, node.outputs[0])
        return _by_constant(data, factor)
    mean = a.mean * b.mean
    size_a, size_b = rms(a), rms(b)
    size = size_a * size_b
    ends = a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high
    most = max(2.0 * largest(a) * size_b, 2.0 * largest(b) * size_a, 8.0 * size)
    flags = a.flags & b.flags & (INTEGER | POSITIVE | UNIT | HARD) | (a.flags | b.flags) & (
        MASKED | TOUCHING
    )
    if a.flags & _COUNT == _COUNT or b.flags & _COUNT == _COUNT:
        flags |= TOUCHING  # masked elements become zero
    std = math.sqrt(max(size * size - mean * mean, 0.0))
    return moments(mean, std, max(min(ends), -most), min(max(ends), most), flags)


def _by_constant(x: Moments, factor: float) -> Moments:
    if x.flags & UNIT and x.flags & INTEGER and factor <= -1e3:
        return HIDDEN
    return scaled(x, factor)


def square(x: Moments) -> Moments:
    """Moments of x * x; the fourth moment is that of a normal distribution."""
    if x.flags & LOST:
        return UNKNOWN
    m, s = x.mean * x.mean, x.std * x.std
    low = 0.0 if crosses_zero(x) else min(x.low * x.low, x.high * x.high)
    flags = POSITIVE | x.flags & (INTEGER | UNIT | HARD | TOUCHING)
    return moments(m + s, math.sqrt(2.0 * s * s + 4.0 * m * s), low, largest(x) ** 2, flags)


def _product_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    a, b = xs
    if site.chains:
        demand = shared(site, node, demand)
    if site.is_same(node):
        return (_square_demand(a, y, demand),) * 2
    note_gates(site, node)
    return (
        Demand(demand.absolute / (rms(b) or 1.0), demand.relative),
        Demand(demand.absolute / (rms(a) or 1.0), demand.relative),
    )


def _square_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    return Demand(demand.absolute / (2.0 * rms(x) or 1.0), demand.relative / 2.0)


def divide(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    a, b = xs
    if (a.flags | b.flags) & LOST:
        return UNKNOWN
    first, second = node.inputs
    assert first is not None and second is not None, "both operands are there"
    if site.are_same(first, second):
        return exactly(1.0)
    if not b.std:
        return _over_constant(site, node, a, b.mean) if b.mean else UNKNOWN
    by = site.reduced.get(site.origin[second])
    if (
        by is not None
        and by[1] == site.origin[first]
        and by[0] is Transfer.SUM
        and a.flags & POSITIVE
    ):
        mean = a.mean / b.mean if b.mean else 0.0
        spread = mean * a.std / a.mean if a.mean else 0.0
        return moments(
            mean,
            min(spread, math.sqrt(mean * max(1.0 - mean, 0.0))),
            0.0,
            1.0,
            POSITIVE | UNIT | HARD,
        )
    return _quotient(a, b)


def _over_constant(site: EstimatedGraph, node: Node, x: Moments, divisor: float) -> Moments:
    result = node.outputs[0]
    dtype = None if result is None else site.graph.values[result].dtype
    y = scaled(x, 1.0 / divisor)
    if dtype is None or dtype in FLOATING or divisor == 1.0:
        return y
    return cut_off(y, math.trunc, -0.5 if y.low >= 0.0 else 0.0)


def _quotient(a: Moments, b: Moments) -> Moments:
    near, size = nearest_zero(b), rms(b)
    if not near:
        return UNKNOWN
    typical = max(abs(b.mean), 0.5 * size)
    if b.flags & RARE:
        near = max(near, _RARELY * typical)
    sign = -1.0 if b.high < 0.0 else 1.0
    mean, spread = sign * a.mean / typical, min(b.std / typical, 1.0)
    std = math.hypot(a.std, spread * rms(a)) / typical
    most = largest(a) / near
    low = 0.0 if a.low >= 0.0 and sign > 0.0 and not crosses_zero(b) else -most
    if a.low > 0.0 and not low:
        low = a.low / largest(b)
    flags = a.flags & b.flags & POSITIVE | a.flags & MASKED
    return moments(mean, std, low, most, flags)


def _quotient_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    divisor = _reciprocal_demand(xs[1], y, demand)
    return Demand(demand.absolute * _size_that_counts(xs[1]), demand.relative), divisor


def _reciprocal_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    relative = relative_of(demand, y)
    return Demand(relative * _size_that_counts(x), relative)


def _size_that_counts(x: Moments, power: float = 1.0) -> float:
    """Effective size of the operand of a quotient, root or logarithm, whose slope falls with this
    power of it: the typical size, a smaller one for widely spread operands, the smallest if the
    operand may vanish.
    """
    typical = max(abs(x.mean), 0.5 * rms(x))
    if x.flags & RARE:
        return typical
    if is_singular(x):
        return nearest_zero(x)
    if x.low <= 0.0 or x.std < _NARROW * x.mean:
        return typical
    return min(typical, math.pow(rms(sampled(lambda t: math.pow(t, -power), x)), -1.0 / power))


def _power(x: Moments, exponent: float) -> Moments:
    """Moments of x to a constant power."""
    if x.flags & LOST:
        return UNKNOWN
    if exponent == 2.0:
        return square(x)
    if exponent == 1.0:
        return x
    if exponent == -1.0 and not x.std:
        return exactly(1.0 / x.mean) if x.mean else UNKNOWN
    if exponent == -1.0:
        return _quotient(exactly(1.0, POSITIVE), x)
    is_whole = exponent == int(exponent) and abs(exponent) < 64
    if exponent > 0 and is_whole:
        flags = POSITIVE if int(exponent) % 2 == 0 or x.flags & POSITIVE else 0
        return sampled(
            lambda t: max(min(t**exponent, 1e300), -1e300), x, flags | x.flags & (INTEGER | UNIT)
        )
    # Roots and poles: the operand is assumed positive, as the model would give NaN in FP32 too.
    least = max(nearest_zero(x), 1e-30)
    if exponent > 0 and x.low <= 0.0 and x.flags & TOUCHING:
        least = 0.0
    positive = moments(max(x.mean, least), x.std, least, max(x.high, least), POSITIVE)
    rare = x.flags & RARE if exponent > 0 else 0
    if exponent < 0 and x.flags & RARE:
        positive = positive._replace(low=max(least, min(_RARELY * rms(x), x.mean)))
    return sampled(
        lambda t: math.exp(min(exponent * math.log(max(t, 1e-38)), 300.0)),
        positive,
        POSITIVE | rare,
    )


def power(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    x, p = xs
    if (x.flags | p.flags) & LOST:
        return UNKNOWN
    if not p.std:
        return _power(x, p.mean)
    if not x.std and x.mean > 0.0:  # a constant to the power of data: an exponential
        rate = math.log(x.mean)
        return sampled(lambda t: _exp(rate * t), p, POSITIVE)
    return UNKNOWN


def _power_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    x, p = xs
    if not p.std:
        return (_root_demand(x, p.mean, demand),)
    error = max(demand.relative, demand.absolute / (rms(y) or 1.0))
    rate = abs(math.log(x.mean)) if not x.std and x.mean > 0.0 else 1.0
    # The relative error of the base is multiplied by the exponent.
    base = share(x, error / (largest(p) or 1.0))
    return base, tolerated(p, error / (rate or 1.0))


def _root_demand(x: Moments, exponent: float, demand: Demand) -> Demand:
    steepness = abs(exponent) or 1.0
    relative = demand.relative / steepness
    if exponent >= 1.0:
        slope = rms(sampled(lambda t: min(abs(t) ** (exponent - 1.0), BELIEVABLE), x))
        return Demand(demand.absolute / (steepness * slope or 1.0), relative)
    near = _size_that_counts(x, 1.0 - exponent)
    if not near:
        return Demand(0.0, relative)
    change = min(max(near ** (1.0 - exponent), 1e-30), 1e30)
    return Demand(demand.absolute * change / steepness, relative)


def _root(exponent: float) -> Law:
    """The law of a root or of its reciprocal."""
    return Law(
        of_one(lambda x: _power(x, exponent)),
        demand_of_one(lambda x, y, demand: _root_demand(x, exponent, demand)),
    )


def _exp(t: float) -> float:
    return math.exp(max(min(t, 300.0), -300.0))


def exponential(x: Moments) -> Moments:
    if x.flags & LOST:
        return UNKNOWN
    y = sampled(_exp, x, POSITIVE)
    if x.std < _BROAD:
        return y
    # Only the top of a broad range matters, as for decay by distance.
    share = 1.0 / (x.high - x.low)
    return moments(
        max(y.mean, share * y.high),
        max(y.std, math.sqrt(0.5 * share) * y.high),
        y.low,
        y.high,
        y.flags,
    )


def _exponential_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    return tolerated(x, relative_of(demand, y))


def logarithm(x: Moments) -> Moments:
    if x.flags & LOST or x.high <= 0.0:
        return UNKNOWN
    least = max(nearest_zero(x) if x.low <= 0.0 else x.low, 1e-38)
    return sampled(lambda t: math.log(max(t, least)), x)


def _logarithm_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    return Demand(demand.absolute * _size_that_counts(x), demand.absolute)


def absolute(x: Moments) -> Moments:
    if x.flags & (LOST | POSITIVE):
        return x
    y = sampled(abs, x, POSITIVE | x.flags & (INTEGER | TOUCHING))
    return y._replace(low=0.0) if crosses_zero(x) else y


# Operators with poles, such as tan: assumed within [-8, 8].
_STEEP = Law(
    always(Moments(0.0, 1.0, -8.0, 8.0, 0)),
    demand_of_one(lambda x, y, demand: tolerated(x, 0.01 * demand.absolute)),
)

LAWS: Laws = {
    Transfer.MULTIPLY: Law(multiply, _product_demands),
    Transfer.DIVIDE: Law(divide, _quotient_demands),
    Transfer.RECIPROCAL: Law(of_one(lambda x: _power(x, -1.0)), demand_of_one(_reciprocal_demand)),
    Transfer.RECIPROCAL_ROOT: _root(-0.5),
    Transfer.SQUARE: Law(of_one(square), demand_of_one(_square_demand)),
    Transfer.SQUARE_ROOT: _root(0.5),
    Transfer.POWER: Law(power, _power_demands),
    Transfer.EXPONENTIAL: Law(of_one(exponential), demand_of_one(_exponential_demand)),
    Transfer.LOGARITHM: Law(of_one(logarithm), demand_of_one(_logarithm_demand)),
    Transfer.NEGATE: Law(of_one(lambda x: scaled(x, -1.0)), passed),
    Transfer.ABSOLUTE: Law(of_one(absolute), passed),
    Transfer.STEEP: _STEEP,
}
