"""What graph inputs are taken to hold: unit scale, or what the model's first operators make unit scale of; whole
numbers; masks. Every assumption can be printed, and the caller can set another.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import HARD, INTEGER, POSITIVE, SIGMA, TOUCHING, UNIT, UNKNOWN, Moments, moments
from mezzo.analysis.estimates.site import Site
from mezzo.formats.dtypes import DType, integer_span
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Whole numbers that come in from outside: ids, lengths, positions.
LARGEST_INTEGER = 1e5
# Positions and time steps that come in as floats and go into a sine.
LARGEST_POSITION = 1e4
# A factor this large turns 0 and 1 into a mask.
_MASKING = 1e3
# A model that takes off an offset this many times the spread says that its input has one.
_OFFSET = 3.0
# What is taken off nearly unscaled may be a bias: that of an exponential or a sigmoid.
_LARGEST_BIAS, _LARGEST_GAIN = 32.0, 4.0
_LONGEST_PROLOGUE = 8
# Dividing by so much turns pixels and samples of sound into unit scale; by less it is a gain like any other.
_CONVERTED = 50.0, 1e5
_FARTHEST_ANGLE = 12


@dataclass(frozen=True, slots=True)
class Assumption:
    """What an input is taken to hold, and why. `is_doubtful`: it may as well be of unit scale, since what says so is a
    factor alone, which may make it small, or a term alone, which may be a bias.
    """

    name: str
    held: Moments
    because: str
    is_doubtful: bool = False


def assume(site: Site, node: Node, given: Mapping[str, tuple[float, float]]) -> Assumption:
    """Say what the numbers of a graph input are."""
    value = node.outputs[0]
    assert value is not None, "an input has a value"
    name, dtype = site.graph.values[value].name, site.graph.values[value].dtype
    if name in given:
        low, high = given[name]
        middle = (low + high) / 2
        flags = (POSITIVE if low >= 0.0 else 0) | (UNIT if low >= 0.0 and high <= 1.0 else 0)
        if dtype is not None and integer_span(dtype) is not None:
            flags |= INTEGER
        return Assumption(name, moments(middle, (high - low) / math.sqrt(12.0), low, high, flags), "as asked")
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


def _past_ids(site: Site, name: str, value: int) -> Assumption | None:
    """Whole numbers that a model's first operators make unit scale of, where they lie past ids and lengths: time
    stamps, coordinates in millionths.
    """
    offset, scale, why = _prologue(site, value)
    if not why or abs(offset) + SIGMA * scale <= LARGEST_INTEGER:
        return None
    reach = SIGMA * scale
    return Assumption(name, moments(offset, scale, offset - reach, offset + reach, INTEGER), why)


def _whole_numbers(span: tuple[int, int]) -> Moments:
    """Ids, lengths and positions in wide integers; in narrow ones quantized data, pixels, samples: all there are."""
    low, high = map(float, span)
    if high > LARGEST_INTEGER:
        low, high = 0.0, LARGEST_INTEGER
        return moments(high / 2, high / 4, low, high, INTEGER | POSITIVE)
    flags = INTEGER | (POSITIVE if low >= 0.0 else 0)
    return moments((low + high) / 2, (high - low) / math.sqrt(12.0), low, high, flags)


def _truth() -> Moments:
    return Moments(0.5, 0.5, 0.0, 1.0, INTEGER | POSITIVE | UNIT | HARD)


def _float_input(site: Site, name: str, value: int) -> Assumption:
    if _reads_as_mask(site, value):
        return Assumption(name, _truth(), "reads as a mask of 0 and 1")
    if _becomes_angle(site, value):
        high = LARGEST_POSITION
        held = moments(high / 2, high / 3.5, 0.0, high, INTEGER | POSITIVE)
        return Assumption(name, held, "positions or time steps, since a sine reads it")
    offset, scale, why = _prologue(site, value)
    if _is_probability(site, value):
        return Assumption(
            name, moments(0.3, 0.3, 0.0, 1.0, POSITIVE | UNIT | HARD | TOUCHING), "reads as a probability"
        )
    root_or_log = _positive_reader(site, value)
    if root_or_log is not None:
        touching = TOUCHING if root_or_log is Transfer.LOGARITHM else 0  # powers and counts, among them silence
        held = moments(0.8 * scale, 0.6 * scale, 0.0, SIGMA * scale, POSITIVE | touching)
        return Assumption(name, held, "positive numbers of unit scale")
    reach = SIGMA * scale
    held = moments(offset, scale, offset - reach, offset + reach)
    is_bias = 1.0 / _LARGEST_GAIN <= scale <= _LARGEST_GAIN and abs(offset) <= _LARGEST_BIAS * scale
    return Assumption(name, held, why or "unit scale", bool(why) and (is_bias or abs(offset) <= _OFFSET * scale))


def _readers(site: Site, value: int) -> Iterator[tuple[Node, int]]:
    """Users of a value, seen through moves and casts: the node and the operand."""
    queue, seen = [value], {value}
    while queue and len(seen) < 64:
        for use in site.graph.uses[queue.pop()]:
            node = site.graph.nodes[use.node]
            is_moved = site.transfer(node) in (Transfer.MOVE, Transfer.KEEP, Transfer.CAST) and use.operand == 0
            if node.kind is Kind.OUTPUT or not node.outputs:
                continue
            if is_moved or node.kind in (Kind.TIE, Kind.SOURCE, Kind.CAST):
                fresh = [v for v in node.outputs if v is not None and v not in seen]
                seen.update(fresh)
                queue += fresh
            else:
                yield node, use.operand


def _constant_beside(site: Site, node: Node, operand: int) -> float | None:
    """The size of the constant that is the other operand, with its sign."""
    other = site.operand(node, 1 - operand)
    return None if other is None else _folded(site, other, _DEEPEST_FOLD)


def _folded(site: Site, value: int, depth: int) -> float | None:
    """The size of a constant, with its sign, where it is stored or made of constants; inputs are asked before them."""
    facts = site.constant(value)
    if facts is not None:
        return facts.mean if facts.rms is not None else facts.largest
    node = site.producer(value)
    if not depth or not node.inputs:
        return None
    parts = [None if v is None else _folded(site, v, depth - 1) for v in node.inputs[:2]]
    transfer, first, second = site.transfer(node), parts[0], parts[-1]
    if first is None or second is None:
        is_passing = transfer in (Transfer.KEEP, Transfer.MOVE, Transfer.CAST) or node.kind in (Kind.TIE, Kind.SOURCE)
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
    return first if transfer in (Transfer.KEEP, Transfer.MOVE, Transfer.CAST) or node.kind is not Kind.OP else None


_DEEPEST_FOLD = 4


def _reads_as_mask(site: Site, value: int) -> bool:
    """Whether somebody hides places with it: 1 - m, m times 10,000, or m times data that is no constant."""
    dtype = site.graph.values[value].dtype
    is_integer = dtype is not None and integer_span(dtype) is not None
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if transfer is Transfer.SUBTRACT and operand == 1 and _constant_beside(site, node, 1) == 1.0:
            if _leads_to_mask(site, node) or is_integer:
                return True
        elif transfer is Transfer.MULTIPLY:
            beside = _constant_beside(site, node, operand)
            if beside is not None and beside <= -_MASKING:
                return True
            if is_integer and beside is None:
                return True
        elif transfer in (Transfer.SUM, Transfer.RUNNING_SUM) and is_integer and not _is_list(site, value):
            return True
    return False


def _is_list(site: Site, value: int) -> bool:
    """Whether a value has one axis: a mask has one for the batch, too; lengths and counts have not."""
    shape = site.shape(value)
    return shape is not None and len(shape) == 1


def _leads_to_mask(site: Site, node: Node) -> bool:
    value = node.outputs[0]
    if value is None:
        return False
    return any(
        site.transfer(reader) is Transfer.MULTIPLY and abs(_constant_beside(site, reader, operand) or 0.0) >= _MASKING
        for reader, operand in _readers(site, value)
    )


def _becomes_angle(site: Site, value: int) -> bool:
    """Whether it goes into a sine times frequencies, which are constants: a position or a time step."""
    if not _is_flat(site, value):
        return False
    queue, seen = [(value, False)], {value}
    while queue and len(seen) < _FARTHEST_ANGLE:
        at, has_frequencies = queue.pop()
        for node, operand in _readers(site, at):
            transfer = site.transfer(node)
            if transfer in (Transfer.SINE, Transfer.COSINE):
                if has_frequencies:
                    return True
                continue
            if transfer not in _TO_ANGLES:
                continue
            beside = site.constant(site.operand(node, 1 - operand)) if operand < 2 else None
            result = node.outputs[0]
            if result is not None and result not in seen and (beside is not None or transfer is Transfer.JOIN):
                seen.add(result)
                queue.append((result, has_frequencies or (beside is not None and beside.elements >= _FREQUENCIES)))
    return False


# On the way from a position to its angles; fewer factors than this are no table of frequencies.
_TO_ANGLES = frozenset({Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.CONTRACT, Transfer.EINSUM, Transfer.JOIN})
_FREQUENCIES = 3


def _is_flat(site: Site, value: int) -> bool:
    """Whether a value has few axes longer than one, as positions do; features have more."""
    shape = site.shape(value)
    return shape is not None and sum(size != 1 for size in shape) <= 2


def _is_probability(site: Site, value: int) -> bool:
    """Whether it is taken off one, or clipped to what lies between, before a logarithm or a division."""
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if transfer is Transfer.SUBTRACT and operand == 1 and _constant_beside(site, node, 1) == 1.0:
            return True
        if transfer is Transfer.CLIP:
            least, most = _bound(site, node, 1, "min"), _bound(site, node, 2, "max")
            if most is not None and 0.5 < most <= 1.0 and (least is None or least >= 0.0):
                return True
        if _is_log_of_log(site, node):
            return True
    return False


def _bound(site: Site, node: Node, operand: int, attribute: str) -> float | None:
    value = site.operand(node, operand)
    stated = node.attributes.get(attribute) if node.attributes else None
    folded = None if value is None else _folded(site, value, _DEEPEST_FOLD)
    return stated if folded is None and isinstance(stated, float) else folded


def _is_log_of_log(site: Site, node: Node) -> bool:
    """Whether a node is, or adds an epsilon for, a logarithm whose negative goes into another: -log(-log(u))."""
    for _ in range(4):
        value = node.outputs[0]
        readers = [] if value is None else [reader for reader, _ in _readers(site, value)]
        if len(readers) != 1:
            return False
        is_log = site.transfer(node) is Transfer.LOGARITHM
        if is_log and site.transfer(readers[0]) is Transfer.NEGATE:
            following = readers[0].outputs[0]
            after = set() if following is None else {reader.id for reader, _ in _readers(site, following)}
            nodes = [site.graph.nodes[number] for number in sorted(after)]
            return any(_takes_log(site, reader) for reader in nodes)
        if is_log or site.transfer(node) not in _SHIFTING:
            return False
        node = readers[0]
    return False


def _takes_log(site: Site, node: Node) -> bool:
    """Whether a node is a logarithm, or what it gives goes into one."""
    if site.transfer(node) is Transfer.LOGARITHM:
        return True
    value = node.outputs[0] if site.transfer(node) in _GUARDING else None
    return value is not None and any(site.transfer(r) is Transfer.LOGARITHM for r, _ in _readers(site, value))


def _positive_reader(site: Site, value: int) -> Transfer | None:
    """The logarithm or root that reads it, its epsilon between them or not: such an input is never below zero."""
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if transfer in _OF_POSITIVE:
            return transfer
        beside = _constant_beside(site, node, operand) if transfer in _GUARDING and operand < 2 else None
        if beside is not None and transfer is Transfer.SUBTRACT:
            beside = -beside
        if beside is not None and 0.0 < beside < 1e-3 and node.outputs[0] is not None:
            for reader, _ in _readers(site, node.outputs[0]):
                if site.transfer(reader) in _OF_POSITIVE:
                    return site.transfer(reader)
    return None


_SHIFTING = frozenset({Transfer.ADD, Transfer.SUBTRACT})
_GUARDING = _SHIFTING | {Transfer.CLIP, Transfer.MAXIMUM}
_OF_POSITIVE = frozenset({Transfer.LOGARITHM, Transfer.SQUARE_ROOT})


def _prologue(site: Site, value: int) -> tuple[float, float, str]:
    """Mean and scale of an input whose first operators make unit scale of it, and the sentence that says so."""
    factor, offset = 1.0, 0.0  # what was made of the input so far: factor * x + offset
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


def _affine(site: Site, node: Node, operand: int) -> tuple[float, float] | None:
    """Factor and offset of a constant step, per channel on the whole."""
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
    beside = _constant_beside(site, node, operand)
    if beside is None or not beside:
        return None
    if transfer is Transfer.ADD:
        return 1.0, beside
    if transfer is Transfer.SUBTRACT:
        return (1.0, -beside) if operand == 0 else (-1.0, beside)
    if transfer is Transfer.MULTIPLY:
        return beside, 0.0
    if transfer is Transfer.DIVIDE:
        return (1.0 / beside, 0.0) if operand == 0 else None
    return None
