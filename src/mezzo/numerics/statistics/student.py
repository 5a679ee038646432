"""Quantiles of Student's t distribution, for integer degrees of freedom.

Sources: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964): 26.7.3 and 26.7.4, a
finite sum, for few degrees; 26.7.5, an expansion around the normal quantile, for many.
"""

import math
from statistics import NormalDist

# From here on the first omitted term of the expansion is below 1e-11 of the quantile, for shares
# from 1e-3.
_MANY = 300


def student_quantile(degrees: int, share: float) -> float:
    """The quantile of Student's distribution at `share`: 4.303 for two degrees and 0.975."""
    assert degrees >= 1 and 0.0 < share < 1.0, f"{degrees} degrees, a share of {share}"
    if share < 0.5:
        return -student_quantile(degrees, 1 - share)
    if degrees >= _MANY:
        return _expanded(degrees, NormalDist().inv_cdf(share))
    # Bisection over the angle whose tangent is the quantile over the root of the degrees.
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _share_within(degrees, middle) < 2 * share - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(high)


def _share_within(degrees: int, angle: float) -> float:
    """The probability between minus and plus the quantile at this angle."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2 == 1
    term, total = (cosine, 0.0) if is_odd else (1.0, 0.0)
    for step in range(1 + is_odd, degrees, 2):
        total += term
        term *= step / (step + 1) * cosine * cosine
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total


def _expanded(degrees: int, normal: float) -> float:
    square = normal * normal
    terms = (
        (square + 1) / 4,
        ((5 * square + 16) * square + 3) / 96,
        (((3 * square + 19) * square + 17) * square - 15) / 384,
        ((((79 * square + 776) * square + 1482) * square - 1920) * square - 945) / 92160,
    )
    total = 1.0
    for power, term in enumerate(terms, 1):
        total += term / degrees**power
    return normal * total
