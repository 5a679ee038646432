"""Assumed distributions of graph inputs: unit scale, a scale inferred from the model's first
operators, integers or masks. Each assumption can be printed and overridden.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import (
    HARD,
    INTEGER,
    POSITIVE,
    SIGMA,
    TOUCHING,
    UNIT,
    UNKNOWN,
    Moments,
    moments,
)
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import DType, integer_span
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Largest assumed integer input: ids, lengths, positions.
LARGEST_INTEGER = 1e5
# Largest assumed float position or time step, read by a sine.
LARGEST_POSITION = 1e4
# A factor from this magnitude on turns 0 and 1 into an attention mask.
_MASKING = 1e3
# A subtracted offset of this many standard deviations is taken for the input's mean.
_OFFSET = 3.0
# A smaller offset at a scale near 1 may be a bias, as of an exponential or a sigmoid.
_LARGEST_BIAS, _LARGEST_GAIN = 32.0, 4.0
_LONGEST_PROLOGUE = 8
# Divisors in this range normalize pixels or audio samples; smaller ones are ordinary gains.
_CONVERTED = 50.0, 1e5
_FARTHEST_ANGLE = 12


@dataclass(frozen=True, slots=True)
class Assumption:
    """The assumed distribution of an input, and the reason. `is_doubtful`: the input may as well
    have unit scale, since the evidence is a single factor, which may be a gain, or a single term,
    which may be a bias.
    """

    name: str
    held: Moments
    because: str
    is_doubtful: bool = False


def assume(
    site: EstimatedGraph, node: Node, given: Mapping[str, tuple[float, float]]
) -> Assumption:
    """The assumed distribution of a graph input's numbers."""
    value = node.outputs[0]
    assert value is not None, "an input has a value"
    name, dtype = site.graph.values[value].name, site.graph.values[value].dtype
    if name in given:
        low, high = given[name]
        middle = (low + high) / 2
        flags = (POSITIVE if low >= 0.0 else 0) | (UNIT if low >= 0.0 and high <= 1.0 else 0)
        if dtype is not None and integer_span(dtype) is not None:
            flags |= INTEGER
        return Assumption(
            name, moments(middle, (high - low) / math.sqrt(12.0), low, high, flags), "as asked"
        )
    if dtype is DType.BOOL:
        return Assumption(name, _truth(), "true or false")
    if dtype is DType.STRING:
        return Assumption(name, UNKNOWN, "text")
    span = None if dtype is None else integer_span(dtype)
    if span is None:
        return _float_input(site, name, value)
    if _reads_as_mask(site, value):
        return Assumption(name, _truth(), "reads as a mask of 0 and 1")
    if span[1] <= LARGEST_INTEGER:
        return Assumption(name, _whole_numbers(span), f"all of {dtype}")
    return _past_ids(site, name, value) or Assumption(name, _whole_numbers(span), "whole numbers")


def _past_ids(site: EstimatedGraph, name: str, value: int) -> Assumption | None:
    """Integer inputs that the first operators normalize from a scale beyond ids and lengths: time
    stamps, coordinates in millionths. None if they do not.
    """
    offset, scale, why = _prologue(site, value)
    if not why or abs(offset) + SIGMA * scale <= LARGEST_INTEGER:
        return None
    reach = SIGMA * scale
    return Assumption(name, moments(offset, scale, offset - reach, offset + reach, INTEGER), why)


def _whole_numbers(span: tuple[int, int]) -> Moments:
    """Integers by dtype: ids, lengths and positions for wide ones; the full range for narrow ones,
    which hold pixels, audio samples or quantized data.
    """
    low, high = map(float, span)
    if high > LARGEST_INTEGER:
        low, high = 0.0, LARGEST_INTEGER
        return moments(high / 2, high / 4, low, high, INTEGER | POSITIVE)
    flags = INTEGER | (POSITIVE if low >= 0.0 else 0)
    return moments((low + high) / 2, (high - low) / math.sqrt(12.0), low, high, flags)


def _truth() -> Moments:
    return Moments(0.5, 0.5, 0.0, 1.0, INTEGER | POSITIVE | UNIT | HARD)


