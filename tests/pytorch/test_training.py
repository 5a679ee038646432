"""Training: joint graphs planned as one, right gradients, and what PyTorch lets a training step do."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
import training_laws
from driving import BF16_EPS, compiled, error_of, plain
from torch import nn
from torch.utils import checkpoint
from training_laws import distance, judge_training

import mezzo.torch
from mezzo.formats.dtypes import DType
from mezzo.torch.compiler.compiled import account

# Forward and backward are up to eight products in a row; each rounds its operands and its result once.
_TOLERANCE = 24 * BF16_EPS
_JUMPS = 89  # the seed of a random program


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _direction(made: torch.Tensor) -> torch.Tensor:
    return torch.randn(made.shape, generator=torch.Generator().manual_seed(1)).to(made.dtype)


def _gradients(model: nn.Module, run: Callable[..., torch.Tensor], feed: torch.Tensor) -> dict[str, torch.Tensor]:
    made = run(feed)
    (made * _direction(made)).sum().backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def _models() -> list[tuple[type[nn.Module], Callable[[], Any]]]:
    return [
        (driving.Net, lambda: torch.randn(4, 32)),
        (driving.Conv, lambda: torch.randn(4, 3, 8, 8)),
        (driving.Gated, lambda: torch.randn(4, 7, 32)),
    ]


@pytest.mark.parametrize(("kind", "feed"), _models(), ids=lambda one: getattr(one, "__name__", "feed"))
def test_gradients_err_no_more_than_under_autocast(kind: Any, feed: Any) -> None:
    model = kind().train()
    start, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    run, x = compiled(model), feed()
    found, wanted = _gradients(model, run, x), _gradients(exact, exact, x.double())
    assert {name: one.dtype for name, one in found.items()} == dict.fromkeys(wanted, torch.float32)
    beside = copy.deepcopy(start)
    with torch.autocast("cpu", torch.bfloat16):
        by_autocast = _gradients(beside, beside, x)
    assert 0 < distance(found, wanted) <= 1.05 * distance(by_autocast, wanted)
    for name, held in model.named_buffers():
        assert error_of(held, exact.get_buffer(name)) < _TOLERANCE, name
    (graph,) = account(run).graphs
    assert graph.plan is not None
    assert graph.shadows == ()


def test_forward_and_backward_are_one_plan_with_names_that_tell_them_apart() -> None:
    model = driving.Net().train()
    run = compiled(model)
    run(torch.randn(4, 32)).sum().backward()
    (plan,) = account(run).plans
    assert plan is not None
    formats = {node.name: node.precision.compute for node in plan.nodes}
    assert formats["up/addmm"] is DType.BFLOAT16
    assert formats["up/backward/mm"] is DType.BFLOAT16
    assert formats["output gradient of up.weight"] is DType.FLOAT32


def test_where_memory_weighs_low_copies_of_weights_are_not_kept_for_the_backward() -> None:
    """What they are cast from lives in any case: the backward casts it again."""
    model = driving.Net().train()
    run, x = compiled(model, memory=0.9), torch.randn(4, 32)
    run(x)
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = run(x)
    shapes = [tuple(one.shape) for one in kept if one.dtype is torch.bfloat16]
    assert shapes, "activations are kept low"
    assert not {(32, 64), (64, 32)}.intersection(shapes)
    made.sum().backward()


class _Twice(torch.autograd.Function):
    """Its derivative is its author's: three times what it should be."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = context.saved_tensors
        made: torch.Tensor = gradient * x * 6
        return made


