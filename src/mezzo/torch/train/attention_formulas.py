"""The backward of scaled dot product attention as matmuls over whole sequences.

The formulas are those of PyTorch's tiled CPU kernel. Scores and their gradients are FP32 outputs of
split BF16 matmuls (`split_bf16_sums.py`); only values that the kernel rounds are rounded. Fully
masked rows give zeros. Tensors have shape [batch, heads, positions, width], masks broadcast to the
scores, and logsumexp is [batch, heads, positions].
Source: Dao and others, "FlashAttention" (NeurIPS 2022), appendix B.2.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from mezzo.torch.train.sums.split_bf16_sums import TWO_SUMS

# Scores per chunk, to fit in cache. Each chunk adds code, so their number is limited.
_PART, _PARTS = 1 << 19, 8
_RANK = 4


class AttentionOptions(NamedTuple):
    """Options of the attention call: causal masking, and the scale of the scores."""

    is_causal: bool
    scale: float


def backward_in_parts(
    tensors: Sequence[torch.Tensor],
    mask: torch.Tensor | None,
    options: AttentionOptions,
    like: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """Gradients of query, key and value, in chunks of samples, or of heads for one sample.

    `tensors`: output gradient, query, key, value, output, logsumexp. Results have the strides of
    `like`, those of the kernel, whose dimension order may differ.
    """
    _, query, key, *_ = tensors
    if mask is not None:
        mask = mask[(None,) * (_RANK - mask.dim())]
    axis = 0 if query.shape[0] > 1 else 1
    scores = math.prod(query.shape[:3]) * key.shape[2]
    count = max(1, min(_PARTS, query.shape[axis], math.ceil(scores / _PART)))
    parts = [
        _backward(
            [tensor.narrow(axis, *bounds) for tensor in tensors], _cut(mask, axis, bounds), options
        )
        for bounds in _cuts(query.shape[axis], count)
    ]
    return [
        _joined(pieces, axis, layout)
        for pieces, layout in zip(zip(*parts, strict=True), like, strict=True)
    ]


def _joined(parts: Sequence[torch.Tensor], axis: int, like: torch.Tensor) -> torch.Tensor:
    """Chunks concatenated in the target layout, so that they are copied only once."""
    axes = sorted(range(like.dim()), key=like.stride, reverse=True)
    dense = [part.permute(axes).contiguous() for part in parts]
    joined = dense[0] if len(dense) == 1 else torch.cat(dense, axes.index(axis))
    return joined.permute(*map(axes.index, range(len(axes))))


def _cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Start and length of each chunk."""
    step = math.ceil(length / count)
    return ((start, min(step, length - start)) for start in range(0, length, step))


def _cut(mask: torch.Tensor | None, axis: int, bounds: tuple[int, int]) -> torch.Tensor | None:
    return mask if mask is None or mask.shape[axis] == 1 else mask.narrow(axis, *bounds)


def _backward(
    tensors: Sequence[torch.Tensor], mask: torch.Tensor | None, options: AttentionOptions
) -> Sequence[torch.Tensor]:
    grad_output, query, key, value, out, logsumexp = tensors
    low = query.dtype
    probabilities = (
        _scores(query, key, mask, options, after=grad_output) - logsumexp.unsqueeze(-1)
    ).exp()
    grad_value = _product(probabilities.to(low).transpose(-2, -1), grad_output)
    grad_probabilities = _wide_product(grad_output, value.transpose(-2, -1))
    row_mean = (grad_output.float() * out.float()).sum(-1, keepdim=True)
    grad_scores = (probabilities * (grad_probabilities - row_mean) * options.scale).to(low)
    return _product(grad_scores, key), _product(grad_scores.transpose(-2, -1), query), grad_value


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    options: AttentionOptions,
    *,
    after: torch.Tensor,
) -> torch.Tensor:
    scores = _wide_product(query, key.transpose(-2, -1), after) * options.scale
    if options.is_causal:
        rows, columns = (torch.arange(length, device=query.device) for length in scores.shape[-2:])
        scores = scores.masked_fill(columns > rows[:, None], -math.inf)
    return scores if mask is None else scores + mask.float()


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    flat = torch.bmm(left.flatten(0, 1), right.flatten(0, 1))
    return flat.view(*left.shape[:2], *flat.shape[1:])


def _wide_product(
    left: torch.Tensor, right: torch.Tensor, after: torch.Tensor | None = None
) -> torch.Tensor:
    """A matmul with FP32 output."""
    rounded, rounding_error = TWO_SUMS(left, right, after)
    return rounded.float() + rounding_error.float()
