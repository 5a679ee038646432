"""Sums of products in low precision: what tiles do to them, in both passes, beside sums written out by hand."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn
from torch.nn import functional

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.torch.compiler.compiled import account
from mezzo.torch.train.sums import accumulating, tiles

_ALL = 1 << 20
_AFTER = 64  # ones are no longer seen in BF16 beside 256


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _by_hand(one: torch.Tensor, other: torch.Tensor, tile: int) -> torch.Tensor:
    total = torch.zeros(one.shape[0], other.shape[1], dtype=torch.bfloat16)
    for begin in range(0, one.shape[1], tile):
        part = one[:, begin : begin + tile].double() @ other[begin : begin + tile].double()
        total = (total.double() + part.bfloat16().double()).bfloat16()
    return total


@pytest.mark.parametrize("tile", [1, 3, 8, 50])
def test_tiles_are_rounded_and_so_are_their_sums(tile: int) -> None:
    one, other = torch.randn(5, 23).bfloat16(), torch.randn(23, 7).bfloat16()
    assert torch.equal(tiles.PRODUCT(one, other, tile), _by_hand(one, other, tile))


def test_sums_of_ones_stop_where_one_is_no_longer_seen() -> None:
    ones = torch.ones(1, 300 + _AFTER).bfloat16()
    assert float(tiles.PRODUCT(ones, ones.T, 1)) == 256
    assert float(tiles.PRODUCT(ones, ones.T, 4)) == 300 + _AFTER
    # oneDNN's kernels sum in FP32; without them PyTorch rounds gradients of convolutions image by image.
    assert accumulating.sums_are_wide(torch.bfloat16, "cpu") == torch.ops.mkldnn._is_mkldnn_bf16_supported()


class _Stack(nn.Module):
    """Products of all kinds that are emulated."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2, dilation=2, padding=2, bias=False)
        self.sequence = nn.Conv1d(8, 4, 5, padding=2)
        self.last = nn.Linear(4, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequence = self.sequence(self.grouped(self.image(x).relu()).flatten(2))
        return self.last((sequence @ sequence.mT @ sequence).mT)


def _gradients(run: Callable[..., torch.Tensor], model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.zero_grad()
    given = x.detach().requires_grad_()
    run(given).square().mean().backward()
    assert given.grad is not None
    return torch.cat([one.flatten() for one in (given.grad, *(held.grad for held in model.parameters()))])  # type: ignore[union-attr]


@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
def test_one_tile_for_all_is_what_the_machine_does_and_smaller_ones_err_more(is_last: bool) -> None:
    model = _Stack()
    x = torch.randn(4, 3, 16, 16).contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)
    exact = _Stack().double()
    exact.load_state_dict(model.state_dict())
    wanted = _gradients(exact, exact, x.double())
    gradients = []
    for options in ({}, {"tile": _ALL}, {"tile": 4}, {}):
        torch._dynamo.reset()
        asked = {"accumulate": "bf16", **options} if gradients else options
        run = compiled(model, **asked)
        gradients.append(_gradients(run, model, x).double())
        assert account(run).graphs[0].native_sums == ()
    native, whole, some, none = gradients
    assert error_of(whole, wanted) == pytest.approx(
        error_of(native, wanted), rel=0.25
    )  # the order of FP32 sums alone differs, and what is rounded on the way
    far = [float((each - whole).norm() / whole.norm()) for each in (some, none)]
    # Tiles of four round a quarter as often, and noise adds up in squares: half as far; 1.5 leaves room for one draw.
    assert 0 < 1.5 * far[0] < far[1]


def test_convolutions_are_their_own_derivatives() -> None:
    x, weight = torch.randn(2, 4, 9, 7), torch.randn(6, 2, 3, 2)
    sizes = ([2, 1], [1, 0], [1, 2], 2, False, _ALL)
    made = functional.conv2d(x.requires_grad_(), weight.requires_grad_(), None, [2, 1], [1, 0], [1, 2], 2)
    gradient = torch.randn_like(made)
    wanted = torch.autograd.grad(made, (x, weight), gradient)
    low = [one.detach().bfloat16() for one in (gradient, x, weight)]
    assert error_of(tiles.CONVOLUTION(*low[1:], *sizes), made.detach()) < 4 * BF16_EPS  # operands and result
    assert error_of(tiles.CONVOLUTION_INPUT(*low, *sizes), wanted[0]) < 4 * BF16_EPS
    assert error_of(tiles.CONVOLUTION_WEIGHT(*low, *sizes), wanted[1]) < 4 * BF16_EPS


def test_gradients_of_convolutions_sum_a_batch_in_fp32_if_asked() -> None:
    model, images = nn.Conv2d(1, 1, 1, bias=False), torch.ones(300, 1, 1, 1)
    compiled(model, accumulate="fp32")(images).sum().backward()
    assert model.weight.grad is not None and float(model.weight.grad) == 300  # 256 if each sum is rounded to BF16


def test_what_a_machine_sums_in_fp32_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulating, "sums_are_wide", lambda low, device: True)
    model, x = driving.Net(), torch.randn(4, 32)
    native = compiled(model)(x)
    torch._dynamo.reset()
    assert torch.equal(compiled(model, accumulate="fp32")(x), native)
    torch._dynamo.reset()
    monkeypatch.setattr(accumulating, "sums_are_wide", lambda low, device: False)
    called: list[int] = []
    plain: Any = accumulating.sum_in_tiles
    monkeypatch.setattr(
        "mezzo.torch.compiler.passes.sum_in_tiles", lambda *given: called.append(given[-1]) or plain(*given)
    )
    emulated = compiled(model, accumulate="fp32")(x)
    assert called == [1 << 31]
    assert error_of(emulated.detach(), native.detach()) < 4 * BF16_EPS  # sums in another order round elsewhere


