"""Storage of a weight as low-bit integers in blocks, each with its own scale and zero point, as
DequantizeLinear with `block_size` (opset 21) and MatMulNBits read it.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType, size_bits

# Storage types by bits: of symmetric blocks, and of those with zero points.
_INTEGERS = {4: (DType.INT4, DType.UINT4), 8: (DType.INT8, DType.UINT8)}
BITS = tuple(_INTEGERS)
SCALE_DTYPES = (HIGH, *LOW_DTYPES.values())
MOST_ELEMENTS = 1 << 20  # of a block: more share no scale usefully
WHOLE_ROW = MOST_ELEMENTS  # a block that no axis fills: one scale for each row
# Of MatMulNBits in com.microsoft: the type in which it computes with activations. 0: the runtime
# decides, 1: FP32, 2: FP16, 3: BF16, 4: INT8.
ACCURACY_LEVELS = range(5)
ROUNDS_ACTIVATIONS = 4


class BlockForm(enum.Enum):
    """How readers get the elements. DEQUANTIZE: from a DequantizeLinear. FUSED: the readers are
    operators of com.microsoft that read the integers: MatMulNBits, GatherBlockQuantized.
    FUSED_COPIES: the same, but where both read a weight, each has a constant of its own.
    """

    DEQUANTIZE = "dequantize"
    FUSED = "fused"
    FUSED_COPIES = "fused-copies"

    @property
    def is_fused(self) -> bool:
        """Whether the readers become operators that read the integers."""
        return self is not BlockForm.DEQUANTIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStorage:
    """How the elements of a weight are stored; a recipe, without the numbers that result from it.

    `block` consecutive elements along `axis`, counted from the front, share a scale of
    `scale_dtype` and, if not `is_symmetric`, a zero point; the last block of an axis may be
    shorter. An element is (integer - zero point) * scale. `rounding` names the plug-in that
    computes scales and integers from the weight (`contracts.rounding`). `accuracy_level`: of
    MatMulNBits, so it is 0 in other forms than FUSED. `activation_block`: that many elements of a
    row which a product multiplies it with are rounded to INT8 with one scale by a runtime whatever
    the file says; 0 for none.
    """

    bits: int
    block: int
    axis: int
    is_symmetric: bool = False
    scale_dtype: DType = DType.FLOAT32
    rounding: str = "nearest"
    form: BlockForm = BlockForm.DEQUANTIZE
    accuracy_level: int = 0
    activation_block: int = 0

    def __post_init__(self) -> None:
        assert self.bits in _INTEGERS, f"integers of {self.bits} bits are not stored in blocks"
        assert 0 < self.block <= MOST_ELEMENTS, "a block has elements"
        assert self.axis >= 0, "axes count from the front"
        assert self.scale_dtype in SCALE_DTYPES, "scales are floats"
        assert self.accuracy_level in ACCURACY_LEVELS, "levels that MatMulNBits knows"
        assert self.form is BlockForm.FUSED or not self.accuracy_level, "no operator has a level"
        assert 0 <= self.activation_block <= MOST_ELEMENTS, "a block has elements, or there is none"

    @property
    def dtype(self) -> DType:
        """Type of the stored integers: signed if symmetric."""
        signed, unsigned = _INTEGERS[self.bits]
        return signed if self.is_symmetric else unsigned

    @property
    def rounded_activations(self) -> int:
        """Elements of a row of activations that its kernel rounds to INT8 with one scale; 0 if it
        reads them as they are.
        """
        return self.block if self.accuracy_level == ROUNDS_ACTIVATIONS else self.activation_block

    def blocks_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the scales of a weight of this shape."""
        blocks = -(-shape[self.axis] // self.block)
        return (*shape[: self.axis], blocks, *shape[self.axis + 1 :])

    def shares_tables(self, length: int) -> bool:
        """Whether products and lookups read the same integers, as rows of whole blocks have the
        same bytes for both. `length`: of the axis.
        """
        is_whole = self.form is BlockForm.FUSED and length % self.block == 0
        return is_whole or not self.form.is_fused

    def size_bytes(self, shape: Sequence[int], *, is_tied: bool = False) -> int:
        """Bytes of a weight of this shape, with its scales and zero points. `is_tied`: products
        multiply with it, and others look rows up in it.
        """
        size = round(math.prod(shape) * self.bits_per_element(shape[self.axis]) / 8)
        is_twice = is_tied and not self.shares_tables(shape[self.axis])
        return size + is_twice * (math.prod(shape) * self.bits // 8)

    def bits_per_element(self, length: int) -> float:
        """Bits of an element, with its share of scale and zero point. `length`: of the axis."""
        zero_bits = 0 if self.is_symmetric else self.bits
        blocks = -(-length // self.block)
        # Products on integers read whole blocks.
        is_filled = self.form is BlockForm.FUSED and self.block != WHOLE_ROW
        stored = blocks * self.block if is_filled else length
        return (stored * self.bits + blocks * (size_bits(self.scale_dtype) + zero_bits)) / length
