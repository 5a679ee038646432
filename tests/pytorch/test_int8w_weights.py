"""Weights of matmuls alone as INT8, a scale for each row: what they compute, which, and whose changes are seen."""

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo.torch
from mezzo.aten.blocks import DEQUANTIZE_ROWS, ROUND_ROWS
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.kernels import reads_int8w

# Operands, dequantized weights, products and answers are rounded to half an eps each.
_TOLERANCE = 2 * BF16_EPS
_TO = "int8w,bf16"


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Turned(nn.Module):
    """A matmul whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 80)), nn.Parameter(torch.randn(80))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


def _rounded(weight: torch.Tensor, axis: int) -> torch.Tensor:
    floats: torch.Tensor = DEQUANTIZE_ROWS(
        ROUND_ROWS(weight.detach(), axis), list(weight.shape), list(weight.stride()), axis, torch.float32
    )
    return floats


def _exact(model: nn.Module, x: torch.Tensor, axis: int = 1) -> torch.Tensor:
    """The answer in FP64 with dequantized weights."""
    weight = _rounded(model.weight, axis).double()  # type: ignore[arg-type]  # a Parameter
    bias = 0 if model.bias is None else model.bias.double()  # type: ignore[operator]  # a Parameter
    return x.double() @ (weight.t() if axis == 1 else weight) + bias


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(
    ("model", "axis"),
    [(nn.Linear(64, 80), 1), (nn.Linear(96, 77, bias=False), 1), (Turned(), 0)],
)
def test_answers_are_those_of_dequantized_weights(model: nn.Module, axis: int, is_frozen: bool) -> None:
    run = compiled(model.eval(), to=_TO, freeze=is_frozen, dynamic=False)
    for rows in (1, 4, 9):
        x = torch.randn(rows, model.weight.shape[axis])  # type: ignore[union-attr,call-overload]  # a Parameter
        with torch.no_grad():
            assert error_of(run(x), _exact(model, x, axis)) < _TOLERANCE
    assert [graph.int4_products for graph in account(run).graphs] == ([1, 1, 0] if reads_int8w() else [0, 0, 0])


def test_rows_that_no_kernel_reads_stay_in_floats() -> None:
    model, x = nn.Linear(72, 80).eval(), torch.randn(1, 72)  # ATen's kernel reads beyond rows of 72
    run = compiled(model, to=_TO)
    with torch.no_grad():
        assert error_of(run(x), model(x)) < _TOLERANCE
    assert not account(run).graphs[0].plan.in_blocks  # type: ignore[union-attr]  # it was planned


def test_int8_takes_weights_that_int4_cannot() -> None:
    model, x = nn.Sequential(nn.Linear(64, 80), nn.Linear(80, 96)).eval(), torch.randn(1, 64)
    run = compiled(model, to="int4,int8w,bf16")
    with torch.no_grad():
        assert error_of(run(x), model(x)) < 0.3
    assert "1 weight in int4" in repr(account(run))


def test_errors_are_a_sixteenth_of_those_of_int4_and_changes_are_seen() -> None:
    model, x = nn.Linear(64, 96).eval(), torch.randn(1, 64)
    errors = []
    for to in (_TO, "int4,bf16"):
        run = compiled(model, to=to)
        with torch.no_grad():
            errors.append(error_of(run(x), model(x)))
            model.weight.mul_(-3)
            assert error_of(run(x), model(x)) < 0.3
    assert errors[0] < errors[1] / 4


def test_a_row_with_nan_is_nan_and_no_other_and_zeros_stay() -> None:
    weight = torch.randn(16, 64)
    weight[3, 40], weight[5], weight[7, 1] = torch.nan, 0, torch.inf
    floats = _rounded(weight, 1)
    assert floats[[3, 7]].isnan().all() and int(floats.isnan().sum()) == 128 and not floats[5].any()


def test_inductor_calls_the_kernel_itself_and_it_is_explained() -> None:
    model, x = nn.Linear(64, 80).eval(), torch.randn(1, 3, 64)
    run = mezzo.torch.compile(model, to=_TO)
    with torch.no_grad():
        assert error_of(run(x), _exact(model, x)) < _TOLERANCE
    if reads_int8w():
        assert "1 weight in int8w, for 1 matmul" in repr(account(run))
    assert "int8w, 20.5 KB before, 5.28 KB" in " ".join(repr(mezzo.torch.explain(run, "op:addmm")).split())
