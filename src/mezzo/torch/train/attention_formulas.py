"""The backward of scaled dot product attention as products over whole sequences.

The formulas are those of PyTorch's kernel for CPUs, which walks over tiles. Scores, and what comes back for them, are
FP32 sums in two passes (`two_passes.py`), and what the kernel rounds is rounded, nothing else. A row that is masked all
over gives zeros. Tensors have axes (batch, heads, places, width), masks fewer or some of length 1, and logarithms of
sums (batch, heads, places).
Source: Dao and others, "FlashAttention" (NeurIPS 2022), appendix B.2.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from mezzo.torch.train.sums.split_bf16_sums import TWO_SUMS

# So many scores stay in a cache; a part is code, so that there are few.
_PART, _PARTS = 1 << 19, 8
_RANK = 4


class Told(NamedTuple):
    """What a call says beside tensors: whether later places are masked, and what scores are multiplied by."""

    is_causal: bool
    scale: float


def backward_in_parts(
    tensors: Sequence[torch.Tensor], mask: torch.Tensor | None, told: Told, like: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """The gradients of query, key and value, of some samples at a time, or of some heads where there is one sample.

    `tensors`: what is pulled at the output, query, key, value, output, and the logarithm of each row's sum. Results are
    laid out `like` the kernel's, whose axes may lie in another order.
    """
    _, query, key, *_ = tensors
    if mask is not None:
        mask = mask[(None,) * (_RANK - mask.dim())]
    axis = 0 if query.shape[0] > 1 else 1
    scores = math.prod(query.shape[:3]) * key.shape[2]
    count = max(1, min(_PARTS, query.shape[axis], math.ceil(scores / _PART)))
    parts = [
        _backward([one.narrow(axis, *cut) for one in tensors], _cut(mask, axis, cut), told)
        for cut in _cuts(query.shape[axis], count)
    ]
    return [_joined(ones, axis, wanted) for ones, wanted in zip(zip(*parts, strict=True), like, strict=True)]


def _joined(parts: Sequence[torch.Tensor], axis: int, like: torch.Tensor) -> torch.Tensor:
    """Parts as one, each laid out before that, so that they are copied once."""
    axes = sorted(range(like.dim()), key=like.stride, reverse=True)
    dense = [one.permute(axes).contiguous() for one in parts]
    whole = dense[0] if len(dense) == 1 else torch.cat(dense, axes.index(axis))
    return whole.permute(*map(axes.index, range(len(axes))))


def _cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Where parts begin and how long they are."""
    step = math.ceil(length / count)
    return ((start, min(step, length - start)) for start in range(0, length, step))


def _cut(mask: torch.Tensor | None, axis: int, cut: tuple[int, int]) -> torch.Tensor | None:
    return mask if mask is None or mask.shape[axis] == 1 else mask.narrow(axis, *cut)


def _backward(tensors: Sequence[torch.Tensor], mask: torch.Tensor | None, told: Told) -> Sequence[torch.Tensor]:
    pulled, query, key, value, out, logsumexp = tensors
    low = query.dtype
    shares = (_scores(query, key, mask, told, after=pulled) - logsumexp.unsqueeze(-1)).exp()
    of_value = _product(shares.to(low).transpose(-2, -1), pulled)
    of_shares = _wide_product(pulled, value.transpose(-2, -1))
    mean = (pulled.float() * out.float()).sum(-1, keepdim=True)
    of_scores = (shares * (of_shares - mean) * told.scale).to(low)
    return _product(of_scores, key), _product(of_scores.transpose(-2, -1), query), of_value


def _scores(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, told: Told, *, after: torch.Tensor
) -> torch.Tensor:
    scores = _wide_product(query, key.transpose(-2, -1), after) * told.scale
    if told.is_causal:
        rows, columns = (torch.arange(length, device=query.device) for length in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    return scores if mask is None else scores + mask.float()


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    flat = torch.bmm(one.flatten(0, 1), other.flatten(0, 1))
    return flat.view(*one.shape[:2], *flat.shape[1:])


def _wide_product(one: torch.Tensor, other: torch.Tensor, after: torch.Tensor | None = None) -> torch.Tensor:
    """A product's sums in FP32."""
    rounded, rest = TWO_SUMS(one, other, after)
    return rounded.float() + rest.float()
