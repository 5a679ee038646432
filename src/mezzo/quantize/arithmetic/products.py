"""What products read, and how their weights lie: rows of numbers that are multiplied by the columns of a matrix."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A product with a matrix, the last axis of the data being summed over; `is_transposed`: so is the weights' last,
    in place of their first.
    """

    is_transposed: bool = False

    def rows(self, data: Floats, most: int) -> Floats:
        """Rows [1, rows, summed] of what is read, evenly spaced ones where there are more than so many."""
        flat = data.reshape(-1, data.shape[-1])
        return flat[None, _spaced(len(flat), most)]

    def columns(self, weights: Array) -> Array:
        """Numbers laid out as the weights are, as [groups, summed, made]."""
        return weights.T[None] if self.is_transposed else weights[None]

    def weights(self, columns: Array, shape: Sequence[int]) -> Array:
        """The reverse of `columns`."""
        return np.ascontiguousarray(columns[0].T if self.is_transposed else columns[0]).reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution: x is [N, C, ...], weights [M, C / groups, ...]. One entry per spatial axis of `window` (how many
    numbers the kernel spans), `strides` and `dilations`; of `pads` those before all, then those behind.
    """

    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def rows(self, data: Floats, most: int) -> Floats:
        """Rows [groups, rows, summed] of what is read, those of evenly spaced places where there are more."""
        axes = len(self.window)
        sides = [(self.pads[axis], self.pads[axes + axis]) for axis in range(axes)]
        padded = np.pad(data, [(0, 0), (0, 0), *sides])
        spans = [(size - 1) * step + 1 for size, step in zip(self.window, self.dilations, strict=True)]
        seen = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, axes + 2)))
        steps = (slice(None, None, step) for step in self.strides)
        taps = (slice(None, None, step) for step in self.dilations)
        seen = np.moveaxis(seen[(slice(None), slice(None), *steps, *taps)], 1, axes + 1)  # N, places, C, taps
        where = np.unravel_index(_spaced(int(np.prod(seen.shape[: axes + 1])), most), seen.shape[: axes + 1])
        taken = seen[where]
        return np.moveaxis(taken.reshape(len(taken), self.groups, -1), 1, 0)

    def columns(self, weights: Array) -> Array:
        """Numbers laid out as the weights are, as [groups, summed, made]."""
        return np.swapaxes(weights.reshape(self.groups, len(weights) // self.groups, -1), 1, 2)

    def weights(self, columns: Array, shape: Sequence[int]) -> Array:
        """The reverse of `columns`."""
        return np.ascontiguousarray(np.swapaxes(columns, 1, 2)).reshape(shape)


Product = Matrix | Convolution


@dataclass(slots=True)
class Moments:
    """Means of products of what is summed, two and two: [groups, blocks, block, block], of rows that are added up.

    More numbers than `block` are cut into blocks of that many, and what two blocks have in common is left out.
    """

    block: int
    most: int
    sums: Floats | None = None
    count: int = 0

    def add(self, rows: Floats) -> None:
        """Add rows [groups, rows, summed]; numbers that are not finite count as zero."""
        rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        groups, count, summed = rows.shape
        blocks = -(-summed // self.block)
        size = -(-summed // blocks)
        parts = np.zeros((groups, blocks, count, size), np.float32)
        for at in range(blocks):
            part = rows[:, :, at * size : (at + 1) * size]
            parts[:, at, :, : part.shape[2]] = part
        found = np.swapaxes(parts, 2, 3) @ parts
        self.sums = found if self.sums is None else self.sums + found
        self.count += count

    @property
    def is_full(self) -> bool:
        """Whether more rows would tell little."""
        return self.count >= self.most


def _spaced(count: int, most: int) -> npt.NDArray[np.intp]:
    """Places of numbers, all or evenly spaced ones."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.intp)
