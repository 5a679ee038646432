"""Transfer laws of sums, means, extremes, norms and cumulative sums along axes."""

import math

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    absolute_of,
    demand_of_one,
    demand_of_terms,
    of_one,
    of_terms,
    passed,
    relative_of,
    share,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    SIGMA,
    SINGULAR_SIGMA,
    TOUCHING,
    UNIT,
    UNKNOWN,
    Moments,
    flagged,
    is_singular,
    largest,
    low_of_sum,
    moments,
    nearest_zero,
    rms,
    sampled,
    scaled,
    shifted,
)
from mezzo.analysis.estimates.site import OPEN_POSITIONS, EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer


def summed(x: Moments, terms: float) -> Moments:
    """Moments of the sum of `terms` elements of x."""
    if x.flags & LOST:
        return UNKNOWN
    mean, std = x.mean * terms, x.std * math.sqrt(terms)
    low, high = mean - SIGMA * std, mean + SIGMA * std
    if x.flags & POSITIVE:
        low = low_of_sum(mean, std, terms, terms * x.low)
        if x.flags & TOUCHING and mean < 2.0 * std:  # few terms, which may all be zero
            return moments(
                mean, std, 0.0, min(high, terms * x.high), POSITIVE | TOUCHING | x.flags & INTEGER
            )
    if x.flags & UNIT and x.flags & INTEGER:  # a count, at most the number of terms
        return moments(mean, std, 0.0, terms, POSITIVE | INTEGER)
    low, high = (
        max(low, terms * x.low),
        min(max(high, x.high), terms * x.high) if terms > 1 else x.high,
    )
    return moments(mean, std, min(low, mean), max(high, mean), x.flags & (INTEGER | POSITIVE))


def mean(x: Moments, terms: float) -> Moments:
    y = scaled(summed(x, terms), 1.0 / terms)
    return y if y.flags & LOST else flagged(y, y.flags & ~INTEGER | x.flags & UNIT)


