"""Copies and pickles: of compiled modules, which compile anew with the same options."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled

import mezzo.torch

_AGAIN = pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@_AGAIN
def test_copies_of_what_is_frozen_are_frozen(again: Callable[[Any], Any]) -> None:
    x = torch.randn(4, 32)
    run = again(compiled(driving.Net().eval(), freeze=True))
    with torch.no_grad():
        before = run(x)
        run.up.weight.zero_()
        assert torch.equal(run(x), before)


class _Breaks(driving.Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return super().forward(x)


@_AGAIN
def test_copies_are_one_graph_where_that_was_asked_for(again: Callable[[Any], Any]) -> None:
    run = again(compiled(driving.Net().eval(), dynamic=True))
    with torch.no_grad():
        for rows in (3, 5):
            run(torch.randn(rows, 32))
        assert len(mezzo.torch.account(run).graphs) == 1
        with pytest.raises(torch._dynamo.exc.Unsupported):
            again(compiled(_Breaks().eval(), fullgraph=True))(torch.randn(7, 32))


@_AGAIN
def test_copies_sum_gradients_in_the_format_too(again: Callable[[Any], Any]) -> None:
    run, x = compiled(driving.Net().train(), weight_grad_reduce="bf16"), torch.randn(4, 32)
    run(x).sum().backward()
    other = again(run)
    other(x).sum().backward()
    assert {one.grad.dtype for one in other.parameters() if one.grad is not None} == {torch.bfloat16}
    assert other.up.weight is not run.up.weight
