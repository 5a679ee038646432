"""Ranges of gradients: what a low format loses of them, the scale of the loss that keeps them, and that it does."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.numerics.ranges.gradient_ranges import LOSS_ALLOWED

HOSTILE = "</td><script>alert(1)</script>\x1b[31m"
FP16_SMALLEST, FP16_NORMAL, FP16_BEYOND = 2.0**-24, 2.0**-14, 65520.0


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Chain(nn.Module):
    """Two layers whose activations hand their gradients on as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.act(self.up(x)))
        return made


def _by_hand(model: Chain, batches: list[torch.Tensor], loss: Callable[[Any], Any]) -> dict[str, torch.Tensor]:
    """Every gradient of all batches in FP64, by name, with `retain_grad` instead of hooks."""
    exact, found = copy.deepcopy(model).double(), {}
    for batch in batches:
        exact.zero_grad()
        up = exact.up(batch.double())
        act = exact.act(up)
        down = exact.down(act)
        for one in (up, act, down):
            one.retain_grad()
        loss(down).backward()
        now = {"up": up, "act": act, "down": down, **dict(exact.named_parameters())}
        for name, one in now.items():
            assert one.grad is not None
            found[name] = torch.cat([found.get(name, torch.empty(0)), one.grad.flatten()])
    return found


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_those_of_all_numbers(seed: int) -> None:
    torch.manual_seed(seed)
    model, batches = Chain(), [torch.randn(4, 6), torch.randn(3, 6)]
    power = 2.0 ** float(torch.randint(-24, 24, ()))

    def loss(made: torch.Tensor) -> torch.Tensor:
        return (made * power).square().sum() * 2.0**-24

    scale = 3.0 ** float(torch.randint(-8, 8, ()))  # no power of two
    ranges = mezzo.torch.gradient_ranges(model, batches, loss=loss, scale=scale)
    told = {one.name: one for one in ranges.every}
    by_hand = _by_hand(model, batches, loss)
    assert told.keys() == by_hand.keys(), f"seed {seed}"
    for name, numbers in by_hand.items():
        sizes = numbers.abs()[numbers != 0]
        scaled, one = sizes * scale, told[name]
        found = (one.count, one.largest, one.below_normal, one.below_smallest, one.beyond)
        count = len(sizes)
        shares = [int(test.sum()) / count for test in (scaled < FP16_NORMAL, scaled < FP16_SMALLEST)]
        wanted = (count, float(scaled.max()), *shares, int((scaled >= FP16_BEYOND).sum()) / count)
        assert found == wanted, f"seed {seed}, {name}"
        assert sum(number for _, number in one.octaves) == count
        lost = [int((sizes * 2.0**at < FP16_SMALLEST).sum()) / count for at in range(-80, 120)]
        first = next(at for at, share in zip(range(-80, 120), lost, strict=True) if share <= LOSS_ALLOWED)
        assert one.keeps_from(ranges.dtype) == first, f"seed {seed}, {name}"
    largest = max(float(one.abs().max()) for one in by_hand.values())
    assert 2.0**ranges.most_power * largest * 2 <= 65504 < 2.0 ** (ranges.most_power + 1) * largest * 2, f"seed {seed}"


@pytest.mark.parametrize("exponent", [-60, -30, -8, 8, 20, 40])
def test_the_scale_proposed_keeps_them_and_overflows_nothing(exponent: int) -> None:
    model, x = driving.Net(), torch.randn(4, 32)

    def loss(made: torch.Tensor) -> torch.Tensor:
        return made.square().mean() * 2.0**exponent

    bare = mezzo.torch.gradient_ranges(model, [x], loss=loss)
    assert math.frexp(bare.proposed)[0] == 0.5, "a power of two"
    again = mezzo.torch.gradient_ranges(model, [x], loss=loss, scale=bare.proposed)
    assert again.is_kept
    assert again.proposed == again.scale == bare.proposed
    assert bare.is_kept is (exponent in (8, 20)), str(bare)


def test_where_no_scale_keeps_all_the_largest_is_proposed_and_what_needs_more_is_named() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.near, self.far = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.near(x) * 2.0**10 + self.far(x) * 2.0**-40
            return made

    ranges = mezzo.torch.gradient_ranges(Wide(), [torch.randn(8, 4)], loss=torch.sum)
    assert ranges.least_power > ranges.most_power
    assert ranges.proposed == 2.0**ranges.most_power
    said = str(ranges).splitlines()
    assert f"scale the loss by 2^{ranges.most_power} (torch.amp.GradScaler), and keep far.weight in FP32" in said
    power = ranges.least_power
    assert f"f16 keeps that from 2^{power} on alone, and near.bias has no room above 2^{ranges.most_power}" in said
    again = mezzo.torch.gradient_ranges(Wide(), [torch.randn(8, 4)], loss=torch.sum, scale=2.0**20)
    assert "overflow: 100 % of" in str(again)
    assert again.worst.beyond == 1


