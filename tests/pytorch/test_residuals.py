"""Sums inside the convolutions before them: which are found, that nothing else is, their answers, and whose memory they
take.
"""

from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo.torch
from mezzo.torch.compiler import passes
from mezzo.torch.onednn.kernels import packs

pytestmark = pytest.mark.skipif(not packs(torch.bfloat16), reason="oneDNN packs no BF16 weights on this machine")
# Weights, inputs, biases and answers are rounded to half an eps each, in up to four convolutions in a row.
_TOLERANCE = 10 * BF16_EPS


def _conv(channels: int = 8, **about: Any) -> nn.Conv2d:
    return nn.Conv2d(channels, 8, 3, padding=1, **about)


class Block(nn.Module):
    """What a convolution makes is added to what is read beside it, and two convolutions read the sum."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        self.kind = kind
        self.stem, self.inner, self.head, self.tail = _conv(4), _conv(bias=kind != "no bias"), _conv(), _conv()
        self.gate = nn.Parameter(torch.rand(8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        made = self.inner(y)
        match self.kind:
            case "relu":
                sum_ = torch.relu(made + y)
            case "turned":
                sum_ = torch.relu(y + made)
            case "both":
                sum_ = torch.relu(made + self.tail(y))
            case "read later":
                sum_ = torch.relu(made + y)
                return torch.relu(self.head(sum_) + self.tail(sum_)) + self.tail(y)
            case "seen as another shape":
                sum_ = torch.relu(made + y)
                return self.head(sum_) + self.tail(sum_) + y.reshape(y.shape[0], -1).mean(1)[:, None, None, None]
            case "read before":
                sum_ = torch.relu(made + y) + made
            case "of one channel":
                sum_ = torch.relu(made + y[:, :1])
            case "scaled":
                sum_ = torch.relu(made + 2 * y)
            case "weighed":
                sum_ = torch.relu(made + self.gate * y)
            case "gelu":
                sum_ = nn.functional.gelu(made + y)
            case "exact":
                return made + y
            case _:
                sum_ = made + y
        answer: torch.Tensor = self.head(sum_) + self.tail(sum_)
        return answer


_FUSED = ("plain", "no bias", "relu", "turned", "both")
_APART = ("read before", "of one channel", "scaled", "weighed", "gelu", "exact")


def _summed(kind: str, monkeypatch: Any) -> tuple[int, float]:
    """How many sums became part of a convolution, and the error of the answer."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Block(kind).eval(), torch.randn(2, 4, 9, 8)
    counts: list[int] = []
    add_sums = passes.add_sums
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(passes, "add_sums", lambda graph: counts.append(add_sums(graph)))
        found = compiled(model)(x)
        wanted = model.double()(x.double())
    return sum(counts), error_of(found, wanted)


@pytest.mark.parametrize("kind", _FUSED)
def test_a_sum_becomes_part_of_the_convolution_before_it(kind: str, monkeypatch: Any) -> None:
    count, error = _summed(kind, monkeypatch)
    assert count == 1
    assert 0 < error < _TOLERANCE


@pytest.mark.parametrize("kind", _APART)
def test_what_is_like_a_sum_stays_apart(kind: str, monkeypatch: Any) -> None:
    count, error = _summed(kind, monkeypatch)
    assert count == 0
    assert 0 < error < _TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*_FUSED, "read later", "seen as another shape"])
def test_a_sum_takes_no_memory_that_is_read_later(kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """With the code that is generated, twice, so that what the first call overwrote would be seen."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = Block(kind).eval(), torch.randn(2, 4, 9, 8)
    kept = x.clone()
    run = mezzo.torch.compile(model, freeze=kind == "both")
    with torch.no_grad():
        first, second = run(x), run(x)
        wanted = model.double()(x.double())
    assert torch.equal(first, second)
    assert torch.equal(x, kept)
    assert 0 < error_of(first, wanted) < _TOLERANCE
