"""FP32 sums of a low product on CPUs, as two low numbers: the rounded sum, and what rounding has taken from it.

oneDNN adds another tensor to a product's FP32 sums before it rounds them. With the rounded sum taken away, what it
rounds is the rest, so the two together hold the sum with twice the format's digits, for twice a low product's time: a
fourth of what an FP32 product takes on a CPU with instructions for BF16.
"""

import functools
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from mezzo.aten.read.retype import without_python_dispatcher

_LIBRARY = torch.library.Library("mezzo", "FRAGMENT")
_LIBRARY.define("two_sums(Tensor one, Tensor other, Tensor? after=None) -> (Tensor, Tensor)")
# A product that nothing waits for would be computed early, and wait: it may be told `after` what to come.
TWO_SUMS: Any = torch.ops.mezzo.two_sums.default
_MATRIX = 2
_TERMS = 4097  # no low format has such a number: the rounded sum is 4096, the rest 1
_SIZES = ((1, 1), (3, 5), (64, 48))  # rows and columns: PyTorch asks oneDNN from some size on


@functools.cache
def sums_in_two_passes(dtype: torch.dtype) -> bool:
    """Whether products of a format give the rests of their sums on this CPU: tried on sums that it has no number for.

    Of BF16 alone, whose range is that of FP32: a sum that passes FP16's range leaves no rest.
    """
    if dtype is not torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    with _disable_current_modes(), without_python_dispatcher(), torch.no_grad():
        return all(_holds(torch.ones(rows, _TERMS, dtype=dtype), columns) for rows, columns in _SIZES)


def _holds(ones: Any, columns: int) -> bool:
    """Whether products of such rows, as they lie and turned, give all of a sum."""
    across = ones[:1].expand(columns, _TERMS).contiguous()
    turned = (ones.t().contiguous().t(), across.t().contiguous().t())
    pairs = ((ones, across.t()), (turned[0], turned[1].t()))
    return all(bool((in_two_passes(*pair) == _TERMS).all()) for pair in pairs) and all(
        bool((in_two_passes(one[None], other[None]) == _TERMS).all()) for one, other in pairs
    )


def in_two_passes(one: Any, other: Any) -> Any:
    """The product of two low matrices, or of batches of them, in FP32 to a part in 2^17."""
    sums, rest = TWO_SUMS(one, other)
    wide = sums.float()
    return torch.where(wide.isfinite(), wide + rest.float(), wide)


@torch.library.impl(_LIBRARY, "two_sums", "CompositeExplicitAutograd")
def _two_sums(one: Any, other: Any, after: Any = None) -> Any:
    if one.dim() == _MATRIX:
        sums = torch.mm(one, other)
        return sums, torch.addmm(sums, one, other, beta=-1)
    flat, across = _flat(one), _flat(other)
    sums = torch.bmm(flat, across)
    rest = torch.baddbmm(sums, flat, across, beta=-1)
    shape = (*one.shape[:-1], other.shape[-1])
    return sums.view(shape), rest.view(shape)


def _flat(held: Any) -> Any:
    """One batch of matrices, copied as they lie: turned ones stay turned."""
    if held.stride(-1) == 1:
        return held.flatten(0, -3)
    return held.transpose(-2, -1).flatten(0, -3).transpose(-2, -1)


@torch.library.register_fake("mezzo::two_sums", lib=_LIBRARY)
def _fake_two_sums(one: Any, other: Any, after: Any = None) -> Any:
    shape = (*one.shape[:-1], other.shape[-1])
    return one.new_empty(shape), one.new_empty(shape)
