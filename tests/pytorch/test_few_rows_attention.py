"""Attention of few rows over a cache: what it computes as loops, and where the kernel stays."""

from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo.torch
from mezzo.torch.compiler.compiled import account


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Attention(nn.Module):
    """Queries of 8 heads, keys and values of 2."""

    def __init__(self, *, is_causal: bool = False, is_grouped: bool = False) -> None:
        super().__init__()
        self.mix, self.is_causal, self.is_grouped = nn.Linear(128, 128, bias=False), is_causal, is_grouped

    def forward(self, x: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any = None) -> torch.Tensor:
        query = self.mix(x).view(*x.shape[:2], 8, 16).transpose(1, 2)
        if not self.is_grouped:
            key, value = (held.repeat_interleave(4, 1) for held in (key, value))
        mixed = nn.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=self.is_causal, enable_gqa=self.is_grouped
        )
        return mixed.transpose(1, 2).reshape(x.shape)


def _given(rows: int, length: int, batch: int = 1) -> tuple[torch.Tensor, ...]:
    key, value = torch.randn(2, batch, 2, length, 16).unbind(0)
    return torch.randn(batch, rows, 128), key, value


def _exact(model: nn.Module, *given: Any) -> torch.Tensor:
    answer: torch.Tensor = model.double()(*(one.double() if one.is_floating_point() else one for one in given))
    model.float()
    return answer


def _loops(run: Any) -> list[int]:
    return [len(graph.as_loops) for graph in account(run).graphs]


@pytest.mark.parametrize("rows", [1, 4, 5])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_few_rows_run_as_loops_and_more_in_the_kernel(rows: int, batch: int, is_masked: bool, is_grouped: bool) -> None:
    model, given = Attention(is_grouped=is_grouped).eval(), _given(rows, 37, batch)
    masks = (torch.randn(batch, 1, rows, 37) + torch.where(torch.rand(37) < 0.5, 0, -torch.inf),) if is_masked else ()
    run = compiled(model, dynamic=False)
    with torch.no_grad():
        assert error_of(run(*given, *masks), _exact(model, *given, *masks)) < 4 * BF16_EPS
    assert _loops(run) == [int(rows <= 4)]


@pytest.mark.parametrize("is_grouped", [False, True])
def test_lengths_may_be_free(is_grouped: bool) -> None:
    model = Attention(is_grouped=is_grouped).eval()
    run = compiled(model)
    with torch.no_grad():
        for length in (9, 10, 11, 12):
            given = _given(1, length)
            assert error_of(run(*given), _exact(model, *given)) < 4 * BF16_EPS
    assert _loops(run) == [1, 1]


def test_rows_that_are_masked_as_a_whole_give_zeros() -> None:
    model, given = Attention().eval(), _given(2, 9)
    mask = torch.zeros(1, 1, 2, 9)
    mask[:, :, 1] = -torch.inf
    run = compiled(model, dynamic=False)
    with torch.no_grad():
        answer = run(*given, mask)
    assert _loops(run) == [1] and not answer[:, 1].any() and answer[:, 0].all()


def test_not_a_number_stays_one() -> None:
    model, (x, key, value) = Attention().eval(), _given(1, 9)
    key[0, 0, 3] = torch.nan
    run = compiled(model, dynamic=False)
    with torch.no_grad():
        assert run(x, key, value)[..., :64].isnan().all()


def test_causal_attention_and_training_keep_the_kernel() -> None:
    causal, given = Attention(is_causal=True).eval(), _given(1, 9)
    run = compiled(causal, dynamic=False)
    with torch.no_grad():
        assert error_of(run(*given), _exact(causal, *given)) < 4 * BF16_EPS
    training = compiled(Attention(), dynamic=False)
    training(*given).sum().backward()
    assert _loops(run) == _loops(training) == [0]


def test_inductor_reads_the_cache_once_and_it_is_explained() -> None:
    model, given = Attention().eval(), _given(1, 37)
    run = mezzo.torch.compile(model, dynamic=False)
    with torch.no_grad():
        assert error_of(run(*given), _exact(model, *given)) < 4 * BF16_EPS
    assert "attention as loops, as rows are few" in repr(account(run))
    (name,) = (entry.node for entry in account(run).graphs[0].as_loops)
    assert "runs as loops in FP32" in " ".join(repr(mezzo.torch.explain(run, name)).split())
