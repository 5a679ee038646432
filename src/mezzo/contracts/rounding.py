"""Rounding contract: blocks of a weight in, low-bit integers with scales and zero points out."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mezzo.formats.block_storage import BlockStorage
    from mezzo.formats.rounding import Floats

    Integers = npt.NDArray[np.int32]


class RoundedBlocks(NamedTuple):
    """Integers of shape [blocks, elements]; scales, FP32 numbers that the storage's `scale_dtype`
    holds exactly, and zero points, of shape [blocks].
    """

    integers: "Integers"
    scales: "Floats"
    zero_points: "Integers"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedWeights:
    """Weights that a plan's search has rounded on data: the content of a file of them.

    `where`: names it in messages; `content`: what it holds, which has this SHA-256. It raises
    InputError: the file is missing or has changed.
    """

    sha256: str
    where: str = field(compare=False)
    content: Callable[[], memoryview] = field(repr=False, compare=False)


class Rounding(ABC):
    """One way to compute scales and integers. `name`: in plans; `summary`: one line for users;
    `also`: aliases. `takes_data`: the weights must have been rounded on data before.

    Blocks are rounded independently and from the weight alone, so that large weights are rounded
    while they are streamed, and a plan is replayed without data.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    takes_data: ClassVar[bool] = False

    @abstractmethod
    def round(self, blocks: "Floats", storage: "BlockStorage") -> RoundedBlocks:
        """Round blocks of shape [blocks, elements], all finite.

        Integers and zero points are within the span of `storage.dtype`; zero points of symmetric
        storage are 0; scales are finite and above 0. An element 0 stays 0, so its integer is the
        zero point. `quantize.arithmetic.block_grid` computes grids.
        """

    def round_on(
        self,
        blocks: "Floats",
        storage: "BlockStorage",
        scales: "Floats",
        zero_points: "Integers",
    ) -> "Integers":
        """Integers of blocks that `round` has returned these scales and zero points for."""
        return self.round(blocks, storage).integers
