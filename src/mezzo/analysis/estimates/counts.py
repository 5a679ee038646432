"""Constant folding of integer values computed from shapes and constants: sizes, axes, trip counts.

Each entry is an integer, or None if unknown: a shape with one symbolic dimension is otherwise
known.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from mezzo.analysis.estimates.moments import INTEGER, POSITIVE, Moments, moments
from mezzo.analysis.estimates.shapes import part_of_shape, product_of
from mezzo.analysis.estimates.site import Entries, EstimatedGraph
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node

# Dtypes of the values that are folded.
COUNTING = frozenset({DType.INT64, DType.INT32, DType.BOOL})
# Longer values are data and not folded.
_LONGEST = 16
# Larger numbers are not counts: INT64_MAX means "to the end" in Slice.
_LARGEST = 1 << 40

Operands = Sequence[Entries | None]
Rule = Callable[[EstimatedGraph, Node, Operands], Entries | None]


def note_entries(site: EstimatedGraph, node: Node) -> None:
    """Fold a node's first output from shapes and constants, and record its entries and estimate."""
    result, rule = node.outputs[0], _RULES.get(node.signature.op)
    if result is None or rule is None:
        return
    shape = site.shape(result)
    if shape is None or len(shape) > 1:
        return
    try:
        entries = rule(site, node, [site.entries(value) for value in node.inputs])
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # inconsistent models
        return
    length = shape[0] if shape else 1
    if entries is None or len(entries) > _LONGEST or length not in (None, len(entries)):
        return
    site.note_entries(result, entries)
    numbers = [entry for entry in entries if entry is not None]
    if numbers and len(numbers) == len(entries):
        site.estimates[result] = of_integers(numbers)


def of_integers(numbers: Sequence[int]) -> Moments:
    """The estimate of known integers."""
    middle = sum(numbers) / len(numbers)
    std = math.sqrt(sum((n - middle) ** 2 for n in numbers) / len(numbers))
    flags = INTEGER | (POSITIVE if min(numbers) >= 0 else 0)
    return moments(middle, std, float(min(numbers)), float(max(numbers)), flags)


def _shape(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    shape = site.shape(node.inputs[0])
    return None if shape is None else part_of_shape(node, shape)


def _size(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    shape = site.shape(node.inputs[0])
    return None if shape is None else (product_of(shape),)


def _same(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    return operands[0]


def _concat(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    parts: list[int | None] = []
    for value, entries in zip(node.inputs, operands, strict=True):
        length = site.length(value, 0)
        if entries is None and (length is None or length > _LONGEST):
            return None
        parts += (None,) * (length or 0) if entries is None else entries
    return tuple(parts)


def _gather(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    data, places = operands
    if data is None or places is None:
        return None
    return tuple(None if place is None else data[place] for place in places)


def _slice(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    data = operands[0]
    bounds: list[int | None] = []
    for name, index in (("starts", 1), ("ends", 2), ("steps", 4)):
        stated = node.attributes.get(name)
        if index < len(operands):
            entries = operands[index]
        else:
            entries = stated if isinstance(stated, tuple) else (1,)
        if entries is None or len(entries) != 1 or entries[0] is None:
            return None
        bounds.append(entries[0])
    return None if data is None else data[slice(*bounds)]


def _expand(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    data, shape = operands
    if data is None or shape is None or len(shape) != 1 or shape[0] is None or shape[0] > _LONGEST:
        return None
    return data * shape[0] if len(data) == 1 else data if shape[0] in (1, len(data)) else None


def _range(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    start, limit, step = [None if entries is None else entries[0] for entries in operands]
    if start is None or limit is None or not step or abs(limit - start) > _LONGEST * abs(step):
        return None
    return tuple(range(start, limit, step))


def _select(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
    condition, first, second = operands
    if condition is None or first is None or second is None:
        return None
    rows = _aligned([condition, first, second])
    return None if rows is None else tuple(None if c is None else a if c else b for c, a, b in rows)


def _elementwise(f: Callable[..., int]) -> Rule:
    def rule(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
        present = [entries for entries in operands if entries is not None]
        rows = _aligned(present) if len(present) == len(operands) else None
        return None if rows is None else tuple(_worked_out(f, row) for row in rows)

    return rule


def _worked_out(f: Callable[..., int], row: Sequence[int | None]) -> int | None:
    number = None if None in row else f(*row)
    return None if number is None or abs(number) >= _LARGEST else number


def _aligned(operands: Sequence[Entries]) -> list[tuple[int | None, ...]] | None:
    """Rows of corresponding entries; a single entry is broadcast."""
    length = max(map(len, operands))
    if any(len(entries) not in (1, length) for entries in operands):
        return None
    columns = (entries * length if len(entries) == 1 else entries for entries in operands)
    return list(zip(*columns, strict=True))


def _reduced(f: Callable[[Sequence[int]], int]) -> Rule:
    def rule(site: EstimatedGraph, node: Node, operands: Operands) -> Entries | None:
        entries = operands[0]
        numbers = [entry for entry in entries or () if entry is not None]
        return None if entries is None or len(numbers) < len(entries) else (f(numbers),)

    return rule


def _quotient(a: int, b: int) -> int:
    """Integer division that truncates towards zero, as in ONNX."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_RULES: Mapping[str, Rule] = {
    "Abs": _elementwise(abs), "Add": _elementwise(operator.add), "Cast": _same, "Concat": _concat,
    "Div": _elementwise(_quotient), "Equal": _elementwise(operator.eq), "Expand": _expand,
    "Flatten": _same, "Gather": _gather, "Identity": _same, "Max": _elementwise(max),
    "Min": _elementwise(min), "Mul": _elementwise(operator.mul), "Neg": _elementwise(operator.neg),
    "Range": _range, "ReduceMax": _reduced(max), "ReduceMin": _reduced(min),
    "ReduceProd": _reduced(math.prod), "ReduceSum": _reduced(sum), "Reshape": _same,
    "Shape": _shape, "Size": _size, "Slice": _slice, "Squeeze": _same,
    "Sub": _elementwise(operator.sub), "Unsqueeze": _same, "Where": _select,
}  # fmt: skip
