"""The formulas of scaled dot product attention, forward and backward, as products over whole sequences.

They are those of PyTorch's kernel for CPUs, which walks over tiles. Scores, and what comes back for them, are FP32 sums
in two passes (`two_passes.py`), softmax is FP32, and what the kernel rounds is rounded, nothing else. A row that is
masked all over gives zeros. Tensors have axes (batch, heads, places, width), masks fewer or some of length 1, and
logarithms of sums (batch, heads, places).
Source of the backward: Dao and others, "FlashAttention" (NeurIPS 2022), appendix B.2.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from mezzo.torch.two_passes import TWO_SUMS

# So many scores stay in a cache; a part is code, so that there are few.
_PART, _PARTS = 1 << 20, 4
_RANK = 4


class Told(NamedTuple):
    """What a call says beside tensors: whether later places are masked, and what scores are multiplied by."""

    is_causal: bool
    scale: float


# Given a call's tensors and its mask: what it makes.
Formula = Callable[..., Sequence[torch.Tensor]]


def in_parts(
    formula: Formula, tensors: Sequence[torch.Tensor], mask: torch.Tensor | None, told: Told
) -> Sequence[torch.Tensor]:
    """What a formula makes of some samples at a time, or of some heads where there is one sample."""
    query, key = tensors[:2] if formula is forward else tensors[1:3]
    if mask is not None:
        mask = mask[(None,) * (_RANK - mask.dim())]
    axis = 0 if query.shape[0] > 1 else 1
    scores = query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2]
    count = max(1, min(_PARTS, query.shape[axis], math.ceil(scores / _PART)))
    made = [
        formula(*(one.narrow(axis, *cut) for one in tensors), _cut(mask, axis, cut), told)
        for cut in _cuts(query.shape[axis], count)
    ]
    return made[0] if len(made) == 1 else [torch.cat(ones, axis) for ones in zip(*made, strict=True)]


def _cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Where parts begin and how long they are."""
    step = math.ceil(length / count)
    return ((start, min(step, length - start)) for start in range(0, length, step))


def _cut(mask: torch.Tensor | None, axis: int, cut: tuple[int, int]) -> torch.Tensor | None:
    return mask if mask is None or mask.shape[axis] == 1 else mask.narrow(axis, *cut)


def forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, told: Told
) -> Sequence[torch.Tensor]:
    """What attention makes, and the logarithm of each row's sum."""
    scores = _scores(query, key, mask, told, is_again=False)
    top = scores.amax(-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    powers = (scores - top).exp()
    total = powers.sum(-1, keepdim=True)
    total = total.masked_fill(total == 0.0, 1.0)
    out = _wide_product(powers.to(query.dtype), value) / total
    return out.to(query.dtype), (top + total.log()).squeeze(-1)


def backward(
    pulled: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, mask: torch.Tensor | None, told: Told,
) -> Sequence[torch.Tensor]:  # fmt: skip
    """The gradients of query, key and value, of what is `pulled` at the output."""
    low = query.dtype
    shares = (_scores(query, key, mask, told, is_again=True) - logsumexp.unsqueeze(-1)).exp()
    of_value = _product(shares.to(low).transpose(-2, -1), pulled)
    of_shares = _wide_product(pulled, value.transpose(-2, -1))
    mean = (pulled.float() * out.float()).sum(-1, keepdim=True)
    of_scores = (shares * (of_shares - mean) * told.scale).to(low)
    return _product(of_scores, key), _product(of_scores.transpose(-2, -1), query), of_value


def _scores(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, told: Told, *, is_again: bool
) -> torch.Tensor:
    scores = _wide_product(query, key.transpose(-2, -1), is_again=is_again) * told.scale
    if told.is_causal:
        rows, columns = (torch.arange(length, device=query.device) for length in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    return scores if mask is None else scores + mask.float()


def _product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    flat = torch.bmm(one.flatten(0, 1), other.flatten(0, 1))
    return flat.view(*one.shape[:2], *flat.shape[1:])


def _wide_product(one: torch.Tensor, other: torch.Tensor, *, is_again: bool = False) -> torch.Tensor:
    """A product's sums in FP32."""
    rounded, rest = TWO_SUMS(one, other, is_again)
    return rounded.float() + rest.float()
