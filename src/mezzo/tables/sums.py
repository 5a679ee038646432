"""Sums inside kernels: the format of a kernel's accumulators, where it is not FP32 or INT32."""

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.common.machine import Machine

# Instructions that add products of U8 and S8 in INT32.
VNNI = ("amx_int8", "avx512_vnni", "avx_vnni")
# Any multiplies integers faster than floats; AVX2 alone adds the products in pairs in INT16.
MULTIPLIES_INT8 = (*VNNI, "avx2")
# Two neighbouring weights of one sign that add up to more may saturate: 255 * 129 > 2 ** 15.
MOST_IN_PAIR = 128
_X86 = frozenset({"x86_64", "AMD64", "i386", "i686"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LowSum:
    """Operators of ONNX whose kernels, run in `dtype`, also sum in it, rounding after every `tile`
    terms.

    `lanes`: accumulators for a result of at least `least_terms`, a power of two: each takes every
    `lanes`-th term, and they are added in pairs; smaller sums have one. `source`: how it was
    measured, or where it is written.
    """

    ops: Set[str]
    dtype: DType
    source: str
    since: str
    tile: int = 1
    lanes: int = 1
    least_terms: int = 0

    def __post_init__(self) -> None:
        assert self.tile >= 1, "a sum has a term"
        assert self.lanes.bit_count() == 1, "accumulators are added in pairs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSum:
    """INT8 kernels that on x86 CPUs without any of the features `unless` add the products of two
    neighbours in INT16 (VPMADDUBSW), which saturates: results are wrong.

    No sum saturates where two neighbouring weights of one sign add up to at most 128 in magnitude:
    255 * 128 < 2 ** 15. Other tools keep all weights to seven bits ("reduced range") for it.
    """

    unless: tuple[str, ...]
    source: str
    since: str

    def saturates_on(self, machine: "Machine") -> bool:
        """Whether pairs may saturate on a machine: also if its features are unknown."""
        has_any = any(machine.has(feature) for feature in self.unless)
        return machine.architecture in _X86 and not has_any