def _float_input(site: EstimatedGraph, name: str, value: int) -> Assumption:
    if _reads_as_mask(site, value):
        return Assumption(name, _truth(), "reads as a mask of 0 and 1")
    if _becomes_angle(site, value):
        high = LARGEST_POSITION
        estimate = moments(high / 2, high / 3.5, 0.0, high, INTEGER | POSITIVE)
        return Assumption(name, estimate, "positions or time steps, since a sine reads it")
    offset, scale, why = _prologue(site, value)
    if _is_probability(site, value):
        return Assumption(
            name,
            moments(0.3, 0.3, 0.0, 1.0, POSITIVE | UNIT | HARD | TOUCHING),
            "reads as a probability",
        )
    root_or_log = _positive_reader(site, value)
    if root_or_log is not None:
        # Power spectra and counts, which include zeros.
        touching = TOUCHING if root_or_log is Transfer.LOGARITHM else 0
        estimate = moments(0.8 * scale, 0.6 * scale, 0.0, SIGMA * scale, POSITIVE | touching)
        return Assumption(name, estimate, "positive numbers of unit scale")
    reach = SIGMA * scale
    estimate = moments(offset, scale, offset - reach, offset + reach)
    is_bias = 1.0 / _LARGEST_GAIN <= scale <= _LARGEST_GAIN and abs(offset) <= _LARGEST_BIAS * scale
    return Assumption(
        name,
        estimate,
        why or "unit scale",
        bool(why) and (is_bias or abs(offset) <= _OFFSET * scale),
    )


def _readers(site: EstimatedGraph, value: int) -> Iterator[tuple[Node, int]]:
    """Readers of a value through data movement and casts: node and operand index."""
    queue, visited = [value], {value}
    while queue and len(visited) < 64:
        for use in site.graph.uses[queue.pop()]:
            node = site.graph.nodes[use.node]
            is_moved = (
                site.transfer(node) in (Transfer.MOVE, Transfer.KEEP, Transfer.CAST)
                and use.operand == 0
            )
            if node.kind is Kind.OUTPUT or not node.outputs:
                continue
            if is_moved or node.kind in (Kind.TIE, Kind.SOURCE, Kind.CAST):
                fresh = [v for v in node.outputs if v is not None and v not in visited]
                visited.update(fresh)
                queue += fresh
            else:
                yield node, use.operand


def _constant_beside(site: EstimatedGraph, node: Node, operand: int) -> float | None:
    """The signed size of the other operand, if constant; else None."""
    other = site.operand(node, 1 - operand)
    return None if other is None else _folded(site, other, _DEEPEST_FOLD)


def _folded(site: EstimatedGraph, value: int, depth: int) -> float | None:
    """The signed size of a value that is constant or computed from constants; else None. Needed
    because inputs are assumed before constants are propagated.
    """
    facts = site.constant(value)
    if facts is not None:
        return facts.mean if facts.rms is not None else facts.largest
    node = site.producer(value)
    if not depth or not node.inputs:
        return None
    parts = [None if v is None else _folded(site, v, depth - 1) for v in node.inputs[:2]]
    transfer, first, second = site.transfer(node), parts[0], parts[-1]
    if first is None or second is None:
        is_passing = transfer in (Transfer.KEEP, Transfer.MOVE, Transfer.CAST) or node.kind in (
            Kind.TIE,
            Kind.SOURCE,
        )
        return first if is_passing else None
    if transfer is Transfer.MULTIPLY:
        return first * second
    if transfer is Transfer.ADD:
        return first + second
    if transfer is Transfer.SUBTRACT:
        return first - second
    if transfer is Transfer.DIVIDE:
        return first / second if second else None
    if transfer in (Transfer.NEGATE, Transfer.RECIPROCAL):
        return -first if transfer is Transfer.NEGATE else 1.0 / first if first else None
    return (
        first
        if transfer in (Transfer.KEEP, Transfer.MOVE, Transfer.CAST) or node.kind is not Kind.OP
        else None
    )


_DEEPEST_FOLD = 4


