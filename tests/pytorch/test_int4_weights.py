"""Weights of matmuls as INT4 in blocks: which ones, what they compute, and whose changes are seen."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo
import mezzo.torch
from mezzo.aten.blocks import DEQUANTIZE, ROUND, grids_of
from mezzo.common.errors import InputError
from mezzo.torch.compiler.compiled import account
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.onednn.kernels import reads_int4
from mezzo.torch.weights import block_products

# Operands, dequantized weights, products and answers are rounded to half an eps each, per layer.
_TOLERANCE = 2 * BF16_EPS
_TO = "int4,bf16"
needs_int4 = pytest.mark.skipif(not reads_int4(), reason="ATen has no fast INT4 kernel on this machine")


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _rounded(weight: torch.Tensor, axis: int = 1, block: int = 32) -> torch.Tensor:
    """A weight as it is dequantized, in FP32."""
    integers = ROUND(weight.detach(), block, axis, "k-quant")
    result: torch.Tensor = DEQUANTIZE(integers, list(weight.shape), list(weight.stride()), axis, torch.float32)
    return result


def _exact(model: nn.Module, x: torch.Tensor, **axes: int) -> torch.Tensor:
    """The answer in FP64 with dequantized weights. `axes`: of the blocks, by the weight's name."""
    held = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.replace(".", "_") in axes:
                weight.copy_(_rounded(weight, axes[name.replace(".", "_")]))
        answer: torch.Tensor = model.double()(x.double() if x.is_floating_point() else x)
        model.float()
        for name, weight in model.named_parameters():
            weight.copy_(held[name])
    return answer


