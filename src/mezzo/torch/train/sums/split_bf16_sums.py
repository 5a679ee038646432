"""FP32 outputs of BF16 matmuls on CPUs, as a rounded sum and its rounding error.

oneDNN can add a tensor to the FP32 accumulator before rounding. Subtracting the rounded sum there
leaves the rounding error, so both together have twice BF16's digits, for the time of two BF16
matmuls: a quarter of an FP32 matmul's on CPUs with BF16 instructions.
"""

import functools
from typing import Any

import torch

from mezzo.aten.torch_internals import without_python_dispatcher
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import without_modes

_MATRIX = 2
_TERMS = 4097  # not representable in BF16: the rounded sum is 4096, the error 1
_SIZES = ((1, 1), (3, 5), (64, 48))  # rows, columns: PyTorch uses oneDNN above some size


@functools.cache
def sums_in_two_passes(dtype: torch.dtype) -> bool:
    """Whether this CPU's matmuls yield the rounding errors of their sums, by self-test.

    BF16 only, whose range equals FP32's: a sum that overflows FP16 has no usable error term.
    """
    if dtype is not torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    with without_modes(), without_python_dispatcher(), torch.no_grad():
        return all(
            _holds(torch.ones(rows, _TERMS, dtype=dtype), columns) for rows, columns in _SIZES
        )


def _holds(ones: Any, columns: int) -> bool:
    """Whether matmuls of these matrices, plain and transposed, recover the full sum."""
    columns_of_ones = ones[:1].expand(columns, _TERMS).contiguous()
    turned = (ones.t().contiguous().t(), columns_of_ones.t().contiguous().t())
    pairs = ((ones, columns_of_ones.t()), (turned[0], turned[1].t()))
    return all(bool((in_two_passes(*pair) == _TERMS).all()) for pair in pairs) and all(
        bool((in_two_passes(left[None], right[None]) == _TERMS).all()) for left, right in pairs
    )


def in_two_passes(one: Any, other: Any) -> Any:
    """The product of BF16 matrices, or batches of them, in FP32 with relative error 2^-17."""
    sums, rest = TWO_SUMS(one, other)
    wide = sums.float()
    return torch.where(wide.isfinite(), wide + rest.float(), wide)


def _two_sums(one: Any, other: Any, after: Any = None) -> Any:
    if one.dim() == _MATRIX:
        sums = torch.mm(one, other)
        return sums, torch.addmm(sums, one, other, beta=-1)
    flat, across = _flat(one), _flat(other)
    sums = torch.bmm(flat, across)
    rest = torch.baddbmm(sums, flat, across, beta=-1)
    shape = (*one.shape[:-1], other.shape[-1])
    return sums.view(shape), rest.view(shape)


def _flat(matrices: Any) -> Any:
    """A single batch dimension; transposed matrices stay transposed in memory."""
    if matrices.stride(-1) == 1:
        return matrices.flatten(0, -3)
    return matrices.transpose(-2, -1).flatten(0, -3).transpose(-2, -1)


def _fake_two_sums(one: Any, other: Any, after: Any = None) -> Any:
    shape = (*one.shape[:-1], other.shape[-1])
    return one.new_empty(shape), one.new_empty(shape)


# With ready operands, a matmul would be scheduled early and its result kept: `after` delays it
# until that tensor is computed.
TWO_SUMS: Any = define(
    "two_sums(Tensor one, Tensor other, Tensor? after=None) -> (Tensor, Tensor)",
    _two_sums,
    _fake_two_sums,
)
