"""Random inputs that fit a model: lengths of open axes, indices inside tables, masks of ones,
plausible floats.
"""

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mezzo.analysis.estimates.inputs import Assumption
from mezzo.analysis.estimates.moments import INTEGER, POSITIVE, SIGMA, UNIT
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType, integer_span, size_bits
from mezzo.ir.input_roles import Length, Part, Slot

# Limit on the size of one batch.
MOST_BYTES = 1 << 28
_ABOVE_ZERO = 1e-2  # of the standard deviation: operands of a logarithm or root are not zero
_LIST = 2  # tensors in a list
_MOST_WHOLE = 4  # limit for integers without known bounds: lengths, counts, codes
_WORDS = ("alpha", "beta", "gamma", "delta")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Div: operator.floordiv,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisLengths:
    """Lengths of open axes. `picture`: height and width; `past`: that of a key-value cache."""

    batch: int = 4
    sequence: int = 16
    picture: int = 64
    past: int = 0
    channels: int = 3

    def choose(self, slot: Slot, axis: int, name: str | None) -> int:
        """The length of an open axis of an input."""
        rank = len(slot.lengths or ())
        if name is not None and ("past" in name.lower() or "cache" in name.lower()):
            return self.past
        if axis == 0:
            return self.batch
        if slot.dtype is not None and integer_span(slot.dtype) is None and rank >= 4:
            return self.channels if axis == 1 else self.picture
        return self.sequence


# Tried in this order until the model runs. The last ones are for models with an open axis that were
# traced with one fixed length of it.
LADDER = (
    AxisLengths(),
    AxisLengths(batch=1),
    AxisLengths(sequence=1),
    AxisLengths(batch=1, sequence=128, picture=224),
    AxisLengths(batch=2, sequence=16, picture=32, past=16),
    AxisLengths(channels=1),
    AxisLengths(batch=1, sequence=16_000, picture=256),
    *(
        AxisLengths(sequence=length)
        for length in (*range(2, 65), 77, 100, 197, 224, 256, 384, 512, 1500, 3000)
    ),
    *(AxisLengths(batch=1, sequence=length) for length in range(2, 65)),
    *(
        AxisLengths(batch=1, picture=size)
        for size in (28, 96, 112, 128, 160, 192, 227, 299, 384, 416, 512, 640)
    ),
)


def choose_lengths(slots: Sequence[Slot], sizes: AxisLengths) -> dict[str, tuple[int, ...]]:
    """The shape of each input. A symbolic name has one length everywhere, taken from inputs of the
    same rank that fix that axis where there are any.
    """
    named: dict[str, int] = {}
    for slot in slots:
        for axis, length in enumerate(slot.lengths or ()):
            if isinstance(length, str) and length.isidentifier():
                fixed = _fixed_beside(slots, slot, axis)
                named.setdefault(
                    length, sizes.choose(slot, axis, length) if fixed is None else fixed
                )
    shapes = {}
    for slot in slots:
        lengths = slot.lengths if slot.lengths is not None else (None, None)
        shapes[slot.name] = tuple(
            _length(slots, slot, axis, each, named, sizes) for axis, each in enumerate(lengths)
        )
    return shapes


def _length(
    slots: Sequence[Slot],
    slot: Slot,
    axis: int,
    length: Length,
    named: Mapping[str, int],
    sizes: AxisLengths,
) -> int:
    if isinstance(length, int):
        return length
    chosen = None if length is None else named.get(length, _evaluate(length, named, sizes))
    if chosen is None:
        chosen = _fixed_beside(slots, slot, axis)
    return max(0, sizes.choose(slot, axis, length) if chosen is None else chosen)


def _fixed_beside(slots: Sequence[Slot], slot: Slot, axis: int) -> int | None:
    """The length that all other inputs which fix this axis agree on: any input for axis 0, else
    those of equal rank.
    """
    fixed = {
        lengths[axis]
        for other in slots
        if other is not slot and other.part not in (Part.SIZE, Part.SWITCH)
        if (lengths := other.lengths) is not None and axis < len(lengths)
        if (axis == 0 or len(lengths) == len(slot.lengths or ())) and isinstance(lengths[axis], int)
    }
    only = next(iter(fixed)) if len(fixed) == 1 else None
    return only if isinstance(only, int) and only > 0 else None


def _evaluate(text: str, named: Mapping[str, int], sizes: AxisLengths) -> int | None:
    """A length given as arithmetic on others, such as "past_length + 1"; None otherwise."""
    try:
        return _value(ast.parse(text, mode="eval").body, named, sizes)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, named: Mapping[str, int], sizes: AxisLengths) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            slot = Slot(name=name, dtype=DType.INT64, lengths=(None, None))
            return named[name] if name in named else sizes.choose(slot, 1, name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, named, sizes), _value(right, named, sizes))
    raise ValueError("no sum or product")


