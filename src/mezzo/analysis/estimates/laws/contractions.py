"""Transfer laws of contractions: matmul, convolution, Einsum, attention, recurrent layers."""

import math

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    absolute_of,
    always,
    share,
    tolerated,
)
from mezzo.analysis.estimates.laws.reductions import sum_of_squares, summed
from mezzo.analysis.estimates.moments import (
    CENTRED,
    INTEGER,
    LOST,
    POSITIVE,
    SIGMA,
    UNKNOWN,
    Moments,
    low_of_sum,
    moments,
    normal,
    rms,
    scaled,
    shifted,
)
from mezzo.analysis.estimates.site import OPEN_LENGTH, EstimatedGraph, is_convolution, is_transposed
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer


def _products(a: Moments, b: Moments, terms: float, *, is_same: bool) -> Moments:
    """Moments of the sum of `terms` products of elements of a and b."""
    if (a.flags | b.flags) & LOST:
        return UNKNOWN
    mean_a, mean_b, std_a, std_b = a.mean, b.mean, a.std, b.std
    mean = terms * mean_a * mean_b
    square_a, square_b = mean_a * mean_a + std_a * std_a, mean_b * mean_b + std_b * std_b
    std = math.sqrt(max(terms * (square_a * square_b - mean_a * mean_a * mean_b * mean_b), 0.0))
    low, high = mean - SIGMA * std, mean + SIGMA * std
    flags = a.flags & b.flags & INTEGER
    if (
        a.flags & b.flags & POSITIVE
        or (a.flags & POSITIVE and b.low >= 0.0)
        or (b.flags & POSITIVE and a.low >= 0.0)
    ):
        flags |= POSITIVE
        low = low_of_sum(mean, std, terms, terms * max(a.low, 0.0) * max(b.low, 0.0))
    if is_same:  # a Gram matrix, whose diagonal has sums of squares
        high = max(high, sum_of_squares(a, terms).high)
    return moments(mean, std, low, high, flags)


