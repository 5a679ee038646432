"""Transfer laws of softmax and normalization layers."""

import math

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    demand_of_one,
    relative_of,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    LOST,
    POSITIVE,
    SIGMA,
    UNIT,
    UNKNOWN,
    Moments,
    largest,
    moments,
    rms,
)
from mezzo.analysis.estimates.site import OPEN_LENGTH, EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Limit on the spread of logits; wider ones are ramps, whose neighbours are close.
_WIDEST = 30.0


def softmax(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    count = _width(site, node)
    mean = 1.0 / count
    spread = min(math.expm1(min(xs[0].std ** 2, 50.0)), count) if not xs[0].flags & LOST else 1.0
    return moments(mean, mean * math.sqrt(spread), 0.0, 1.0, POSITIVE | UNIT)


def _width(site: EstimatedGraph, node: Node) -> float:
    axis = node.attributes.get("axis", -1)
    length = site.length(node.inputs[0], axis if isinstance(axis, int) else -1)
    return float(max(length or OPEN_LENGTH, 1))


def _softmax_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Tolerance of logits: their absolute error is a relative error of the probabilities, less if
    one probability dominates.

    At least half of the outputs' tolerance is granted; otherwise tolerances would shrink with every
    layer.
    """
    share = max(relative_of(demand, y), 0.5 * site.tolerance)
    return (tolerated(xs[0], share * math.sqrt(1.0 + min(xs[0].std, _WIDEST))),)


def log_softmax(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    x, above = xs[0], math.log(_width(site, node))
    if x.flags & LOST:
        return UNKNOWN
    return moments(-above, x.std, x.low - x.high - above, 0.0)


def standardized(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """Unit variance times the gain, plus the bias."""
    gain = _known(xs, 1, 1.0)
    bias = xs[2] if len(xs) > 2 and not xs[2].flags & LOST else Moments(0.0, 0.0, 0.0, 0.0, 0)
    size = math.hypot(rms(gain), bias.std)
    reach = max(SIGMA * size, largest(gain) * SIGMA)
    return moments(bias.mean, size, bias.mean - reach + min(bias.low - bias.mean, 0.0),
                   bias.mean + reach + max(bias.high - bias.mean, 0.0))  # fmt: skip


def _known(xs: Operands, index: int, default: float) -> Moments:
    if len(xs) > index and not xs[index].flags & LOST:
        return xs[index]
    return Moments(default, 0.0, default, default, 0)


def _spread_over_epsilon(variance: float, node: Node) -> float:
    """The divisor of a norm."""
    epsilon = node.float_attribute("epsilon")
    return math.sqrt(variance + (1e-5 if epsilon is None else epsilon))


def _norm_demands(xs: Operands, node: Node, demand: Demand, spread: float) -> Demands:
    size = _spread_over_epsilon(spread * spread, node)
    gain = rms(_known(xs, 1, 1.0)) or 1.0
    demands: list[Demand | None] = [tolerated(xs[0], demand.absolute * size / gain)]
    return (*demands, *(tolerated(x, demand.absolute) for x in xs[1:3]))


def _standard_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    return _norm_demands(xs, node, demand, xs[0].std)


def _size_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    if node.op == "LpNormalization":
        return (tolerated(xs[0], demand.absolute * rms(xs[0]) / _unit(site, node)),)
    return _norm_demands(xs, node, demand, rms(xs[0]))


def unit_norm(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    if node.op == "LpNormalization":
        return moments(0.0, _unit(site, node), -1.0, 1.0)
    return standardized(site, node, xs[:2])


def _unit(site: EstimatedGraph, node: Node) -> float:
    """Size of the elements of a vector with unit L2 norm or L1 norm."""
    count = _width(site, node)
    is_first = bool(node.attributes) and node.attributes.get("p") == 1
    return min(_OF_MAGNITUDES / count, 1.0) if is_first else 1.0 / math.sqrt(count)


# Ratio of root mean square to mean magnitude of a normal distribution.
_OF_MAGNITUDES = math.sqrt(0.5 * math.pi)


def given_statistics(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """(x - mean) / sqrt(variance) * gain + bias, from the stored statistics where they contradict
    the estimate.
    """
    if len(xs) < 5:
        return UNKNOWN
    if is_overestimated(site, node, xs):  # each channel has unit variance before its gain
        return standardized(site, node, xs[:3])
    slope = _slope(xs, node)
    x, bias, mean = believed_input(xs), xs[2], xs[3]
    if x.flags & LOST:
        return standardized(site, node, xs[:3])
    middle = (x.mean - mean.mean) * slope + bias.mean
    # Variance within channels: the total without that of the channels' means, but at least the
    # stored one.
    least = 0.25 * x.std**2
    if site.constant(node.inputs[4]) is not None:
        least = min(least, max(xs[4].mean, 0.0))
    std = math.hypot(max(x.std**2 - mean.std**2, least) ** 0.5 * slope, bias.std)
    reach = SIGMA * std + max(bias.high - bias.mean, 0.0)
    return moments(middle, std, middle - reach, middle + reach)


# Estimates larger than the stored statistics by this factor are replaced.
_FAR = 3.0


def is_overestimated(site: EstimatedGraph, node: Node, xs: Operands) -> bool:
    """Whether a batch normalization has trained per-channel statistics that show a much smaller
    input than estimated.
    """
    facts = site.constant(node.inputs[4]) if len(node.inputs) > 4 else None
    if (
        facts is None
        or facts.rms is None
        or not 0.0 <= facts.minimum < facts.maximum
        or xs[0].flags & LOST
    ):
        return False
    return rms(xs[0]) > _FAR * rms(gathered_input(xs))


def gathered_input(xs: Operands) -> Moments:
    """Moments of a batch normalization's input by its stored statistics."""
    mean, spread = xs[3], math.sqrt(max(xs[4].mean, 0.0))
    std = math.hypot(spread, mean.std)
    return moments(
        mean.mean, std, min(mean.low, mean.mean) - SIGMA * spread, mean.high + SIGMA * spread
    )


def believed_input(xs: Operands) -> Moments:
    """Moments of a batch normalization's input: the estimate, or the stored statistics if the two
    differ much.
    """
    x, mean, variance = xs[0], xs[3], xs[4]
    if (mean.flags | variance.flags) & LOST:
        return x
    spread = math.sqrt(max(variance.mean, 0.0))
    if not x.flags & LOST and abs(x.mean - mean.mean) < 8.0 * max(spread, x.std):
        return x
    return gathered_input(xs)


def _slope(xs: Operands, node: Node) -> float:
    gain, variance = xs[1], xs[4]
    if (gain.flags | variance.flags) & LOST:
        return 1.0
    return (rms(gain) or 1e-6) / _spread_over_epsilon(max(variance.mean, 0.0), node)


def _statistics_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    if len(xs) < 5:
        return ()
    own = tolerated(xs[0], demand.absolute / _slope(xs, node))
    return (own, *(tolerated(x, demand.absolute) for x in xs[1:3]))


LAWS: Laws = {
    Transfer.SOFTMAX: Law(softmax, _softmax_demands),
    Transfer.LOG_SOFTMAX: Law(
        log_softmax, demand_of_one(lambda x, y, demand: tolerated(x, demand.absolute))
    ),
    Transfer.STANDARDIZE: Law(standardized, _standard_demands),
    Transfer.NORMALIZE_SIZE: Law(unit_norm, _size_demands),
    Transfer.GIVEN_STATISTICS: Law(given_statistics, _statistics_demands),
}
