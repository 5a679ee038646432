"""Kernels that read weights stored as low-bit integers in blocks (weight-only quantization, W4A16):
rows of a target.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.rows import EVERY_VERSION, holds

_FLAT, _UNSCALED = frozenset({None, 0}), frozenset({None, 1.0})
# Products of two matrices, as MatMulNBits computes them: operators, axes of the sum, attributes.
MATMUL_N_BITS: tuple[tuple[str, int, Mapping[str, Any]], ...] = (
    ("MatMul", 0, {}),
    ("Gemm", 0, {"transA": _FLAT, "transB": _FLAT, "alpha": _UNSCALED, "beta": _UNSCALED}),
    ("Gemm", 1, {"transA": _FLAT, "transB": 1, "alpha": _UNSCALED, "beta": _UNSCALED}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKernel:
    """An operator whose constant operand may be stored in blocks, and how it must be stored.

    `operand`: position of the weight, whose rank is `rank`; `axis` of the blocks, that of the sum
    of a product. `bits` and, by preference, `blocks`: elements that share a scale.
    `block_multiple`: the axis must be a multiple of so many blocks; None if the last block may be
    shorter. `least_blocks` of the axis, which must be a multiple of `length_multiple` elements.
    `is_symmetric`: symmetric integers only; False where zero points are as fast. `floats`: types of
    the other operands, which are those of the scales. `form`: as of `BlockStorage`;
    `accuracy_levels`: those at which it is faster than floats, the fastest first.
    `activation_block`: as of `BlockStorage`. `least_elements`: weights of fewer are faster in
    floats. `reads_floats`: the operator reads the weight's own floats, in types of `floats`, which
    are kept in addition to the integers; such rows let other readers of the weight have blocks.
    `attributes` must all match. `source`, `since`: the evidence, and the version it is of.
    """

    dialect: str = "onnx"
    op: str
    operand: int = 1
    rank: int = 2
    axis: int
    bits: int
    blocks: tuple[int, ...]
    block_multiple: int | None = None
    length_multiple: int = 1
    least_blocks: int = 1
    is_symmetric: bool = False
    floats: frozenset[DType] = frozenset({HIGH, DType.FLOAT16})
    form: BlockForm
    accuracy_levels: tuple[int, ...] = (0,)
    activation_block: int = 0
    least_elements: int = 0
    reads_floats: bool = False
    versions: tuple[int, int] = EVERY_VERSION
    attributes: Mapping[str, object] = field(default_factory=dict)
    source: str
    since: str

    def may_divide(self, block: int, length: int) -> bool:
        """Whether blocks of a size may divide an axis of a length."""
        is_whole = self.block_multiple is None or length % (block * self.block_multiple) == 0
        is_enough = self.least_blocks == 1 or length >= block * self.least_blocks
        is_whole &= length % self.length_multiple == 0
        return block in self.blocks and is_whole and is_enough

    def fits(
        self, dialect: str, op: str, operand: int, version: int, attributes: Mapping[str, object]
    ) -> bool:
        """Whether the row is about an operand of an operator, by version and attributes."""
        is_its_own = (dialect, op, operand) == (self.dialect, self.op, self.operand)
        return is_its_own and holds(self.versions, self.attributes, version, attributes)
