"""Ports that follow no precision: masks that would pass a low format's range, results that are FP32 beside low ones."""

from collections.abc import Iterator
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

from mezzo.torch import account, precision

_FLASH = "_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Attention(nn.Module):
    """One head whose first position may look at nothing, as padding has it, by FP32's lowest number."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.mask = nn.Linear(16, 16), torch.zeros(8, 8)
        self.mask[0] = torch.finfo(torch.float32).min

    def forward(self, x: Any) -> Any:
        mask = (self.mask + x[:, :1, :1])[:, None]
        with precision("bf16"):
            heads = self.key(x)[:, None]
            return nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)


def _precisions(run: Any) -> dict[str, str]:
    plan = account(run).graphs[0].plan
    assert plan is not None
    return {node.op: str(node.precision.compute) for node in plan.nodes}


def test_a_mask_of_fp32s_lowest_number_is_no_infinity() -> None:
    model, x = Attention().eval(), torch.randn(2, 8, 16)
    run = compiled(model)
    # The product's operands and its result are rounded once each, and so are those of the two inside.
    assert error_of(run(x), model(x)) <= 6 * BF16_EPS
    assert _precisions(run)[_FLASH] == "bf16"


def test_attention_runs_low_beside_sums_that_stay_fp32() -> None:
    """Its logarithms of sums are FP32 whatever comes in; nobody reads them."""
    run = compiled(lambda x: nn.functional.scaled_dot_product_attention(x, x, x))
    run(torch.randn(2, 4, 8, 16, dtype=torch.float32) @ torch.eye(16))
    assert _precisions(run)[_FLASH] == "bf16"


class InFp32(nn.Module):
    """A product, and what asks for FP32 of its low answer, in a region."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.key, self.op = nn.Linear(16, 16), op

    def forward(self, x: Any) -> Any:
        with precision("bf16"):
            made = getattr(self.key(x), self.op)(-1, dtype=torch.float32)
            return made.unsqueeze(-1) if made.dim() < x.dim() else made


@pytest.mark.parametrize("op", ["sum", "mean", "prod", "cumsum", "cumprod"])
def test_what_gives_fp32_of_low_numbers_runs_low_and_gives_fp32(op: str) -> None:
    """Taken for an operator whose result is as low as its operands, it would be at fault, and run in FP32."""
    model, x = InFp32(op).eval(), torch.randn(2, 8, 16)
    run = compiled(model)
    found = run(x)
    assert found.dtype is torch.float32
    # Input, weight and answer are rounded once each; sixteen factors add up what each is off by.
    assert 0 < error_of(found, model(x)) <= 32 * BF16_EPS
    assert _precisions(run)[op] == "bf16"