class Turned(nn.Module):
    """A matmul whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 80)), nn.Parameter(torch.randn(80))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Tied(nn.Module):
    """An embedding whose table the head reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(100, 64), nn.Linear(64, 100, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(torch.tanh(self.table(ids)))
        return answer


class Twice(nn.Module):
    """A linear that is called for one row and for many."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.mix(torch.tanh(self.mix(x))[:1])
        return answer


_MODELS = {
    "linear": (lambda: nn.Linear(64, 80), {"weight": 1}),
    "linear without bias": (lambda: nn.Linear(64, 80, bias=False), {"weight": 1}),
    "odd number of features": (lambda: nn.Linear(64, 77), {"weight": 1}),
    "turned": (Turned, {"weight": 0}),
}


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("name", list(_MODELS))
def test_answers_are_those_of_dequantized_weights(name: str, is_frozen: bool) -> None:
    make, axes = _MODELS[name]
    model = make().eval()
    run = compiled(model, to=_TO, freeze=is_frozen, dynamic=False)
    for rows in (1, 4, 9):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            answer, fp32 = run(x), model(x)
        assert error_of(answer, _exact(model, x, **axes)) < _TOLERANCE < error_of(answer, fp32)
    graphs = account(run).graphs
    assert [len(graph.plan.in_blocks) for graph in graphs if graph.plan is not None] == [1, 1, 1]
    assert [graph.int4_products for graph in graphs] == ([1, 1, 0] if reads_int4() else [0, 0, 0])


@needs_int4
def test_inductor_calls_the_kernel_itself() -> None:
    model = nn.Sequential(nn.Linear(64, 77), nn.GELU(), nn.Linear(77, 64)).eval()
    run, x = mezzo.torch.compile(model, to=_TO), torch.randn(1, 3, 64)
    with torch.no_grad():
        assert error_of(run(x), _exact(model, x, **{"0_weight": 1})) < 2 * _TOLERANCE
    assert "1 weight in int4, for 1 matmul" in repr(account(run))  # 77 is no multiple of a block
    told = " ".join(repr(mezzo.torch.explain(run, "op:addmm")).split())
    assert "weight 0.weight: int4, 19.7 KB before," in told
    assert "weight 2.weight: stays in floats" in told and "torch-cpu reads whole blocks only" in told
    errors = mezzo.torch.compare(model, run, [(x,)])
    assert errors.outputs[0].error == pytest.approx(errors.layers[-1].error, rel=0.1)


@needs_int4
def test_rows_that_are_free_compute_in_bf16_and_one_row_in_int4() -> None:
    model = nn.Linear(64, 80).eval()
    run = compiled(model, to=_TO)
    for rows in (1, 7, 3, 12, 1):
        x = torch.randn(rows, 64)
        with torch.no_grad():
            assert error_of(run(x), _exact(model, x, weight=1)) < _TOLERANCE
    assert [graph.int4_products for graph in account(run).graphs] == [1, 0]
    assert "1 weight in int4, read in bf16 as rows are many" in repr(account(run))


def test_a_head_reads_int4_and_its_table_floats() -> None:
    model, ids = Tied().eval(), torch.tensor([[7]])
    run = compiled(model, to=_TO)
    table = model.table.weight.detach()
    with torch.no_grad():
        exact = torch.tanh(table[ids].double()) @ _rounded(table).double().t()
        assert error_of(run(ids), exact) < _TOLERANCE


def test_a_table_alone_stays_in_floats() -> None:
    run = compiled(nn.Embedding(100, 64), to=_TO)
    with torch.no_grad():
        run(torch.tensor([3]))
    assert not account(run).graphs[0].plan.in_blocks  # type: ignore[union-attr]  # it was planned


def test_a_linear_that_is_called_twice_is_rounded_once() -> None:
    model, x = Twice().eval(), torch.randn(9, 64)
    run = compiled(model, to=_TO)
    with torch.no_grad():
        assert error_of(run(x), _exact(model, x, mix_weight=1)) < 2 * _TOLERANCE


@pytest.mark.parametrize("rows", [1, 9])
def test_a_weight_that_changes_is_rounded_again(rows: int) -> None:
    model: Any = nn.Linear(64, 80).eval()
    run, x = compiled(model, to=_TO), torch.randn(rows, 64)
    with torch.no_grad():
        run(x)
        for change in (
            lambda: model.weight.mul_(-3),
            lambda: setattr(model, "weight", nn.Parameter(torch.randn_like(model.weight))),
            lambda: model.load_state_dict({key: one * 2 for key, one in model.state_dict().items()}),
            lambda: model.weight.data.mul_(2),  # seen by a sample of its elements
        ):
            before = model.state_dict()["weight"].clone()
            change()
            assert not torch.equal(before, model.weight)
            assert error_of(run(x), _exact(model, x, weight=1)) < _TOLERANCE
            run(x)
    assert list(model.state_dict()) == ["weight", "bias"]


def test_threads_share_a_rounded_weight() -> None:
    model = nn.Linear(64, 80).eval()
    run, x = mezzo.torch.compile(model, to=_TO), torch.randn(1, 64)
    with torch.no_grad():
        expected = run(x)
        model.weight.add_(0)  # rounded anew, by whoever comes first

        def call(_: int) -> torch.Tensor:
            with torch.no_grad():
                return run(x)  # type: ignore[no-any-return]

        with ThreadPoolExecutor(4) as pool:
            assert all(torch.equal(answer, expected) for answer in pool.map(call, range(16)))


def test_a_machine_without_the_kernel_has_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_products, "reads_int4", lambda: False)
    model, x = nn.Linear(64, 80).eval(), torch.randn(1, 64)
    run = compiled(model, to=_TO)
    with torch.no_grad():
        assert error_of(run(x), _exact(model, x, weight=1)) < _TOLERANCE
    assert account(run).graphs[0].int4_products == 0


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (nn.Linear(64, 32), {}),  # fewer than 4096 elements
        (nn.Linear(72, 80), {}),  # no whole blocks
        (nn.Linear(64, 80), {"exclude": ("*addmm*",)}),
        (nn.Linear(64, 80), {"policy": "off"}),
        (nn.Conv2d(64, 64, 1), {}),
    ],
)
def test_what_no_kernel_reads_stays_in_floats(model: nn.Module, options: dict[str, object]) -> None:
    x = torch.randn(1, 64, 3, 3) if isinstance(model, nn.Conv2d) else torch.randn(1, model.in_features)  # type: ignore[arg-type]  # a linear's
    run = compiled(model.eval(), to=_TO, **options)
    with torch.no_grad():
        assert error_of(run(x), model(x)) < _TOLERANCE
    assert not account(run).graphs[0].plan.in_blocks  # type: ignore[union-attr]  # it was planned


def test_training_and_weights_whose_changes_are_not_seen_keep_floats() -> None:
    model, x = nn.Linear(64, 80), torch.randn(1, 64)
    run = compiled(model, to=_TO)
    run(x).sum().backward()
    assert model.weight.grad is not None
    with torch.inference_mode():
        made = nn.Linear(64, 80).requires_grad_(False)
        inferring = compiled(made, to=_TO)
        assert error_of(inferring(x), made(x)) < _TOLERANCE
    for graph in (*account(run).graphs, *account(inferring).graphs):
        assert graph.plan is not None and not graph.plan.in_blocks


def test_weights_that_bodies_read_stay_in_floats() -> None:
    class Branched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = torch.cond(x.sum() > 0, self.mix, torch.neg, (x,))
            return answer

    model, x = Branched().eval(), torch.rand(1, 64)
    run = compiled(model, to=_TO)
    with torch.no_grad():
        assert error_of(run(x), model(x)) < _TOLERANCE


def test_integers_are_chosen_on_the_grid_as_it_is_stored() -> None:
    weight = torch.randn(48, 128) * torch.logspace(-3, 3, 48)[:, None]
    for name in ("nearest", "k-quant", "clip-search", "hqq"):
        integers = ROUND(weight, 64, 1, name)
        grids = grids_of(integers, 48, 128).float().transpose(0, 1)  # [rows, blocks, 2]
        scales, offsets = grids.unbind(2)
        floats = DEQUANTIZE(integers, [48, 128], [128, 1], 1, torch.float32).view(48, 2, 64)
        blocks = weight.view(48, 2, 64)
        levels = torch.arange(-8, 8)[:, None, None, None] * scales[..., None] + offsets[..., None]
        nearest = (levels - blocks).abs().amin(0)
        # Levels of a tie are as near, but for the rounding of the division.
        assert torch.all((floats - blocks).abs() <= nearest + 1e-5 * scales[..., None]), name


def test_offsets_are_fitted() -> None:
    weight = torch.randn(64, 256)
    lows, highs = weight.view(-1, 32).min(1)[0], weight.view(-1, 32).max(1)[0]
    scales = ((highs - lows) / 15)[:, None]
    nearest = ((weight.view(-1, 32) - lows[:, None]) / scales).round() * scales + lows[:, None]
    assert (_rounded(weight) - weight).norm() < 0.96 * (nearest.view(64, 256) - weight).norm()


def test_a_block_with_nan_is_nan_and_no_other() -> None:
    weight = torch.randn(16, 64)
    weight[3, 40] = torch.nan
    floats = _rounded(weight)
    assert floats[3, 32:].isnan().all() and int(floats.isnan().sum()) == 32


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("int4", 'reads weights in int4 with operands in bf16 alone; write to="int4,bf16"'),
        ("int4,fp16", 'reads weights in int4 with operands in bf16 alone; write to="int4,bf16"'),
    ],
)
def test_formats_without_a_kernel_are_refused(to: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mezzo.torch.compile(nn.Linear(64, 80), to=to)


def test_other_devices_and_exported_programs_are_refused() -> None:
    with pytest.raises(InputError, match="target 'torch-cuda' names no kernel that reads weights in int4"):
        read_settings({"to": _TO}).planning("cuda")
    with pytest.raises(InputError, match="a model in ATen is converted to fp16, bf16 or int8 alone"):
        mezzo.torch.export(nn.Linear(64, 80), (torch.randn(1, 64),), to=_TO)
