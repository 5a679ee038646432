"""Constants past a format's range are stored within it, where that is asked for."""

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from torch import nn

import mezzo


class Biased(nn.Module):
    """Adds a mask of FP32's lowest number, and one of minus infinity, to a product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        nn.init.constant_(self.linear.bias, 0.0)
        with torch.no_grad():
            self.linear.bias[0], self.linear.bias[1], self.linear.bias[2] = -3.0e38, -torch.inf, 7e4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def test_finite_numbers_are_kept_within_the_range_and_infinite_ones_stay() -> None:
    source = torch.export.export(Biased().eval(), (torch.zeros(2, 8),))
    converted = mezzo.convert(source, to="fp16", out_of_range="clamp", policy="aggressive")
    assert [str(node.precision.output) for node in converted.plan.nodes if node.op == "linear"] == ["f16"]
    answer = converted.model.module()(torch.zeros(2, 8))
    assert answer[0, :4].tolist() == [-65504.0, -torch.inf, 65504.0, 0.0]
    held = converted.model.state_dict["linear.bias"]
    assert held.dtype is torch.float16
    assert held[:4].tolist() == [-65504.0, -torch.inf, 65504.0, 0.0]
