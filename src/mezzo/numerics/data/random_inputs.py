"""Inputs drawn at random that fit a model: lengths of open axes, ids inside tables, masks of ones, plausible floats."""

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

# What one batch may take.
MOST_BYTES = 1 << 28
_ABOVE_ZERO = 1e-2  # of the spread: what a logarithm or a root reads is not zero
_LIST = 2  # tensors in a list
_MOST_WHOLE = 4  # of numbers that nobody bounds: lengths, counts, codes
_WORDS = ("alpha", "beta", "gamma", "delta")
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How long open axes are: of samples, of sequences, of pictures; `past` of what was cached before."""

    batch: int = 4
    sequence: int = 16
    picture: int = 64
    past: int = 0
    channels: int = 3

    def choose(self, slot: Slot, axis: int, name: str | None) -> int:
        """How long an open axis of a slot is."""
        rank = len(slot.lengths or ())
        if name is not None and ("past" in name.lower() or "cache" in name.lower()):
            return self.past
        if axis == 0:
            return self.batch
        if slot.dtype is not None and integer_span(slot.dtype) is None and rank >= 4:
            return self.channels if axis == 1 else self.picture
        return self.sequence


# Tried one after the other until the model runs. The last ones are for models that name an axis open and were traced
# with one length of it.
LADDER = (
    Sizes(),
    Sizes(batch=1),
    Sizes(sequence=1),
    Sizes(batch=1, sequence=128, picture=224),
    Sizes(batch=2, sequence=16, picture=32, past=16),
    Sizes(channels=1),
    Sizes(batch=1, sequence=16_000, picture=256),
    *(Sizes(sequence=length) for length in (*range(2, 65), 77, 100, 197, 224, 256, 384, 512, 1500, 3000)),
    *(Sizes(batch=1, sequence=length) for length in range(2, 65)),
    *(Sizes(batch=1, picture=size) for size in (28, 96, 112, 128, 160, 192, 227, 299, 384, 416, 512, 640)),
)


def choose_lengths(slots: Sequence[Slot], sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The shape of each input. A name has one length wherever it stands; where other inputs fix an axis that one of the
    same rank leaves open, it is as long there.
    """
    named: dict[str, int] = {}
    for slot in slots:
        for axis, length in enumerate(slot.lengths or ()):
            if isinstance(length, str) and length.isidentifier():
                fixed = _fixed_beside(slots, slot, axis)
                named.setdefault(length, sizes.choose(slot, axis, length) if fixed is None else fixed)
    shapes = {}
    for slot in slots:
        lengths = slot.lengths if slot.lengths is not None else (None, None)
        shapes[slot.name] = tuple(_length(slots, slot, axis, each, named, sizes) for axis, each in enumerate(lengths))
    return shapes


def _length(
    slots: Sequence[Slot], slot: Slot, axis: int, length: Length, named: Mapping[str, int], sizes: Sizes
) -> int:
    if isinstance(length, int):
        return length
    known = None if length is None else named.get(length, _evaluate(length, named, sizes))
    if known is None:
        known = _fixed_beside(slots, slot, axis)
    return max(0, sizes.choose(slot, axis, length) if known is None else known)


def _fixed_beside(slots: Sequence[Slot], slot: Slot, axis: int) -> int | None:
    """The length that all other inputs which fix it agree on: of the first axis, or of one in inputs of that rank."""
    found = {
        lengths[axis]
        for other in slots
        if other is not slot and other.part not in (Part.SIZE, Part.SWITCH)
        if (lengths := other.lengths) is not None and axis < len(lengths)
        if (axis == 0 or len(lengths) == len(slot.lengths or ())) and isinstance(lengths[axis], int)
    }
    only = next(iter(found)) if len(found) == 1 else None
    return only if isinstance(only, int) and only > 0 else None


def _evaluate(text: str, named: Mapping[str, int], sizes: Sizes) -> int | None:
    """A length that is sums and products of others: "past_length + 1". None where it is something else."""
    try:
        return _value(ast.parse(text, mode="eval").body, named, sizes)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.expr, named: Mapping[str, int], sizes: Sizes) -> int:
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
                f"input {slot.name!r} of {model} is {'x'.join(map(str, shapes[slot.name]))}, {size / 1e6:.0f} MB at "
                f"random, more than {MOST_BYTES / 1e6:.0f}; give data of your own"
            )


def draw_batch(
    slots: Sequence[Slot],
    shapes: Mapping[str, tuple[int, ...]],
    assumptions: Mapping[str, Assumption],
    generator: np.random.Generator,
    *,
    is_timid: bool = False,
) -> dict[str, Any]:
    """Draw one batch. `is_timid` draws whole numbers of nothing but 0, where others did not fit."""
    named = dict(_named(slots, shapes))
    feeds: dict[str, Any] = {}
    for slot in slots:
        every = [
            _draw(slot, shapes[slot.name], assumptions.get(slot.name), named, generator, is_timid=is_timid)
            for _ in range(_LIST if slot.is_list else 1)
        ]
        feeds[slot.name] = every if slot.is_list else every[0]
    return feeds


def _named(slots: Sequence[Slot], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, int]]:
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
    span: tuple[int, int], shape: tuple[int, ...], assumption: Assumption | None, generator: np.random.Generator,
    *, is_timid: bool,
) -> Any:  # fmt: skip
    """Narrow integers are pixels or quantized data, all there are; of wide ones nobody says how large they may be."""
    if is_timid:
        return np.zeros(shape, np.int64)
    if span[1] - span[0] < 1 << 16:
        return generator.integers(span[0], span[1] + 1, shape)
    held = None if assumption is None else assumption.held
    if held is not None and held.low > _MOST_WHOLE:  # time stamps, coordinates: what the model takes an offset off
        return np.rint(np.clip(generator.normal(held.mean, held.std, shape), held.low, held.high)).astype(np.int64)
    return generator.integers(1, _MOST_WHOLE + 1, shape)


def _draw_floats(shape: tuple[int, ...], assumption: Assumption | None, generator: np.random.Generator) -> Any:
    """Normal around what an input is taken to hold, within its ends; of unit scale where nothing is known."""
    if assumption is None or not math.isfinite(assumption.held.low + assumption.held.high):
        return generator.standard_normal(shape).clip(-SIGMA, SIGMA).astype(np.float32)
    held = assumption.held
    if held.flags & UNIT and held.flags & INTEGER:  # a mask that comes in as floats
        return np.ones(shape, np.float32)
    if held.flags & INTEGER:  # positions, time steps
        return generator.integers(int(held.low), int(min(held.high, held.low + 1000)) + 1, shape).astype(np.float32)
    if held.flags & UNIT:
        return generator.uniform(max(held.low, 0.01), min(held.high, 0.99), shape).astype(np.float32)
    std = held.std if math.isfinite(held.std) and held.std else 1.0
    low = held.low if held.low or not held.flags & POSITIVE else _ABOVE_ZERO * std
    return generator.normal(held.mean, std, shape).clip(low, held.high).astype(np.float32)