def contract(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    terms = site.contracted(node)
    a, b = xs[0], xs[1]
    if (
        a.flags & CENTRED
        and b.mean
        and not is_convolution(node)
        and not node.attributes.get("transA")
    ):
        b = shifted(b, -b.mean)  # a constant part of the weights cancels, as the input sums to zero
    y = _products(a, b, terms, is_same=site.is_moved(node))
    if a.mean and is_convolution(node):
        y = _filtered(site, node, a, b, y, terms)
    alpha = _alpha(node)
    if alpha != 1.0 and not y.flags & LOST:
        y = scaled(y, alpha)
    if len(xs) > 2 and node.inputs[2] is not None and not (y.flags | xs[2].flags) & LOST:
        y = _plus(y, xs[2])
    return y


def _alpha(node: Node) -> float:
    """The factor of a Gemm's product."""
    alpha = None if node.op == "MatMul" else node.float_attribute("alpha")
    return 1.0 if alpha is None else alpha


def _filtered(
    site: EstimatedGraph, node: Node, x: Moments, kernel: Moments, y: Moments, terms: float
) -> Moments:
    """Moments of a convolution given its kernel's gain on constant signals: zero if its weights sum
    to zero.
    """
    facts = site.constant(node.inputs[1])
    if (
        facts is None
        or facts.level_gain is None
        or is_transposed(node)
        or y.flags & (LOST | POSITIVE)
    ):
        return y
    level = max(facts.level_gain**2 - (terms * kernel.mean) ** 2, 0.0)
    std = math.sqrt(terms * x.std**2 * (kernel.mean**2 + kernel.std**2) + x.mean**2 * level)
    if std >= y.std:
        return y
    return normal(y.mean, std, y.flags)


def _plus(y: Moments, bias: Moments) -> Moments:
    mean = y.mean + bias.mean
    high = mean + math.hypot(y.high - y.mean, bias.high - bias.mean)
    low = mean - math.hypot(y.mean - y.low, bias.mean - bias.low)
    return moments(
        mean, math.hypot(y.std, bias.std), low, high, y.flags & bias.flags & (INTEGER | POSITIVE)
    )


def _contract_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    error = absolute_of(demand, y)
    own = error * site.inflated.get(node.id, 1.0) / (abs(_alpha(node)) or 1.0)
    bias = tolerated(xs[2], error) if len(xs) > 2 else None
    return (*_factor_demands(xs, y, demand, own, site.contracted(node)), bias)


def _factor_demands(
    xs: Operands, y: Moments, demand: Demand, error: float, terms: float
) -> tuple[Demand, Demand]:
    size_a, size_b, root = rms(xs[0]), rms(xs[1]), math.sqrt(terms)
    least = demand.relative if y.flags & POSITIVE else 0.0
    return _factor_demand(error, size_b * root, size_a, least), _factor_demand(
        error, size_a * root, size_b, least
    )


def _factor_demand(error: float, weight: float, size: float, least: float) -> Demand:
    if not weight:
        return Demand(math.inf, math.inf)
    own = error / weight
    relative = own / (size or 1.0)
    return Demand(own, relative if relative > least else least)


def einsum(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    labels = _labels(site, node)
    if labels is None or len(xs) > 3:
        return UNKNOWN
    terms, operands = labels
    if len(xs) == 1:
        return summed(xs[0], terms) if terms > 1 else xs[0]
    if len(xs) == 2:
        if site.is_same(node) and len(set(operands)) == 1:
            return sum_of_squares(xs[0], terms)
        return _products(xs[0], xs[1], terms, is_same=site.is_moved(node))
    first = _products(xs[0], xs[1], 1.0, is_same=False)
    return _products(first, xs[2], terms, is_same=False)


def _labels(site: EstimatedGraph, node: Node) -> tuple[float, list[str]] | None:
    """Number of terms per output element, and the subscripts of the operands; None without an
    equation.
    """
    equation = node.attributes.get("equation")
    if not isinstance(equation, str):
        return None
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if not arrow:
        right = "".join(
            sorted(letter for letter in set(left) - set(",.") if left.count(letter) == 1)
        )
    sizes: dict[str, int | None] = {}
    for value, subscript in zip(node.inputs, operands, strict=False):
        shape = site.shape(value)
        if shape is None:
            continue
        before, dots, after = subscript.partition("...")
        pairs = [*zip(before, shape, strict=False)]
        pairs += [*zip(reversed(after), reversed(shape), strict=False)] if dots else []
        sizes |= {letter: size for letter, size in pairs if size is not None}
    summed_over = set(left) - set(right) - set(",.")
    terms = math.prod(sizes.get(letter) or OPEN_LENGTH for letter in sorted(summed_over))
    return max(float(terms), 1.0), operands


def _einsum_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    labels = _labels(site, node)
    if labels is None:
        return ()
    error, terms = absolute_of(demand, y), labels[0]
    if len(xs) == 1:
        return (tolerated(xs[0], error / math.sqrt(terms)),)
    if len(xs) == 2:
        demands = _factor_demands(xs, y, demand, error, terms)
        if site.is_same(node):  # the errors of both are the same
            return tuple(
                Demand(factor_demand.absolute / 2.0, factor_demand.relative / 2.0)
                for factor_demand in demands
            )
        return demands
    sizes = [rms(x) for x in xs]
    whole = math.prod(sizes) * math.sqrt(terms)
    return tuple(
        tolerated(x, error * size / whole if whole else math.inf)
        for x, size in zip(xs, sizes, strict=True)
    )


def attention(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """A weighted mean of V, with the moments of V."""
    return xs[2] if len(xs) > 2 else xs[0]


def _attention_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    demands: list[Demand | None] = [share(x, site.tolerance) for x in xs[:2]]
    return (*demands, *(tolerated(x, demand.absolute) for x in xs[2:3]))


def _recurrent_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    return tuple(share(x, site.tolerance) for x in xs[:3])


LAWS: Laws = {
    Transfer.CONTRACT: Law(contract, _contract_demands),
    Transfer.EINSUM: Law(einsum, _einsum_demands),
    Transfer.ATTENTION: Law(attention, _attention_demands),
    Transfer.RECURRENT: Law(always(Moments(0.0, 0.5, -1.0, 1.0, 0)), _recurrent_demands),
}