def _reads_as_mask(site: EstimatedGraph, value: int) -> bool:
    """Whether a reader uses the input as a mask: 1 - m, m times 10,000, or m times non-constant
    data.
    """
    dtype = site.graph.values[value].dtype
    is_integer = dtype is not None and integer_span(dtype) is not None
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if (
            transfer is Transfer.SUBTRACT
            and operand == 1
            and _constant_beside(site, node, 1) == 1.0
        ):
            if _leads_to_mask(site, node) or is_integer:
                return True
        elif transfer is Transfer.MULTIPLY:
            factor = _constant_beside(site, node, operand)
            if factor is not None and factor <= -_MASKING:
                return True
            if is_integer and factor is None:
                return True
        elif (
            transfer in (Transfer.SUM, Transfer.RUNNING_SUM)
            and is_integer
            and not _is_list(site, value)
        ):
            return True
    return False


def _is_list(site: EstimatedGraph, value: int) -> bool:
    """Whether a value has one axis, as lengths and counts have; a mask also has a batch axis."""
    shape = site.shape(value)
    return shape is not None and len(shape) == 1


def _leads_to_mask(site: EstimatedGraph, node: Node) -> bool:
    value = node.outputs[0]
    if value is None:
        return False
    return any(
        site.transfer(reader) is Transfer.MULTIPLY
        and abs(_constant_beside(site, reader, operand) or 0.0) >= _MASKING
        for reader, operand in _readers(site, value)
    )


def _becomes_angle(site: EstimatedGraph, value: int) -> bool:
    """Whether the input is a position or a time step: multiplied by constant frequencies and read
    by a sine.
    """
    if not _is_flat(site, value):
        return False
    queue, visited = [(value, False)], {value}
    while queue and len(visited) < _FARTHEST_ANGLE:
        at, has_frequencies = queue.pop()
        for node, operand in _readers(site, at):
            transfer = site.transfer(node)
            if transfer in (Transfer.SINE, Transfer.COSINE):
                if has_frequencies:
                    return True
                continue
            if transfer not in _TO_ANGLES:
                continue
            factor = site.constant(site.operand(node, 1 - operand)) if operand < 2 else None
            result = node.outputs[0]
            if (
                result is not None
                and result not in visited
                and (factor is not None or transfer is Transfer.JOIN)
            ):
                visited.add(result)
                queue.append(
                    (
                        result,
                        has_frequencies or (factor is not None and factor.elements >= _FREQUENCIES),
                    )
                )
    return False


# Laws between a position and its angles, and the minimum size of a table of frequencies.
_TO_ANGLES = frozenset(
    {Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.CONTRACT, Transfer.EINSUM, Transfer.JOIN}
)
_FREQUENCIES = 3


def _is_flat(site: EstimatedGraph, value: int) -> bool:
    """Whether at most two axes are longer than 1, as for positions; features have more."""
    shape = site.shape(value)
    return shape is not None and sum(size != 1 for size in shape) <= 2


def _is_probability(site: EstimatedGraph, value: int) -> bool:
    """Whether the input is a probability: subtracted from one, or clipped to [0, 1]."""
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if (
            transfer is Transfer.SUBTRACT
            and operand == 1
            and _constant_beside(site, node, 1) == 1.0
        ):
            return True
        if transfer is Transfer.CLIP:
            least, most = _bound(site, node, 1, "min"), _bound(site, node, 2, "max")
            if most is not None and 0.5 < most <= 1.0 and (least is None or least >= 0.0):
                return True
        if _is_log_of_log(site, node):
            return True
    return False


def _bound(site: EstimatedGraph, node: Node, operand: int, attribute: str) -> float | None:
    value = site.operand(node, operand)
    stated = node.attributes.get(attribute) if node.attributes else None
    folded = None if value is None else _folded(site, value, _DEEPEST_FOLD)
    return stated if folded is None and isinstance(stated, float) else folded


def _is_log_of_log(site: EstimatedGraph, node: Node) -> bool:
    """Whether a node starts the Gumbel noise pattern -log(-log(u)), with or without an epsilon."""
    for _ in range(4):
        value = node.outputs[0]
        readers = [] if value is None else [reader for reader, _ in _readers(site, value)]
        if len(readers) != 1:
            return False
        is_log = site.transfer(node) is Transfer.LOGARITHM
        if is_log and site.transfer(readers[0]) is Transfer.NEGATE:
            following = readers[0].outputs[0]
            after = (
                set()
                if following is None
                else {reader.id for reader, _ in _readers(site, following)}
            )
            nodes = [site.graph.nodes[number] for number in sorted(after)]
            return any(_takes_log(site, reader) for reader in nodes)
        if is_log or site.transfer(node) not in _SHIFTING:
            return False
        node = readers[0]
    return False