def test_a_training_whose_gradients_fp16_loses_is_kept_by_the_scale_proposed() -> None:
    """The mean over many numbers makes each gradient small: without a scale nothing is learned at all."""
    codes = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    x = codes @ torch.randn(4, 256, generator=torch.Generator().manual_seed(2)) * 0.00002

    def loss(made: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(made, x.to(made))

    ends = {}
    for way in ("FP32", "bare", "scaled"):
        torch.manual_seed(0)
        torch._dynamo.reset()
        model = nn.Sequential(nn.Linear(256, 8, bias=False), nn.Linear(8, 256, bias=False))
        with torch.no_grad():
            model[1].weight.mul_(0.01)
        scale = mezzo.torch.gradient_ranges(model, [x], loss=loss).proposed if way == "scaled" else 1.0
        ranges = mezzo.torch.gradient_ranges(model, [x], loss=loss, scale=scale)
        assert ranges.is_kept is (way == "scaled"), way
        run: Any = model if way == "FP32" else compiled(model, to="fp16")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-20)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=way == "scaled")
        first, before = float(loss(model(x)).detach()), model[0].weight.detach().clone()
        for _ in range(30):
            optimizer.zero_grad()
            scaler.scale(loss(run(x))).backward()
            scaler.step(optimizer)
            scaler.update()
        ends[way] = float(loss(model(x)).detach()) / first
        assert torch.equal(model[0].weight, before) is (way == "bare"), way
        assert way != "scaled" or scaler.get_scale() == scale, "no step overflowed"
    assert ends["FP32"] < 0.2 < 0.9 < ends["bare"]
    assert ends["scaled"] < 1.2 * ends["FP32"]


def test_the_model_stays_as_it_is_and_so_does_what_it_is_given() -> None:
    model, x = driving.Conv().train(), torch.randn(4, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    before = copy.deepcopy(model.state_dict())
    mezzo.torch.gradient_ranges(model, [x])
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())
    assert not x._backward_hooks
    assert not any(one._forward_hooks for one in model.modules())


def test_checkpointed_layers_and_layers_that_run_twice_are_counted_once_for_each_run() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: Any = checkpoint.checkpoint(self.layer, self.layer(x), use_reentrant=False)
            return torch.sin(made)

    ranges = mezzo.torch.gradient_ranges(Again(), [torch.randn(2, 4)])
    assert {one.name: one.count for one in ranges.activations} == {"": 8, "layer": 16}


def test_values_in_place_in_tuples_and_of_several_modules_have_one_name() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            made = self.inner(x)
            return {"made": made, "both": (made * 2, x.argmax())}

    ranges = mezzo.torch.gradient_ranges(Pair(), [{"x": torch.randn(3, 4)}])
    assert [one.name for one in ranges.activations] == ["", "inner.1", "inner.0"]
    assert [one.name for one in ranges.weights] == ["inner.0.weight", "inner.0.bias"]


