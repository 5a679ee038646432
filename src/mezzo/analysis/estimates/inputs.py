"""Assumed distributions of graph inputs: unit scale, a scale inferred from the model's first
operators, integers or masks. Each assumption can be printed and overridden.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import (
    HARD,
    INTEGER,
    POSITIVE,
    SIGMA,
    TOUCHING,
    TRUTH,
    UNIT,
    UNKNOWN,
    Moments,
    moments,
    normal,
    uniform,
)
from mezzo.analysis.estimates.patterns.input_use import (
    OFFSET,
    becomes_angle,
    is_probability,
    normalization_of,
    positive_reader,
    reads_as_mask,
)
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Largest assumed integer input: ids, lengths, positions.
LARGEST_INTEGER = 1e5
# Largest assumed float position or time step, read by a sine.
LARGEST_POSITION = 1e4
# A smaller offset at a scale near 1 may be a bias, as of an exponential or a sigmoid.
_LARGEST_BIAS, _LARGEST_GAIN = 32.0, 4.0


@dataclass(frozen=True, slots=True)
class Assumption:
    """The assumed distribution of an input, and the reason. `is_doubtful`: the input may as well
    have unit scale, since the evidence is a single factor, which may be a gain, or a single term,
    which may be a bias.
    """

    name: str
    estimate: Moments
    because: str
    is_doubtful: bool = False


def assume(
    site: EstimatedGraph, node: Node, given: Mapping[str, tuple[float, float]]
) -> Assumption:
    """The assumed distribution of a graph input's numbers."""
    value = node.outputs[0]
    assert value is not None, "an input has a value"
    name, dtype = site.graph.values[value].name, site.dtype(value)
    span = site.integer_span(value)
    if name in given:
        low, high = given[name]
        flags = UNIT if low >= 0.0 and high <= 1.0 else 0
        flags |= 0 if span is None else INTEGER
        return Assumption(name, uniform(low, high, flags), "as asked")
    if dtype is DType.BOOL:
        return Assumption(name, TRUTH, "true or false")
    if dtype is DType.STRING:
        return Assumption(name, UNKNOWN, "text")
    if reads_as_mask(site, value):
        return Assumption(name, TRUTH, "reads as a mask of 0 and 1")
    if span is None:
        return _float_input(site, name, value)
    if span[1] <= LARGEST_INTEGER:
        return Assumption(name, _whole_numbers(span), f"all of {dtype}")
    return _past_ids(site, name, value) or Assumption(name, _whole_numbers(span), "whole numbers")


def _past_ids(site: EstimatedGraph, name: str, value: int) -> Assumption | None:
    """Integer inputs that the first operators normalize from a scale beyond ids and lengths: time
    stamps, coordinates in millionths. None if they do not.
    """
    offset, scale, why = normalization_of(site, value)
    if not why or abs(offset) + SIGMA * scale <= LARGEST_INTEGER:
        return None
    return Assumption(name, normal(offset, scale, INTEGER), why)


def _whole_numbers(span: tuple[int, int]) -> Moments:
    """Integers by dtype: ids, lengths and positions for wide ones; the full range for narrow ones,
    which hold pixels, audio samples or quantized data.
    """
    low, high = map(float, span)
    if high <= LARGEST_INTEGER:
        return uniform(low, high, INTEGER)
    middle = LARGEST_INTEGER / 2
    return moments(middle, LARGEST_INTEGER / 4, 0.0, LARGEST_INTEGER, INTEGER | POSITIVE)


def _float_input(site: EstimatedGraph, name: str, value: int) -> Assumption:
    if becomes_angle(site, value):
        high = LARGEST_POSITION
        estimate = moments(high / 2, high / 3.5, 0.0, high, INTEGER | POSITIVE)
        return Assumption(name, estimate, "positions or time steps, since a sine reads it")
    if is_probability(site, value):
        estimate = moments(0.3, 0.3, 0.0, 1.0, POSITIVE | UNIT | HARD | TOUCHING)
        return Assumption(name, estimate, "reads as a probability")
    offset, scale, why = normalization_of(site, value)
    root_or_log = positive_reader(site, value)
    if root_or_log is not None:
        # Power spectra and counts, which include zeros.
        touching = TOUCHING if root_or_log is Transfer.LOGARITHM else 0
        estimate = moments(0.8 * scale, 0.6 * scale, 0.0, SIGMA * scale, POSITIVE | touching)
        return Assumption(name, estimate, "positive numbers of unit scale")
    is_bias = 1.0 / _LARGEST_GAIN <= scale <= _LARGEST_GAIN and abs(offset) <= _LARGEST_BIAS * scale
    is_doubtful = bool(why) and (is_bias or abs(offset) <= OFFSET * scale)
    return Assumption(name, normal(offset, scale), why or "unit scale", is_doubtful)