def check_size(model: str, slots: Sequence[Slot], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises InputError: one batch would take more than `MOST_BYTES`."""
    for slot in slots:
        size = math.prod(shapes[slot.name]) * size_bits(slot.dtype or DType.FLOAT32) // 8
        if size > MOST_BYTES:
            raise InputError(
                f"input {slot.name!r} of {model} is {'x'.join(map(str, shapes[slot.name]))},"
                f" {size / 1e6:.0f} MB at random, more than {MOST_BYTES / 1e6:.0f}; give data of"
                " your own"
            )


def draw_batch(
    slots: Sequence[Slot],
    shapes: Mapping[str, tuple[int, ...]],
    assumptions: Mapping[str, Assumption],
    generator: np.random.Generator,
    *,
    is_timid: bool = False,
) -> dict[str, Any]:
    """Draw one batch. `is_timid`: integers are all 0, for models that fail on others."""
    named = dict(_named(slots, shapes))
    feeds: dict[str, Any] = {}
    for slot in slots:
        every = [
            _draw(
                slot,
                shapes[slot.name],
                assumptions.get(slot.name),
                named,
                generator,
                is_timid=is_timid,
            )
            for _ in range(_LIST if slot.is_list else 1)
        ]
        feeds[slot.name] = every if slot.is_list else every[0]
    return feeds


def _named(
    slots: Sequence[Slot], shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, int]]:
    for slot in slots:
        for length, chosen in zip(slot.lengths or (), shapes[slot.name], strict=False):
            if isinstance(length, str):
                yield length, chosen


def _draw(
    slot: Slot,
    shape: tuple[int, ...],
    assumption: Assumption | None,
    named: Mapping[str, int],
    generator: np.random.Generator,
    *,
    is_timid: bool,
) -> Any:
    """Draw one tensor of an input, by the input's role."""
    if slot.dtype is DType.STRING:
        return generator.choice(np.array(_WORDS, object), shape)
    match slot.part:
        case Part.MASK:
            return np.ones(shape, bool if slot.dtype is DType.BOOL else np.int64)
        case Part.SIZE:
            return np.ones(shape, np.int64)
        case Part.SWITCH:
            return np.zeros(shape, bool)
        case Part.INDEX:
            below = named.get(slot.below, 1) if isinstance(slot.below, str) else slot.below or 1
            return generator.integers(0, 1 if is_timid else max(below, 1), shape)
        case Part.DATA:
            pass
    span = None if slot.dtype is None else integer_span(slot.dtype)
    if span is not None:
        return _draw_whole(span, shape, assumption, generator, is_timid=is_timid)
    return _draw_floats(shape, assumption, generator)


def _draw_whole(
    span: tuple[int, int], shape: tuple[int, ...], assumption: Assumption | None,
    generator: np.random.Generator, *, is_timid: bool,
) -> Any:  # fmt: skip
    """Narrow integers cover their full range, as pixels do; wide ones stay small."""
    if is_timid:
        return np.zeros(shape, np.int64)
    if span[1] - span[0] < 1 << 16:
        return generator.integers(span[0], span[1] + 1, shape)
    moments = None if assumption is None else assumption.estimate
    # Timestamps or coordinates, whose offset the model subtracts.
    if moments is not None and moments.low > _MOST_WHOLE:
        return np.rint(
            np.clip(generator.normal(moments.mean, moments.std, shape), moments.low, moments.high)
        ).astype(np.int64)
    return generator.integers(1, _MOST_WHOLE + 1, shape)


def _draw_floats(
    shape: tuple[int, ...], assumption: Assumption | None, generator: np.random.Generator
) -> Any:
    """Normal with the mean and deviation that an input is assumed to have, clipped to its range;
    standard normal if nothing is known.
    """
    if assumption is None or not math.isfinite(assumption.estimate.low + assumption.estimate.high):
        return generator.standard_normal(shape).clip(-SIGMA, SIGMA).astype(np.float32)
    moments = assumption.estimate
    if moments.flags & UNIT and moments.flags & INTEGER:  # a mask stored as floats
        return np.ones(shape, np.float32)
    if moments.flags & INTEGER:  # positions, time steps
        return generator.integers(
            int(moments.low), int(min(moments.high, moments.low + 1000)) + 1, shape
        ).astype(np.float32)
    if moments.flags & UNIT:
        return generator.uniform(max(moments.low, 0.01), min(moments.high, 0.99), shape).astype(
            np.float32
        )
    std = moments.std if math.isfinite(moments.std) and moments.std else 1.0
    low = moments.low if moments.low or not moments.flags & POSITIVE else _ABOVE_ZERO * std
    return generator.normal(moments.mean, std, shape).clip(low, moments.high).astype(np.float32)
