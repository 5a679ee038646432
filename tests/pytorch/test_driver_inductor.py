"""torch.compile's driver with the code that Inductor generates: caches of a second process, freezing, the name."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, error_of

import mezzo.torch
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.kernels import packs

pytestmark = pytest.mark.slow
_TOLERANCE = 12 * BF16_EPS  # as where no code is generated
_PROCESS = """
import torch, driving, mezzo.torch
from torch._dynamo.utils import counters
torch.manual_seed(0)
model, x = driving.Net().eval(), torch.randn(4, 32)
run = mezzo.torch.compile(model, fullgraph=True, policy={policy!r})
with torch.no_grad():
    y = run(x)
graph = mezzo.torch.account(run).graphs[0]
print(y.double().sum().item(), graph.casts, graph.shadows, graph.plan.edits, len(mezzo.torch.account(run).graphs))
print(counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)


def _in_a_process(cache: Path, policy: str = "balanced") -> tuple[str, str]:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join((str(root / "src"), str(root / "tests" / "pytorch")))
    env = {**os.environ, "PYTHONPATH": paths, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", _PROCESS.format(policy=policy)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    told, hits = ran.stdout.strip().splitlines()
    return told, hits


def test_a_warm_cache_gives_the_same_answer_plan_and_account(tmp_path: Path) -> None:
    first, cold = _in_a_process(tmp_path / "cache")
    second, warm = _in_a_process(tmp_path / "cache")
    assert (cold, warm) == ("0 0", "1 0")
    assert second == first


def test_freeze_folds_weights_at_every_shape() -> None:
    model = driving.Net().eval()
    run = mezzo.torch.compile(model, freeze=True, dynamic=False)
    with torch.no_grad():
        for n in (4, 6):
            x = torch.randn(n, 32)
            assert error_of(run(x), model(x)) < _TOLERANCE
        model.up.weight.mul_(-3)
        assert error_of(run(x), model(x)) > 0.05, "a frozen weight is a constant"
    assert [graph.shadows for graph in account(run).graphs] == [(), ()]
    assert all(graph.plan is not None for graph in account(run).graphs)


def test_the_backend_answers_to_its_name() -> None:
    model = driving.Net().eval()
    run = torch.compile(model, backend="mezzo", options={"to": "bf16", "epilogue_fusion": True})
    with torch.no_grad():
        x = torch.randn(4, 32)
        assert 0 < error_of(run(x), model(x)) < _TOLERANCE


class Products(torch.nn.Module):
    """Every kind of product that reads a packed weight."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.first, self.apart = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.norm, self.grouped = nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3, dilation=2, groups=2)
        self.deep, self.head = nn.Conv3d(1, 2, 3), nn.Linear(15, 5)
        self.turned, self.shift = nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.apart(self.first(x))))
        y = torch.nn.functional.max_pool2d(self.grouped(y), 2)
        y = self.deep(y.unsqueeze(1)).flatten(0, 2).flatten(1)
        return torch.addmm(self.shift, torch.nn.functional.gelu(self.head(y)), self.turned)


def test_generated_code_multiplies_by_packed_weights_and_sees_them_change() -> None:
    model = Products().eval()
    run = mezzo.torch.compile(model, fullgraph=True)
    with torch.no_grad():
        x = torch.randn(2, 3, 40, 32)
        for _ in range(2):
            assert 0 < error_of(run(x), model(x)) < 2 * _TOLERANCE  # six products in a row
            for weight in model.parameters():
                weight.copy_(torch.randn_like(weight) / weight[0].numel() ** 0.5)
        model.head = torch.nn.Linear(15, 5)
        assert 0 < error_of(run(x), model(x)) < 2 * _TOLERANCE
    packed = {f"{name}.weight" for name in ("first", "apart", "grouped", "deep", "head")} | {"turned"}
    assert set(account(run).graphs[0].packed) == (packed if packs(torch.bfloat16) else set())


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_generated_results_have_the_strides_of_eager(memory_format: Any, freeze: bool) -> None:
    check_strides(memory_format, freeze)


def test_generated_results_have_the_strides_of_eager_if_weights_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU for which oneDNN packs none: channels-last copies of weights give channels-last results."""
    monkeypatch.setattr("mezzo.torch.compiler.backend.packs", lambda dtype: False)
    check_strides(torch.contiguous_format, freeze=False)


def check_strides(memory_format: Any, freeze: bool) -> None:
    model = driving.Strides().eval().to(memory_format=memory_format)
    run, x = mezzo.torch.compile(model, freeze=freeze), torch.randn(2, 4, 9, 8).to(memory_format=memory_format)
    with torch.no_grad():
        for found, wanted in zip(run(x), model(x), strict=True):
            assert found.stride() == wanted.stride()
            assert error_of(found, wanted) < _TOLERANCE
