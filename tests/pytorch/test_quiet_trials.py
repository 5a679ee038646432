"""Trying which types operators take says nothing in the logs of PyTorch."""

import logging

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import Tensor, nn

import mezzo
import mezzo.torch

_LOG = "torch._subclasses.fake_tensor"


class _Rotary(nn.Module):
    """Pairs of numbers as complex ones, of which there are none in BF16."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.register_buffer("turns", torch.polar(torch.ones(4, 8), torch.arange(32.0).reshape(4, 8)))

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(self.one(x).reshape(4, 8, 2)) * self.turns
        answer: Tensor = self.two(torch.view_as_real(turned).flatten(1))
        return answer


def test_refused_types_are_not_logged_and_refusals_of_others_are() -> None:
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]  # records alone are of interest
    log = logging.getLogger(_LOG)
    log.addHandler(handler)
    try:
        low = mezzo.torch.export(_Rotary(), (torch.randn(4, 16),))
        assert {one.dtype for name, one in low.state_dict.items() if "weight" in name} == {torch.bfloat16}
        assert seen == []
        with torch._subclasses.FakeTensorMode(), pytest.raises(RuntimeError):
            torch.view_as_complex(torch.ones(2, 2, dtype=torch.bfloat16))
        assert len(seen) == 1
    finally:
        log.removeHandler(handler)
