"""Patterns of the first operators that read a graph input: a mask, an angle, a probability, or a
normalization to unit scale.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping

from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# A factor from this magnitude on turns 0 and 1 into an attention mask.
_MASKING = 1e3
# A subtracted offset of this many standard deviations is taken for the input's mean.
OFFSET = 3.0
_LONGEST_PROLOGUE = 8
# Divisors in this range normalize pixels or audio samples; smaller ones are ordinary gains.
_CONVERTED = 50.0, 1e5
_FARTHEST_ANGLE = 12
_DEEPEST_FOLD = 4
_MOVING = frozenset({Transfer.MOVE, Transfer.KEEP, Transfer.CAST})
_SHIFTING = frozenset({Transfer.ADD, Transfer.SUBTRACT})
_GUARDING = _SHIFTING | {Transfer.CLIP, Transfer.MAXIMUM}
_OF_POSITIVE = frozenset({Transfer.LOGARITHM, Transfer.SQUARE_ROOT})
# Laws between a position and its angles, and the minimum size of a table of frequencies.
_TO_ANGLES = frozenset(
    {Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.CONTRACT, Transfer.EINSUM, Transfer.JOIN}
)
_FREQUENCIES = 3


def _readers(site: EstimatedGraph, value: int | None) -> Iterator[tuple[Node, int]]:
    """Readers of a value through data movement and casts: node and operand index."""
    queue = [] if value is None else [value]
    visited = set(queue)
    while queue and len(visited) < 64:
        for use in site.graph.uses[queue.pop()]:
            node = site.graph.nodes[use.node]
            is_moved = site.transfer(node) in _MOVING and use.operand == 0
            if node.kind is Kind.OUTPUT or not node.outputs:
                continue
            if is_moved or node.kind in (Kind.TIE, Kind.SOURCE, Kind.CAST):
                fresh = [v for v in node.present_outputs if v not in visited]
                visited.update(fresh)
                queue += fresh
            else:
                yield node, use.operand


def _other_constant(site: EstimatedGraph, node: Node, operand: int) -> float | None:
    """The signed size of the other operand, if constant; else None."""
    return _folded(site, node.operand(1 - operand))


_FOLDS: Mapping[Transfer | None, Callable[[float, float], float | None]] = {
    Transfer.MULTIPLY: operator.mul,
    Transfer.ADD: operator.add,
    Transfer.SUBTRACT: operator.sub,
    Transfer.DIVIDE: lambda first, second: first / second if second else None,
    Transfer.NEGATE: lambda first, _: -first,
    Transfer.RECIPROCAL: lambda first, _: 1.0 / first if first else None,
}


def _folded(site: EstimatedGraph, value: int | None, depth: int = _DEEPEST_FOLD) -> float | None:
    """The signed size of a value that is constant or computed from constants; else None. Needed
    because inputs are assumed before constants are propagated.
    """
    if value is None:
        return None
    facts = site.constant(value)
    if facts is not None:
        return facts.mean if facts.rms is not None else facts.largest
    node = site.producer(value)
    if not depth or not node.inputs:
        return None
    parts = [_folded(site, operand, depth - 1) for operand in node.inputs[:2]]
    transfer, first, second = site.transfer(node), parts[0], parts[-1]
    fold = _FOLDS.get(transfer)
    if fold is not None:
        return None if first is None or second is None else fold(first, second)
    return first if transfer in _MOVING or node.kind is not Kind.OP else None


def reads_as_mask(site: EstimatedGraph, value: int) -> bool:
    """Whether a reader uses the input as a mask: 1 - m, m times 10,000, or m times non-constant
    data.
    """
    is_integer = site.integer_span(value) is not None
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if _is_complement(site, node, operand):
            if _leads_to_mask(site, node) or is_integer:
                return True
        elif transfer is Transfer.MULTIPLY:
            factor = _other_constant(site, node, operand)
            is_mask = is_integer if factor is None else factor <= -_MASKING
            if is_mask:
                return True
        elif transfer in (Transfer.SUM, Transfer.RUNNING_SUM) and is_integer:
            # Lengths and counts have one axis; a mask also has a batch axis.
            shape = site.shape(value)
            if shape is None or len(shape) != 1:
                return True
    return False


def _is_complement(site: EstimatedGraph, node: Node, operand: int) -> bool:
    """Whether a node subtracts an operand from one."""
    is_subtrahend = site.transfer(node) is Transfer.SUBTRACT and operand == 1
    return is_subtrahend and _other_constant(site, node, 1) == 1.0


def _leads_to_mask(site: EstimatedGraph, node: Node) -> bool:
    return any(
        site.transfer(reader) is Transfer.MULTIPLY
        and abs(_other_constant(site, reader, operand) or 0.0) >= _MASKING
        for reader, operand in _readers(site, node.outputs[0])
    )


def becomes_angle(site: EstimatedGraph, value: int) -> bool:
    """Whether the input is a position or a time step: multiplied by constant frequencies and read
    by a sine. At most two of its axes are longer than 1; features have more.
    """
    shape = site.shape(value)
    if shape is None or sum(size != 1 for size in shape) > 2:
        return False
    queue, visited = [(value, False)], {value}
    while queue and len(visited) < _FARTHEST_ANGLE:
        at, has_frequencies = queue.pop()
        for node, operand in _readers(site, at):
            transfer, result = site.transfer(node), node.outputs[0]
            if transfer in (Transfer.SINE, Transfer.COSINE) and has_frequencies:
                return True
            if transfer not in _TO_ANGLES or result is None or result in visited:
                continue
            factor = site.constant(node.operand(1 - operand)) if operand < 2 else None
            if factor is not None or transfer is Transfer.JOIN:
                visited.add(result)
                is_table = factor is not None and factor.elements >= _FREQUENCIES
                queue.append((result, has_frequencies or is_table))
    return False


def is_probability(site: EstimatedGraph, value: int) -> bool:
    """Whether the input is a probability: subtracted from one, or clipped to [0, 1]."""
    for node, operand in _readers(site, value):
        if _is_complement(site, node, operand) or _is_log_of_log(site, node):
            return True
        if site.transfer(node) is Transfer.CLIP:
            least, most = _bound(site, node, 1, "min"), _bound(site, node, 2, "max")
            if most is not None and 0.5 < most <= 1.0 and (least is None or least >= 0.0):
                return True
    return False


def _bound(site: EstimatedGraph, node: Node, operand: int, attribute: str) -> float | None:
    folded = _folded(site, node.operand(operand))
    return node.float_attribute(attribute) if folded is None else folded


def _is_log_of_log(site: EstimatedGraph, node: Node) -> bool:
    """Whether a node starts the Gumbel noise pattern -log(-log(u)), with or without an epsilon."""
    for _ in range(4):
        readers = [reader for reader, _ in _readers(site, node.outputs[0])]
        if len(readers) != 1:
            return False
        is_log = site.transfer(node) is Transfer.LOGARITHM
        if is_log and site.transfer(readers[0]) is Transfer.NEGATE:
            return any(_takes_log(site, r) for r, _ in _readers(site, readers[0].outputs[0]))
        if is_log or site.transfer(node) not in _SHIFTING:
            return False
        node = readers[0]
    return False


def _takes_log(site: EstimatedGraph, node: Node) -> bool:
    """Whether a node is a logarithm, or an epsilon or clip before one."""
    if site.transfer(node) is Transfer.LOGARITHM:
        return True
    return site.transfer(node) in _GUARDING and any(
        site.transfer(reader) is Transfer.LOGARITHM for reader, _ in _readers(site, node.outputs[0])
    )


def positive_reader(site: EstimatedGraph, value: int) -> Transfer | None:
    """The logarithm or square root that reads the input, directly or after an epsilon; the input is
    then nonnegative.
    """
    for node, operand in _readers(site, value):
        transfer = site.transfer(node)
        if transfer in _OF_POSITIVE:
            return transfer
        is_guard = transfer in _GUARDING and operand < 2
        epsilon = _other_constant(site, node, operand) if is_guard else None
        if epsilon is not None and transfer is Transfer.SUBTRACT:
            epsilon = -epsilon
        if epsilon is not None and 0.0 < epsilon < 1e-3:
            for reader, _ in _readers(site, node.outputs[0]):
                if site.transfer(reader) in _OF_POSITIVE:
                    return site.transfer(reader)
    return None


def normalization_of(site: EstimatedGraph, value: int) -> tuple[float, float, str]:
    """Mean and scale of an input that the first operators normalize to unit scale, and the reason
    as text; (0, 1, empty) if they do not.
    """
    factor, offset = 1.0, 0.0  # affine map so far: factor * x + offset
    last: Node | None = None
    at: int | None = value
    for _ in range(_LONGEST_PROLOGUE):
        readers = list(_readers(site, at))
        if len(readers) != 1 or readers[0][0].outputs[0] is None:
            break
        node, operand = readers[0]
        step = _affine(site, node, operand)
        if step is None or site.graph.scopes[node.scope].repeats > 1:
            break
        factor, offset = factor * step[0], offset * step[0] + step[1]
        last, at = node, node.outputs[0]
        if site.transfer(node) is Transfer.GIVEN_STATISTICS:
            break
    if last is None or not factor:
        return 0.0, 1.0, ""
    mean, scale = -offset / factor, 1.0 / abs(factor)
    size = abs(mean) if site.transfer(last) is Transfer.GIVEN_STATISTICS else mean
    takes_off = size > OFFSET * scale
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
        mean, variance = site.constant(node.inputs[3]), site.constant(node.inputs[4])
        if mean is None or variance is None or mean.rms is None or variance.rms is None:
            return None
        scale = 1.0 / math.sqrt(max(variance.mean, 0.0) + 1e-5)
        return scale, -mean.mean * scale
    constant = _other_constant(site, node, operand)
    if not constant:
        return None
    if transfer is Transfer.ADD:
        return 1.0, constant
    if transfer is Transfer.SUBTRACT:
        return (1.0, -constant) if operand == 0 else (-1.0, constant)
    if transfer is Transfer.MULTIPLY:
        return constant, 0.0
    if transfer is Transfer.DIVIDE and operand == 0:
        return 1.0 / constant, 0.0
    return None
