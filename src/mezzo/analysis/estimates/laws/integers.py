"""Transfer laws of casts and quantized arithmetic."""

import math

from mezzo.analysis.estimates.laws.comparisons import threshold_demands
from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    always,
    nothing,
    tolerated,
)
from mezzo.analysis.estimates.moments import (
    INTEGER,
    LOST,
    POSITIVE,
    SIGMA,
    TRUTH,
    UNIT,
    UNKNOWN,
    Moments,
    flagged,
    moments,
    rms,
    scaled,
)
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Assumed distribution of 8-bit quantized data.
_QUANTIZED = Moments(0.0, 48.0, -128.0, 127.0, INTEGER)
_LARGEST_PRODUCT = 127.0 * 127.0


def cast(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    dtype, span = site.dtype(node.outputs[0]), site.integer_span(node.outputs[0])
    if dtype is DType.BOOL:
        return flagged(TRUTH, INTEGER | POSITIVE | UNIT)
    x = xs[0]
    if span is None or x.flags & LOST:
        return x
    flags = x.flags | INTEGER
    if x.low >= span[0] and x.high <= span[1]:
        return flagged(x, flags)
    low, high = (float(min(max(end, span[0]), span[1])) for end in (x.low, x.high))
    return moments(x.mean, x.std, low, high, flags)


def _cast_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    if site.integer_span(node.outputs[0]) is None:
        return (demand,)
    # Integers have to be exact; other numbers only up to their own truncation.
    x = xs[0]
    return (tolerated(x, 0.25 if x.flags & INTEGER else max(0.05, 0.02 * x.std)),)


def quantized_sum(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    terms = site.contracted(node)
    std = _QUANTIZED.std * _QUANTIZED.std * math.sqrt(terms)
    high = min(max(SIGMA * std, std), terms * _LARGEST_PRODUCT)
    return moments(0.0, std, -high, high, INTEGER)


def dequantized(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    scale = xs[1] if len(xs) > 1 else UNKNOWN
    if scale.flags & LOST or not rms(scale):
        return UNKNOWN
    return flagged(scaled(_QUANTIZED, rms(scale)), 0)


LAWS: Laws = {
    Transfer.CAST: Law(cast, _cast_demands),
    Transfer.QUANTIZED_SUM: Law(quantized_sum, nothing),
    Transfer.QUANTIZE: Law(always(_QUANTIZED), threshold_demands),
    Transfer.DEQUANTIZE: Law(dequantized, nothing),
}