def test_products_in_a_region_that_is_kept_are_left_alone() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(16, 512), nn.Linear(512, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with mezzo.torch.keep():
                kept = functional.linear(x.bfloat16(), self.up.weight.bfloat16())
            return self.down(kept.float())

    model, x = Kept().eval(), torch.randn(4, 16)
    with torch.no_grad():
        run = compiled(model, accumulate="bf16")
        found = run(x)
        kept = functional.linear(x.bfloat16(), model.up.weight.bfloat16())
        summed = tiles.PRODUCT(kept, model.down.weight.bfloat16().T.contiguous(), 1)
    assert torch.equal(found, (summed + model.down.bias.bfloat16()).float())


def test_sums_inside_attention_kernels_are_told() -> None:
    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.scaled_dot_product_attention(x, x, x)

    with torch.no_grad():
        run = compiled(Attends(), accumulate="bf16")
        run(torch.randn(1, 2, 64, 32))
    (graph,) = account(run).graphs
    assert len(graph.native_sums) == 1
    assert f"sums of {graph.native_sums[0]} are not emulated" in repr(account(run))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"accumulate": "int8"}, "option 'accumulate'"),
        ({"accumulate": "fp16"}, "option 'accumulate' is 'fp16' and 'to' 'bf16'"),
        ({"tile": 8}, "option 'tile' is 8 without accumulate='bf16'"),
        ({"accumulate": "fp32", "tile": 8}, "option 'tile' is 8 without accumulate='bf16'"),
        ({"accumulate": "bf16", "tile": 0}, "option 'tile' is 0"),
        ({"accumulate": "bf16", "tile": True}, "option 'tile' is True"),
        ({"weight_update": "bf16"}, "option 'weight_update' is 'bf16'"),
        ({"weight_grad_reduce": "int8"}, "option 'weight_grad_reduce' is 'int8'"),
    ],
)
def test_options_are_checked_before_anything_is_compiled(options: dict[str, object], said: str) -> None:
    with pytest.raises(InputError) as raised:
        mezzo.torch.compile(driving.Net(), **options)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


def test_formats_are_taken_in_any_spelling() -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    with torch.no_grad():
        found = compiled(model, accumulate=torch.bfloat16)(x)
        torch._dynamo.reset()
        assert torch.equal(found, compiled(model, accumulate="bf16", tile=1)(x))