class _Between(nn.Module):
    """Two layers, and what a function does between them."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.between = nn.Linear(8, 8), nn.Linear(8, 8), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.between(self.up(x)))
        return made


def test_a_gradient_that_is_lost_between_two_modules_is_found() -> None:
    """Whatever the modules hand on has gradients that FP16 keeps; what is multiplied in between has none."""
    model, x = _Between(lambda x: (x * 2.0**30).sin() / 2.0**30), torch.randn(4, 8)
    ranges = mezzo.torch.gradient_ranges(model, [x], loss=torch.sum)
    assert [(one.name, one.op) for one in ranges.activations] == [
        ("down", ""), ("", "div"), ("", "sin"), ("", "mul"), ("up", "")
    ]  # fmt: skip
    lost = {one.op for one in ranges.activations if one.below_smallest > 0.5}
    assert lost == {"sin", "mul"}
    assert not ranges.is_kept
    assert ranges.proposed >= 2.0**5
    assert "of what sin makes" in str(ranges)
    told: Any = ranges.to_dict()
    assert {one["op"] for one in told["activations"]} == {"", "div", "sin", "mul"}


@pytest.mark.parametrize(
    ("between", "ops"),
    [
        (lambda x: x.view(-1, 4).t().contiguous().t().reshape(-1, 8), []),
        (lambda x: 2 / (x.detach().abs() + 1) * x, ["mul"]),
        (lambda x: 2 * x - 1, ["sub", "mul"]),
        (lambda x: functional.softmax(x, -1) @ torch.eye(8, dtype=x.dtype), ["matmul", "softmax"]),
        (lambda x: functional.gelu(x).mul_(2), ["mul", "gelu"]),
        (lambda x: functional.scaled_dot_product_attention(x, x, x), ["scaled_dot_product_attention"]),
        (lambda x: checkpoint.checkpoint(torch.sin, x, use_reentrant=False), ["sin"]),
    ],
    ids=["moves", "constants", "from the right", "products", "in place", "attention", "checkpoint"],
)
def test_functions_between_modules_are_named_by_what_they_compute(
    between: Callable[[torch.Tensor], torch.Tensor], ops: list[str]
) -> None:
    ranges = mezzo.torch.gradient_ranges(_Between(between), [torch.randn(4, 8)], loss=lambda made: made.exp().sum())
    assert [one.op for one in ranges.activations if one.op] == ops
    assert {one.count for one in ranges.activations} == {32}


def test_a_forward_that_raises_leaves_no_hooks_and_no_mode() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no layer")

    with pytest.raises(ValueError, match="no layer"):
        mezzo.torch.gradient_ranges(_Between(fails), [torch.randn(4, 8)])
    assert torch._C._len_torch_function_stack() == 0


def test_gradients_that_are_no_numbers_are_told_and_counted_apart() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.layer(x).sqrt()
            return made

    model = Root()
    with torch.no_grad():
        model.layer.weight.copy_(torch.eye(2))
    ranges = mezzo.torch.gradient_ranges(model, [torch.tensor([[0.0, 4.0]])], loss=torch.sum)
    layer = next(one for one in ranges.activations if one.name == "layer")
    assert (layer.count, layer.is_finite, layer.octaves) == (1, False, ((-2, 1),))
    assert "what layer hands on first: not finite in FP64 itself" in str(ranges)
    json.dumps(ranges.to_dict(), allow_nan=False)


def test_errors_are_one_line() -> None:
    model, x = driving.Net(), torch.randn(2, 32)
    cases: list[tuple[str, Any]] = [
        ("data holds no batch; give one at least", {"data": []}),
        ("scale is 0; give a number above 0, such as GradScaler.get_scale() or 65536", {"scale": 0}),
        ("scale is nan; give a number above 0, such as GradScaler.get_scale() or 65536", {"scale": math.nan}),
        ("scale is True; give a number above 0, such as GradScaler.get_scale() or 65536", {"scale": True}),
        ("data is a Tensor, which is one batch; give a list of batches: [data]", {"data": x}),
        ("data is a dict, which is one batch; give a list of batches: [data]", {"data": {"x": x}}),
        ("to is 'fp61'; did you mean 'fp16'? choose one of fp16, bf16", {"to": "fp61"}),
    ]
    for said, given in cases:
        with pytest.raises(InputError) as caught:
            mezzo.torch.gradient_ranges(model, **{"data": [x], **given})
        assert str(caught.value) == said
    with pytest.raises(InputError, match=r"^no weight of the model has a gradient; there is nothing to compare$"):
        mezzo.torch.gradient_ranges(model.requires_grad_(False), [x])


def test_modules_of_a_compiled_model_are_called_as_their_model_calls_them() -> None:
    model = driving.Net()
    found = mezzo.torch.gradient_ranges(driving.compiled(model), [torch.randn(2, 32)])
    wanted = mezzo.torch.gradient_ranges(model, [torch.randn(2, 32)])
    assert [one.name for one in (*found.activations, *found.weights)] == [
        one.name for one in (*wanted.activations, *wanted.weights)
    ]


def test_what_people_see(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    model = nn.Sequential()
    model.add_module(HOSTILE, nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.5)
    ranges = mezzo.torch.gradient_ranges(model, [torch.full((1, 2), 2.0**-30)], loss=lambda made: made.sum())
    assert [line.split() for line in str(ranges).splitlines()] == [
        line.split()
        for line in (
            "gradients over 1 batch in f16, the loss times 1",
            "",
            "2 gradients",
            "gradient of                               largest  below normal  below smallest  overflows  kept from",
            r"what </td><s.../script>\x1b[31m hands on  1.0e+00           0 %             0 %        0 %      2^-24",
            "<.weight                                  9.3e-10         100 %           100 %        0 %        2^6",
            r"1 gradient has numbers that f16 has none for: 100 % of </td><script>alert(1)</script>\x1b[31m.weight",
            "scale the loss by 2^10 (torch.amp.GradScaler)",
            "2^6 to 2^14 keep all but 0.1 % of each, with room for twice the largest",
        )
    ]
    page = ranges._repr_html_()
    assert "<table" in page and "<script" not in page
    told = json.loads(json.dumps(ranges.to_dict(), allow_nan=False))
    assert told["format"] == "mezzo-gradient-ranges/1"
    assert [one["count"] for one in told["activations"]] == [1]
