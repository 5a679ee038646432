"""Gradients of compiled models beside FP64: figures, what stays as it was, what FP16 loses, and what people see."""

import copy
import json
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled
from torch import nn

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.torch.inspect.gradient_ranges import linear


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_errors_are_those_of_the_gradients() -> None:
    model = driving.Net()
    run = compiled(model)
    batches = [torch.randn(4, 32), torch.randn(4, 32)]
    found = mezzo.torch.compare_gradients(model, run, batches, loss=lambda made: made.square().sum())
    assert [one.name for one in found.weights] == [name for name, _ in model.named_parameters()]
    assert 0 < found.error < 4 * BF16_EPS
    assert found.eager < 2**-20
    exact = copy.deepcopy(model).double()
    wrong, size = 0.0, 0.0
    for batch in batches:
        model.zero_grad()
        exact.zero_grad()
        run(batch).square().sum().backward()
        exact(batch.double()).square().sum().backward()
        grad, want = model.down.weight.grad, exact.down.weight.grad
        assert grad is not None and want is not None
        wrong, size = wrong + float((grad - want).square().sum()), size + float(want.square().sum())
    by_name = {one.name: one for one in found.weights}
    assert by_name["down.weight"].error == pytest.approx((wrong / size) ** 0.5, rel=1e-6)


def test_the_model_keeps_its_gradients_and_its_buffers() -> None:
    model, x = driving.Conv().train(), torch.randn(4, 3, 8, 8)
    model(x).sum().backward()
    before = {name: one.grad for name, one in model.named_parameters()}
    held = {name: (one.data_ptr(), one.clone()) for name, one in model.named_buffers()}
    mezzo.torch.compare_gradients(model, compiled(model), [x + 1])
    assert all(one.grad is before[name] for name, one in model.named_parameters())
    for name, one in model.named_buffers():
        address, numbers = held[name]
        assert one.data_ptr() == address
        assert torch.equal(one, numbers)


class _Faint(nn.Module):
    """Its results are a millionth of what its layers make."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.up(x).tanh()) * 1e-6
        return made


def test_what_fp16_loses_is_told_and_a_scale_brings_it_back() -> None:
    model, x = _Faint(), torch.randn(8, 16)
    run = compiled(model, to="fp16")
    bare = mezzo.torch.compare_gradients(model, run, [x])
    by_name = {one.name: one for one in bare.weights}
    assert by_name["up.weight"].error > 0.5
    assert "scale the loss" in repr(bare)
    assert not bare.ranges.is_kept
    scale = bare.ranges.proposed
    scaled = mezzo.torch.compare_gradients(model, run, [x], loss=lambda made: linear(made) * scale)
    assert scaled.error < 4 * 2.0**-11
    assert scaled.ranges.is_kept
    assert scaled.ranges.proposed == 1.0


def test_a_loss_without_gradients_and_no_data_are_one_line() -> None:
    model = driving.Net()
    with pytest.raises(InputError, match=r"^data holds no batch; give one at least$"):
        mezzo.torch.compare_gradients(model, model, [])
    model.requires_grad_(False)
    with pytest.raises(InputError, match=r"^no weight of the model has a gradient; there is nothing to compare$"):
        mezzo.torch.compare_gradients(model, model, [torch.randn(2, 32, requires_grad=True)])


def test_dropout_is_told() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    assert mezzo.torch.compare_gradients(model.eval(), model, [torch.randn(2, 8)]).notes == ()
    (note,) = mezzo.torch.compare_gradients(model.train(), model, [torch.randn(2, 8)]).notes
    assert note == "dropout draws other masks in each of the three; set its p to 0 for this"


def test_what_people_see(monkeypatch: Any) -> None:
    """A model beside itself: no roundings but FP32's, so that figures are zero to the digit."""
    monkeypatch.setenv("COLUMNS", "100")
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(0.5)
    found = mezzo.torch.compare_gradients(model, model, [torch.full((1, 2), 2.0**-30)], loss=lambda made: made.sum())
    assert repr(found).splitlines() == [
        "GradientErrors: all together 0 from FP64; 0 is FP32's own, worst 0.weight 0",
        "  advice scale the loss by 2^10 (torch.amp.GradScaler); 2^7 to 2^14 keep all but 0.1 % of each, with room for "
        "twice the largest",
        "  next   print(errors)  # as a table",
    ]
    assert [line.split() for line in str(found).splitlines() if line.startswith(("  0.", "  1.", "0.", "1."))] == [
        ["0.weight", "0", "0", "0", "4.7e-10", "100", "%"],
        ["1.weight", "0", "0", "0", "9.3e-10", "100", "%"],
    ]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["format"] == "mezzo-gradient-errors/1"
    assert [one["name"] for one in told["weights"]] == ["0.weight", "1.weight"]
    assert "<table" in found._repr_html_()
    assert "0.weight" in found._repr_html_()