def _takes_log(site: EstimatedGraph, node: Node) -> bool:
    """Whether a node is a logarithm, or an epsilon or clip before one."""
    if site.transfer(node) is Transfer.LOGARITHM:
        return True
    value = node.outputs[0] if site.transfer(node) in _GUARDING else None
    return value is not None and any(
        site.transfer(r) is Transfer.LOGARITHM for r, _ in _readers(site, value)
    )


def _positive_reader(site: EstimatedGraph, value: int) -> Transfer | None:
    """The logarithm or square root that reads the input, directly or after an epsilon; the input is
    then nonnegative.
    """
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if transfer in _OF_POSITIVE:
            return transfer
        epsilon = (
            _constant_beside(site, node, operand) if transfer in _GUARDING and operand < 2 else None
        )
        if epsilon is not None and transfer is Transfer.SUBTRACT:
            epsilon = -epsilon
        if epsilon is not None and 0.0 < epsilon < 1e-3 and node.outputs[0] is not None:
            for reader, _ in _readers(site, node.outputs[0]):
                if site.transfer(reader) in _OF_POSITIVE:
                    return site.transfer(reader)
    return None


_SHIFTING = frozenset({Transfer.ADD, Transfer.SUBTRACT})
_GUARDING = _SHIFTING | {Transfer.CLIP, Transfer.MAXIMUM}
_OF_POSITIVE = frozenset({Transfer.LOGARITHM, Transfer.SQUARE_ROOT})


def _prologue(site: EstimatedGraph, value: int) -> tuple[float, float, str]:
    """Mean and scale of an input that the first operators normalize to unit scale, and the reason
    as text; (0, 1, empty) if they do not.
    """
    factor, offset = 1.0, 0.0  # affine map so far: factor * x + offset
    last: Node | None = None
    at = value
    for _ in range(_LONGEST_PROLOGUE):
        readers = list(_readers(site, at))
        if len(readers) != 1 or readers[0][0].outputs[0] is None:
            break
        node, operand = readers[0]
        step = _affine(site, node, operand)
        if step is None or site.graph.scopes[node.scope].repeats > 1:
            break
        following = node.outputs[0]
        assert following is not None, "checked above"
        factor, offset, last, at = factor * step[0], offset * step[0] + step[1], node, following
        if site.transfer(node) is Transfer.GIVEN_STATISTICS:
            break
    if last is None or not factor:
        return 0.0, 1.0, ""
    mean, scale = -offset / factor, 1.0 / abs(factor)
    takes_off = mean > 0.0 and mean > _OFFSET * scale
    if site.transfer(last) is Transfer.GIVEN_STATISTICS:
        takes_off = abs(mean) > _OFFSET * scale
    if not (takes_off or _CONVERTED[0] <= scale <= _CONVERTED[1]) or scale > 1e7:
        return 0.0, 1.0, ""
    return mean, scale, f"what {last.name!r} makes unit scale of"


def _affine(site: EstimatedGraph, node: Node, operand: int) -> tuple[float, float] | None:
    """Factor and offset of an affine operator with constants, averaged over channels; None for
    others.
    """
    transfer = site.transfer(node)
    if transfer is Transfer.NEGATE:
        return -1.0, 0.0
    if transfer is Transfer.GIVEN_STATISTICS and operand == 0 and len(node.inputs) >= 5:
        facts = [site.constant(value) for value in node.inputs[1:5]]
        mean, variance = facts[2], facts[3]
        if mean is None or variance is None or mean.rms is None or variance.rms is None:
            return None
        scale = 1.0 / math.sqrt(max(variance.mean, 0.0) + 1e-5)
        return scale, -mean.mean * scale
    constant = _constant_beside(site, node, operand)
    if constant is None or not constant:
        return None
    if transfer is Transfer.ADD:
        return 1.0, constant
    if transfer is Transfer.SUBTRACT:
        return (1.0, -constant) if operand == 0 else (-1.0, constant)
    if transfer is Transfer.MULTIPLY:
        return constant, 0.0
    if transfer is Transfer.DIVIDE:
        return (1.0 / constant, 0.0) if operand == 0 else None
    return None
