"""What fake tensors run low and kernels of CPUs do not stays in FP32, in regions of low precision too."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of

import mezzo
from mezzo.torch import account, precision
from mezzo.torch.compiler.regions import marking


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class InLow(torch.nn.Module):
    """A function whose author asks for a low format."""

    def __init__(self, function: Any, to: str) -> None:
        super().__init__()
        self.layer, self.function, self.to = torch.nn.Linear(8, 8), function, to

    def forward(self, x: Any) -> Any:
        with precision(self.to):
            return self.function(self.layer(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda y: torch.cdist(y, y + 1),
        lambda y: torch.complex(y, y).abs(),
        lambda y: torch.polar(y.abs(), y).real,
        lambda y: torch.stft(y, 8, window=torch.ones(8), center=False, return_complex=True).abs(),
        lambda y: torch.fft.rfft(y).abs(),
        lambda y: torch.fft.irfft(torch.fft.rfft(y), n=8),
        lambda y: torch.nn.functional.avg_pool3d(y.reshape(1, 2, 2, 2, 4), 2),
        lambda y: torch.nn.functional.pdist(y),
        lambda y: torch.nn.functional.interpolate(y[None, None], (2, 4), mode="bilinear", antialias=True),
        lambda y: torch.nn.functional.interpolate(y[None, None], (2, 4), mode="bicubic", antialias=True),
        lambda y: torch.special.erfcx(y),
        lambda y: torch.special.log_ndtr(y),
    ],
    ids=(
        *("cdist", "complex", "polar", "stft", "rfft", "irfft", "avg_pool3d", "pdist", "bilinear", "bicubic"),
        *("erfcx", "log_ndtr"),
    ),
)
@pytest.mark.parametrize("to", ["bf16", "fp16"])
def test_they_run_in_fp32_wherever_they_stand(function: Any, to: str) -> None:
    torch.manual_seed(0)
    module, x = InLow(function, to).eval(), torch.randn(4, 8)
    torch._dynamo.reset()
    with marking():
        exported = mezzo.convert(torch.export.export(module, (x,)), to=to).model.module()
    right = module(x)
    for found in (exported(x), compiled(module, to=to, fullgraph=False)(x)):  # as it is written, and decomposed
        # The product rounds its operands and its result once; what stands behind it multiplies that by a few.
        assert float((found - right).abs().max()) <= 16 * 2**-8 * float(right.abs().max())


@pytest.mark.parametrize("to", ["bf16", "fp16"])
def test_an_lstm_runs_low_only_where_onednn_has_its_kernel(to: str) -> None:
    """PyTorch calls oneDNN's in FP32 on every CPU, and in BF16 if the CPU has the instructions."""
    torch.manual_seed(0)
    module, x = InLow(torch.nn.LSTM(8, 8), to).eval(), torch.randn(4, 8)
    torch._dynamo.reset()
    run = compiled(module, to=to, fullgraph=False)
    with torch._dynamo.config.patch(allow_rnn=True):
        assert error_of(run(x)[0], module(x)[0]) <= 16 * BF16_EPS  # as above: a product, and steps of time behind it
    (plan,) = account(run).plans
    assert plan is not None
    is_low = to == "bf16" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    (lstm,) = [node for node in plan.nodes if node.op == "mkldnn_rnn_layer"]
    assert str(lstm.precision.compute) == ("bf16" if is_low else "f32")


def test_a_program_that_computes_nothing_is_converted() -> None:
    class Nothing(torch.nn.Module):
        def forward(self) -> tuple[int, None]:
            return 3, None

    assert mezzo.convert(torch.export.export(Nothing(), ()), to="bf16").model.module()() == (3, None)
