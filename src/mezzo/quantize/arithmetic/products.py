"""Layouts of matmuls and convolutions as plain matrix products: rows of inputs times columns of
weights (im2col).
"""

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
    """A matmul over the last axis of its input; `is_transposed`: weights are [outputs, inputs]."""

    is_transposed: bool = False

    def rows(self, data: Floats, most: int) -> Floats:
        """Input rows as [1, rows, inputs]; evenly spaced ones if there are more than `most`."""
        flat = data.reshape(-1, data.shape[-1])
        return flat[None, _spaced(len(flat), most)]

    def columns(self, weights: Array) -> Array:
        """An array laid out like the weights, as [groups, inputs, outputs]."""
        return weights.T[None] if self.is_transposed else weights[None]

    def weights(self, columns: Array, shape: Sequence[int]) -> Array:
        """The inverse of `columns`."""
        return np.ascontiguousarray(columns[0].T if self.is_transposed else columns[0]).reshape(
            shape
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution: x is [N, C, ...], weights [M, C / groups, ...]. `window` (kernel size),
    `strides` and `dilations` have one entry per spatial axis; `pads`: all leading ones, then all
    trailing.
    """

    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1

    def rows(self, data: Floats, most: int) -> Floats:
        """Input windows as [groups, rows, inputs]; those at evenly spaced positions if there are
        more than `most`.
        """
        axes = len(self.window)
        sides = [(self.pads[axis], self.pads[axes + axis]) for axis in range(axes)]
        padded = np.pad(data, [(0, 0), (0, 0), *sides])
        spans = [
            (size - 1) * step + 1 for size, step in zip(self.window, self.dilations, strict=True)
        ]
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, axes + 2)))
        steps = (slice(None, None, step) for step in self.strides)
        taps = (slice(None, None, step) for step in self.dilations)
        # N, positions, C, taps.
        windows = np.moveaxis(windows[(slice(None), slice(None), *steps, *taps)], 1, axes + 1)
        where = np.unravel_index(
            _spaced(int(np.prod(windows.shape[: axes + 1])), most), windows.shape[: axes + 1]
        )
        rows = windows[where]
        return np.moveaxis(rows.reshape(len(rows), self.groups, -1), 1, 0)

    def columns(self, weights: Array) -> Array:
        """An array laid out like the weights, as [groups, inputs, outputs]."""
        return np.swapaxes(weights.reshape(self.groups, len(weights) // self.groups, -1), 1, 2)

    def weights(self, columns: Array, shape: Sequence[int]) -> Array:
        """The inverse of `columns`."""
        return np.ascontiguousarray(np.swapaxes(columns, 1, 2)).reshape(shape)


Product = Matrix | Convolution


@dataclass(slots=True)
class InputMoments:
    """Second moments of a layer's inputs, accumulated over rows: [groups, blocks, block, block].

    More inputs than `block` are split into blocks, and moments across blocks are omitted.
    """

    block: int
    most: int
    sums: Floats | None = None
    count: int = 0

    def add(self, rows: Floats) -> None:
        """Add rows [groups, rows, inputs]; non-finite elements count as zero."""
        rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        groups, count, summed = rows.shape
        blocks = -(-summed // self.block)
        size = -(-summed // blocks)
        parts = np.zeros((groups, blocks, count, size), np.float32)
        for at in range(blocks):
            part = rows[:, :, at * size : (at + 1) * size]
            parts[:, at, :, : part.shape[2]] = part
        sums = np.swapaxes(parts, 2, 3) @ parts
        self.sums = sums if self.sums is None else self.sums + sums
        self.count += count

    @property
    def is_full(self) -> bool:
        """Whether enough rows were added."""
        return self.count >= self.most


def _spaced(count: int, most: int) -> npt.NDArray[np.intp]:
    """All indices, or `most` evenly spaced ones."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.intp)
