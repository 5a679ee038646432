"""Integers of a weight in blocks, packed, and the elements that they stand for."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightGrid:
    """Scales and zero points of a weight of shape `shape`, in the shape of its blocks.

    Integers are packed in the weight's order; two of four bits share a byte, the first in its lower
    half. Negative ones are in two's complement.
    """

    storage: BlockStorage
    shape: tuple[int, ...]
    scales: Floats
    zero_points: "npt.NDArray[np.uint8] | None"  # None if symmetric

    def pack(self, elements: Floats, start: int) -> bytes:
        """Pack the integers of elements on the grid, from the weight's element `start` on."""
        scales, zeros = self._of_elements(start, start + elements.size)
        integers = (np.rint(elements / scales).astype(np.int32) + zeros).astype(np.uint8)
        if self.storage.bits == 4:
            halves = np.zeros(integers.size + integers.size % 2, np.uint8)
            halves[: integers.size] = integers & 0xF
            integers = halves[::2] | halves[1::2] << 4
        packed: bytes = integers.tobytes()
        return packed

    def unpack(self, packed: bytes | memoryview, start: int, stop: int) -> Floats:
        """The elements from `start` to `stop`, of their packed integers."""
        integers = np.frombuffer(packed, np.uint8)
        if self.storage.bits == 4:
            integers = np.stack([integers & 0xF, integers >> 4], axis=-1).reshape(-1)
        steps = integers[: stop - start].astype(np.int32)
        if self.storage.is_symmetric:
            steps -= (steps >> (self.storage.bits - 1)) << self.storage.bits
        scales, zeros = self._of_elements(start, stop)
        return (steps - zeros).astype(np.float32) * scales

    def _of_elements(
        self, start: int, stop: int
    ) -> "tuple[Floats, npt.NDArray[np.int32] | np.int32]":
        """Scales and zero points of the elements from `start` to `stop`."""
        axis, block = self.storage.axis, self.storage.block
        length, inner = self.shape[axis], math.prod(self.shape[axis + 1 :])
        lines, within = np.divmod(np.arange(start, stop), inner)
        outer, place = np.divmod(lines, length)
        blocks = (outer * -(-length // block) + place // block) * inner + within
        scales = self.scales.reshape(-1)[blocks]
        if self.zero_points is None:
            return scales, np.int32(0)
        return scales, self.zero_points.reshape(-1)[blocks].astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridElements:
    """A weight's elements, dequantized as they are read. `packed`: reads bytes of its packed
    integers, from one to another.
    """

    grid: WeightGrid
    packed: Callable[[int, int], bytes | memoryview]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.shape

    @property
    def size(self) -> int:
        return math.prod(self.grid.shape)

    def read(self, start: int, stop: int) -> Floats:
        """The elements from `start`, which is even, to `stop`, flat."""
        bits = self.grid.storage.bits
        packed = self.packed(start * bits // 8, -(-stop * bits // 8))
        return self.grid.unpack(packed, start, stop)