def pool(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    x, terms = xs[0], _window(node)
    return x if x.flags & LOST or terms <= 1.0 else mean(x, terms)


def _window(node: Node) -> float:
    """Number of elements in a pooling window."""
    sizes = node.attributes.get("kernel_shape")
    return float(math.prod(sizes)) if isinstance(sizes, tuple) and sizes else 1.0


def _pool_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    return (_share_of_sum(xs[0], y, demand, 1.0 / math.sqrt(max(_window(node), 1.0))),)


def sum_of_squares(x: Moments, terms: float) -> Moments:
    if x.flags & LOST:
        return UNKNOWN
    m, s = x.mean * x.mean, x.std * x.std
    expected = terms * (m + s)
    std = math.sqrt(terms * (2.0 * s * s + 4.0 * m * s))
    high = min(expected + SIGMA * std, terms * largest(x) ** 2)
    return moments(
        expected, std, low_of_sum(expected, std, terms, 0.0), max(high, expected), POSITIVE
    )


def variance(x: Moments, terms: float) -> Moments:
    if x.flags & LOST:
        return UNKNOWN
    terms = max(terms, 2.0)
    return scaled(sum_of_squares(shifted(x, -x.mean), terms), 1.0 / terms)


def _variance_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    """Errors of many elements average out, and only deviations from the mean are squared."""
    own = absolute_of(demand, y) * math.sqrt(max(terms, 1.0)) / (2.0 * (x.std or 1.0))
    return tolerated(x, own)


def l2_norm(x: Moments, terms: float) -> Moments:
    y = sum_of_squares(x, terms)
    return y if y.flags & LOST else sampled(lambda t: math.sqrt(max(t, 0.0)), y, POSITIVE)


def l1_norm(x: Moments, terms: float) -> Moments:
    return x if x.flags & LOST else summed(sampled(abs, x, POSITIVE), terms)


def _sum_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    return _share_of_sum(x, y, demand, math.sqrt(terms))


def _mean_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    return _share_of_sum(x, y, demand, 1.0 / math.sqrt(terms))


def _share_of_sum(x: Moments, y: Moments, demand: Demand, growth: float) -> Demand:
    own = absolute_of(demand, y) / growth
    relative = own / (rms(x) or 1.0)
    return Demand(own, max(relative, demand.relative) if x.flags & POSITIVE else relative)


def _squares_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    own = absolute_of(demand, y) / (2.0 * (rms(x) or 1.0) * math.sqrt(terms))
    return Demand(own, demand.relative / 2.0)


def _norm_demand(x: Moments, y: Moments, demand: Demand) -> Demand:
    return Demand(absolute_of(demand, y), demand.relative)


def extreme(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    x = xs[0]
    if x.flags & LOST:
        return x
    reach = math.sqrt(2.0 * math.log(max(site.terms(node), 1.0)))
    sign = -1.0 if "min" in node.op.lower() else 1.0
    flags = x.flags & (INTEGER | POSITIVE | UNIT | MASKED)
    middle, std = x.mean + sign * reach * x.std, x.std / (1.0 + reach)
    low, high = x.low, x.high
    # The maximum of many elements is not small.
    if reach > 1.0 and not x.flags & (INTEGER | TOUCHING):
        width = SINGULAR_SIGMA * std
        low, high = (
            (max(low, middle - width), high) if sign > 0.0 else (low, min(high, middle + width))
        )
    return moments(middle, std, low, high, flags)


def product(x: Moments, terms: float) -> Moments:
    if x.flags & LOST:
        return x
    if x.low > 0.0:
        return _product_of_positive(x, terms)
    try:
        high = max(largest(x), 1e-30) ** terms
    except OverflowError:
        high = math.inf
    low = 0.0 if x.flags & POSITIVE else -high
    size = min(max(rms(x), 1e-30) ** min(terms, 1e3), high) if high < math.inf else high
    return (
        UNKNOWN
        if high == math.inf
        else moments(0.0, size, low, high, x.flags & (POSITIVE | UNIT | INTEGER))
    )


def _product_of_positive(x: Moments, terms: float) -> Moments:
    """Product of positive numbers through the sum of their logarithms, accurate for many factors
    near 1.
    """
    logs = summed(sampled(math.log, x), terms)
    y = sampled(lambda t: math.exp(min(max(t, -_DEEPEST_LOG), _DEEPEST_LOG)), logs, POSITIVE)
    return flagged(y, POSITIVE | x.flags & UNIT)


# exp of this and of its negative are near FP32's largest and smallest normal numbers.
_DEEPEST_LOG = 87.0


def _product_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    return share(x, relative_of(demand, y) / math.sqrt(terms))


def log_sum(x: Moments, terms: float) -> Moments:
    y = summed(x, terms)
    if y.flags & LOST or y.high <= 0.0:
        return UNKNOWN
    least = max(nearest_zero(y), 1e-38)
    return sampled(lambda t: math.log(max(t, least)), y)


def _log_sum_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    inside = summed(x, terms)
    size = nearest_zero(inside) if is_singular(inside) else rms(inside)
    error = demand.absolute * size / math.sqrt(terms)
    return Demand(error, max(demand.absolute, error / (rms(x) or 1.0)))


def log_sum_exp(x: Moments, terms: float) -> Moments:
    if x.flags & LOST:
        return x
    above = math.log(max(terms, 1.0))
    return moments(x.mean + above, x.std, x.low, x.high + above)


def _logit_demand(x: Moments, y: Moments, demand: Demand, terms: float) -> Demand:
    """Each operand has the weight of its softmax: equal operands average out, a dominant one does
    not.
    """
    weight = min(math.exp(min(x.std**2, _BROADEST)) / max(terms, 1.0), 1.0)
    return tolerated(x, demand.absolute / math.sqrt(weight))


# From this variance on, one logit dominates.
_BROADEST = 50.0


def running_sum(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """Cumulative sum: the mean after half of the axis, the ends after all of it."""
    x, terms = xs[0], _axis_length(site, node)
    if x.flags & LOST:
        return x
    whole = summed(x, terms)
    low, high = min(x.low, whole.low), max(x.high, whole.high)
    flags = x.flags & (INTEGER | POSITIVE)
    return moments(
        whole.mean / 2,
        math.hypot(whole.mean / 4, whole.std),
        0.0 if flags & POSITIVE else low,
        high,
        flags,
    )


def _axis_length(site: EstimatedGraph, node: Node) -> float:
    own = node.attributes.get("axis")
    axis = (own,) if isinstance(own, int) else site.integers(node.operand(1))
    length = site.length(node.inputs[0], axis[0]) if axis else None
    return float(length or OPEN_POSITIONS)


def _running_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Summands may be equal, with equal errors that add up linearly, as in a phase and its
    steps.
    """
    return (_share_of_sum(xs[0], y, demand, _axis_length(site, node)),)


def running_product(x: Moments) -> Moments:
    return moments(x.mean, x.std, min(x.low, 0.0), x.high, x.flags & (POSITIVE | UNIT | LOST))


LAWS: Laws = {
    Transfer.SUM: Law(of_terms(summed), demand_of_terms(_sum_demand)),
    Transfer.MEAN: Law(of_terms(mean), demand_of_terms(_mean_demand)),
    Transfer.POOL: Law(pool, _pool_demands),
    Transfer.SUM_OF_SQUARES: Law(of_terms(sum_of_squares), demand_of_terms(_squares_demand)),
    Transfer.VARIANCE: Law(of_terms(variance), demand_of_terms(_variance_demand)),
    Transfer.L2_NORM: Law(of_terms(l2_norm), demand_of_one(_norm_demand)),
    Transfer.L1_NORM: Law(of_terms(l1_norm), demand_of_terms(_sum_demand)),
    Transfer.EXTREME: Law(extreme, passed),
    Transfer.PRODUCT: Law(of_terms(product), demand_of_terms(_product_demand)),
    Transfer.LOG_SUM: Law(of_terms(log_sum), demand_of_terms(_log_sum_demand)),
    Transfer.LOG_SUM_EXP: Law(of_terms(log_sum_exp), demand_of_terms(_logit_demand)),
    Transfer.RUNNING_SUM: Law(running_sum, _running_demands),
    Transfer.RUNNING_PRODUCT: Law(of_one(running_product), passed),
}
