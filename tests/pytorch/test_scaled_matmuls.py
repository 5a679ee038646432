"""INT8 as GPUs run it: matmuls of S8 whose sums are scaled. Here they run on the CPU, which ATen has them for too."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import generate_no_code
from torch import nn

import mezzo.torch
from mezzo.aten.edit import apply
from mezzo.aten.model import TorchModel
from mezzo.aten.opening import open_model
from mezzo.aten.read.retype import fake_mode_of
from mezzo.formats.quantization import Quantization
from mezzo.planner.options import replay_options
from mezzo.torch import scaled_matmuls
from mezzo.torch.compiler.compiled import account
from mezzo.torch.compiler.rewriting import rewrite
from mezzo.torch.scaled_matmuls import INT_MM, multiplies_integers
from mezzo.torch.weights.int8_products import call_int8_kernels

pytestmark = pytest.mark.skipif(not multiplies_integers(), reason="_int_mm is wrong on this machine")

# A step is 1/255 of a range of some eight standard deviations, in each of two products and their operands.
ERROR = 6 / 32 / 3


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Turned(nn.Module):
    """A matmul whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 48) / 8), nn.Parameter(torch.randn(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(64, 48),
    "without a bias": lambda: nn.Linear(64, 48, bias=False),
    "turned": Turned,
    "layers": lambda: nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64), nn.LayerNorm(64)),
}


def rows(count: int, seed: int = 99) -> torch.Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(seed))


def int8(module: nn.Module, *, is_dynamic: bool = False, to: str = "int8", **options: Any) -> Any:
    how: dict[str, Any] = {"calibrator": "none"} if is_dynamic else {"data": [rows(16, seed) for seed in range(8)]}
    if options.get("freeze") and not is_dynamic:
        how["correct"] = "none"
    return mezzo.torch.compile(module.eval(), to=to, target="torch-cuda", **how, **options)


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    return float((found - right).norm() / right.norm())


def in_integers(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x / scale).round().clamp(-128, 127)


@pytest.mark.parametrize("count", [1, 16, 17, 40])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_the_numbers_are_those_of_s8_by_s8(count: int, is_frozen: bool) -> None:
    module, x = nn.Linear(64, 48), rows(count)
    run = int8(module, freeze=is_frozen)
    answer = run(x)
    (plan,) = run.plans
    (of_x,) = [how for _, how in plan.quantized if how.axis is None]
    assert (str(of_x.dtype), of_x.zero_points) == ("i8", (0,))
    scale = torch.tensor(of_x.scales[0], dtype=torch.float64)
    steps = module.weight.double().abs().amax(1) / 127
    integers = in_integers(x.double(), scale) @ in_integers(module.weight.double(), steps[:, None]).t()
    exact = integers * scale * steps + module.bias.double()
    # Scales are rounded to FP32, their product, and its product with the sum: four roundings; the bias adds one.
    assert torch.allclose(answer.double(), exact, rtol=0, atol=5 * 2**-24 * float(exact.abs().max()))
    assert account(run).graphs[0].int8_products == 1


@pytest.mark.parametrize("to", ["int8", "int8,bf16"])
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_planned_matmuls_run_in_int8(
    name: str, is_frozen: bool, is_dynamic: bool, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_no_code(monkeypatch)
    module = NETWORKS[name]()
    run = int8(module, is_dynamic=is_dynamic, to=to, freeze=is_frozen)
    for count in (1, 24):
        assert 0.0 < error(run(rows(count)), module(rows(count))) < ERROR
    planned = [node for node in run.plans[0].nodes if str(node.precision.compute) == "int8" and node.op != "permute"]
    assert account(run).graphs[0].int8_products == len([node for node in planned if node.op in ("mm", "addmm")])
    assert planned or to == "int8,bf16"


@pytest.mark.parametrize("counts", [(24, 3, 40), (24,)])
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_inductor_generates_what_scales_the_sums(is_frozen: bool, is_dynamic: bool, counts: tuple[int, ...]) -> None:
    """Frozen, a pattern of PyTorch's would make oneDNN's matmul of it, which GPUs have not."""
    module = NETWORKS["layers"]()
    run = int8(module, is_dynamic=is_dynamic, freeze=is_frozen, dynamic=len(counts) > 1)
    for count in counts:
        assert 0.0 < error(run(rows(count)), module(rows(count))) < ERROR
    assert len(account(run).graphs) == 1
    assert account(run).graphs[0].int8_products == 2


def test_a_weight_that_changes_is_quantized_again(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    module, x = NETWORKS["turned"](), rows(24)
    run = int8(module)
    before = run(x)
    cast("torch.Tensor", module.weight).mul_(-3.0)
    assert error(run(x), module(x)) < ERROR
    assert error(before, module(x)) > 1
    assert account(run).graphs[0].packed == ("weight",)


def test_sizes_that_no_kernel_has_stay_in_floats_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(64, 30), nn.Linear(30, 64))
    run = int8(module)
    assert torch.allclose(run(rows(24)), module(rows(24)), atol=1e-5)
    reasons = {node.because for node in run.plans[0].nodes if node.op == "addmm"}
    assert reasons == {"INT8 matmuls on GPUs are of multiples of 8 features and inputs"}
    monkeypatch.setattr(scaled_matmuls, "INT_MM", lambda x, matrix: torch.zeros(32, 32, dtype=torch.int32))
    multiplies_integers.cache_clear()
    assert not multiplies_integers()
    monkeypatch.undo()
    multiplies_integers.cache_clear()


@pytest.mark.parametrize("count", [3, 16, 17, 24, None])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_gpu_has_all_values_and_rows_enough(
    is_dynamic: bool, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value of a graph of tensors on a GPU, of which there are fakes alone here, stays there. cuBLASLt refuses
    fewer than 17 rows.
    """
    how: dict[str, Any] = {"calibrator": "none"} if is_dynamic else {"data": [{"input": rows(count or 24).numpy()}]}
    sizes = {"input": {0: torch.export.Dim("rows", max=4096)}} if count is None else None
    example = (rows(count or 24),)
    exported = torch.export.export(NETWORKS["layers"]().eval(), example, dynamic_shapes=sizes).run_decompositions()
    plan = mezzo.convert(cast("Any", exported), to="int8", target="torch-cuda", check=False, correct="none", **how).plan
    program = cast("TorchModel", open_model(exported, progress=None)).original
    mode = fake_mode_of(program.graph)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            with mode:
                node.meta["val"] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda")

    def fakes_of(how: Quantization, device: torch.device) -> list[torch.Tensor]:
        with mode:
            return [torch.empty(len(how.scales), dtype=dtype, device=device) for dtype in (torch.float32, torch.int64)]

    monkeypatch.setattr(apply, "tensors_of", fakes_of)
    rewrite(program, replay_options({}, plan), plan)
    call_int8_kernels(program.graph, {}, are_scaled=True)
    values = [node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
    products = [node for node in program.graph.nodes if node.target is INT_MM]
    fed_rows = program.graph.find_nodes(op="placeholder")[-1].meta["val"].shape[0]
    added = [int(node.meta["val"].shape[0] - fed_rows) for node in products]
    assert added == [16 if count is None else max(17 - count, 0)] * 2
    assert {value.device.type for value in values} == {"cuda"}