class _Ways(nn.Module):
    """Two layers, and a way from the first to the second."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.up, self.down, self.way = nn.Linear(16, 32), nn.Linear(32, 16), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.way:
            case "checkpoint":
                held = checkpoint.checkpoint(lambda x: self.up(x).tanh(), x, use_reentrant=False)
            case "function":
                held = _Twice.apply(self.up(x))
            case "inplace":
                held = self.up(x).mul_(0.5).relu_()
            case "detached":
                held = self.up(x) + self.up(x).detach()
            case "branch":
                held = torch.cond(x.sum() > 1e9, lambda x: self.up(x) * 2, lambda x: self.up(x).sin(), (x,))
            case _:
                held = self.up(x)
                if self.way == "break":
                    torch._dynamo.graph_break()
        made: torch.Tensor = self.down(held)
        return made


@pytest.mark.parametrize("way", ["plain", "checkpoint", "function", "inplace", "detached", "branch", "break"])
def test_what_trains_under_torch_compile_trains_here(way: str) -> None:
    model = _Ways(way).train()
    exact = copy.deepcopy(model).double()
    x = torch.randn(8, 16)
    run = compiled(model, fullgraph=False)
    found, wanted = _gradients(model, run, x), _gradients(exact, exact, x.double())
    for name, one in wanted.items():
        assert error_of(found[name], one) < _TOLERANCE, name
    assert all(plan is not None for plan in account(run).plans)


def test_gradients_add_up_over_several_steps_of_several_shapes() -> None:
    model = driving.Net().train()
    exact = copy.deepcopy(model).double()
    run = compiled(model)
    for rows in (4, 6, 4):
        x = torch.randn(rows, 32)
        found, wanted = _gradients(model, run, x), _gradients(exact, exact, x.double())
    for name, one in wanted.items():
        assert error_of(found[name], one) < _TOLERANCE, name


def test_weights_that_are_not_trained_have_no_gradient() -> None:
    model = driving.Net().train()
    model.up.requires_grad_(False)
    exact = copy.deepcopy(model).double()
    run, x = compiled(model), torch.randn(4, 32)
    found, wanted = _gradients(model, run, x), _gradients(exact, exact, x.double())
    assert found.keys() == wanted.keys() == {"norm.weight", "norm.bias", "down.weight", "down.bias"}
    for name, one in found.items():
        assert error_of(one, wanted[name]) < _TOLERANCE, name


@pytest.mark.parametrize("kind", ["foreach", "fused", "compiled"])
def test_a_loop_of_steps_and_evaluations_goes_where_eager_goes(kind: str) -> None:
    """Losses of two runs part by roundings alone, and evaluations see what the steps have changed."""
    images, wanted = torch.randn(32, 32), torch.randn(32, 32)

    def losses(model: nn.Module, run: Any) -> list[float]:
        options = {kind: True} if kind != "compiled" else {}
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, **options)
        step = torch.compile(optimizer.step, backend="aot_eager") if kind == "compiled" else optimizer.step
        told = []
        for _ in range(6):
            optimizer.zero_grad()
            nn.functional.mse_loss(run(images), wanted).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            step()
            with torch.no_grad():
                told.append(nn.functional.mse_loss(run(images), wanted).item())
        return told

    model = driving.Net()
    other = copy.deepcopy(model)
    planned, eager = losses(model, compiled(model)), losses(other, other)
    assert eager[-1] < 0.9 * eager[0], "it learns"
    assert planned == pytest.approx(eager, rel=0.02)


def test_masks_of_dropout_are_those_of_plain_compile() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.5), nn.Linear(64, 64, bias=False), nn.Dropout(0.5))
    x = torch.randn(16, 32)

    def zeros(run: Any) -> torch.Tensor:
        torch.manual_seed(3)
        return run(x) == 0

    planned = zeros(compiled(model))
    torch._dynamo.reset()
    wanted = zeros(plain(model))
    assert 0.4 < planned.double().mean() < 0.6
    assert torch.equal(planned, wanted)


def test_fp16_with_a_scaler_keeps_what_would_underflow() -> None:
    """Gradients of 1e-8 are zero in FP16, and what the scaler multiplies them by brings them back."""
    model = driving.Net().train()
    exact, x = copy.deepcopy(model).double(), torch.randn(4, 32)
    run = compiled(model, to="fp16")
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler.scale(run(x).mean() * 1e-6).backward()
    scaler.unscale_(optimizer)
    (exact(x.double()).mean() * 1e-6).backward()
    for name, one in model.named_parameters():
        wanted = exact.get_parameter(name).grad
        assert one.grad is not None and wanted is not None
        assert error_of(one.grad, wanted) < _TOLERANCE, name


def test_a_region_holds_in_the_backward_of_what_it_covers() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with mezzo.torch.keep():
                held = self.up(x)
            made: torch.Tensor = self.down(held.tanh())
            return made

    model = Kept()
    run = compiled(model)
    run(torch.randn(4, 16, requires_grad=True)).sum().backward()
    (plan,) = account(run).plans
    assert plan is not None
    formats = {
        node.name: node.precision.compute for node in plan.nodes if node.name.split("/")[-1].startswith(("mm", "addmm"))
    }
    low = {name for name, dtype in formats.items() if dtype is DType.BFLOAT16}
    assert low == {"down/addmm", "down/backward/mm", "down/backward/mm#1"}
    assert formats.keys() - low == {"up/addmm", "up/backward/mm", "up/backward/mm#1"}


def test_the_users_autocast_is_left_as_it_is_in_the_backward_too() -> None:
    model = driving.Net().train()
    exact = copy.deepcopy(model).double()
    run, x = compiled(model), torch.randn(4, 32)
    with torch.autocast("cpu", torch.bfloat16):
        made = run(x)
    (made * _direction(made)).sum().backward()
    _gradients(exact, exact, x.double())
    for name, one in model.named_parameters():
        wanted = exact.get_parameter(name).grad
        assert one.grad is not None and wanted is not None
        assert error_of(one.grad, wanted) < _TOLERANCE, name


def test_a_second_derivative_fails_as_under_plain_compile() -> None:
    def raised(run: Any) -> str:
        x = torch.randn(4, 32, requires_grad=True)
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError) as caught:
            first.sum().backward()
        return str(caught.value)

    model = driving.Net()
    planned = raised(compiled(model))
    torch._dynamo.reset()
    assert planned == raised(plain(model))


class _Counting(nn.Module):
    """What it reads, it writes: a count, and numbers that the trained weights make."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)
        self.count: torch.Tensor
        self.held: torch.Tensor
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("held", torch.randn(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.up(x) * (self.count % 3 + 1)
        self.count.add_(1)
        answer = (made + self.held).sin()
        self.held.copy_(made)
        return answer


def test_buffers_that_are_written_do_not_spoil_gradients() -> None:
    """Plain torch.compile multiplies by the count as it was after the step, or refuses."""
    model = _Counting()
    exact = copy.deepcopy(model).double()
    run, x = compiled(model), torch.randn(8, 16)
    found, wanted = _gradients(model, run, x), _gradients(exact, exact, x.double())
    for name, one in found.items():
        assert error_of(one, wanted[name]) < _TOLERANCE, name


@pytest.mark.parametrize("seed", range(8))
def test_gradients_of_random_programs_err_as_under_autocast_at_most(seed: int) -> None:
    verdict = judge_training(seed, "bf16" if seed % 2 else "fp16", memory=(None, 0.5, 0.9, 1.0)[seed % 4])
    assert verdict.is_right, verdict


@pytest.mark.slow
def test_gradients_that_are_over_in_one_draw_of_jumps_are_judged_by_others() -> None:
    """A ReLU behind a batch norm: with this seed more numbers fall on the other side than under autocast."""
    verdict = judge_training(_JUMPS, "bf16")
    assert verdict.is_right, verdict
    assert verdict.error > 1.05 * verdict.beside, "this draw is over, or nothing was drawn again"


@pytest.mark.slow
def test_gradients_that_are_over_in_every_draw_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(model: nn.Module, **options: Any) -> Any:
        run = compiled(model, **options)
        return lambda *given: tuple(one * 1.05 if one.is_floating_point() else one for one in run(*given))

    monkeypatch.setattr(training_laws, "compiled", scaled)
    verdict = judge_training(_JUMPS, "bf16")
    assert not verdict.is_right
    assert "other draws" in str(verdict.failure), verdict
