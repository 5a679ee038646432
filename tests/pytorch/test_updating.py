"""Compiled updates: what PyTorch's optimizers do, on gradients in any format, with the low copies of weights."""

import copy
import re
import threading
import warnings
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache, run_fw_bw_and_get_code

import mezzo.torch
from mezzo.torch.kernels import is_laid_out_last
from mezzo.torch.update_graphs import _as_compiling
from mezzo.torch.weights import SHADOWS

_EPS = torch.finfo(torch.float32).eps
# Of ten steps, each of a dozen roundings of numbers that are at most some times as large as the step.
_TOLERANCE = 200 * _EPS
_MAKERS: dict[str, Any] = {
    "SGD": lambda of: torch.optim.SGD(of, lr=0.01),
    "momentum": lambda of: torch.optim.SGD(of, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda of: torch.optim.Adam(of, lr=0.01, amsgrad=True),
    "AdamW": lambda of: torch.optim.AdamW(of, lr=0.01, weight_decay=0.1),
    "fused": lambda of: torch.optim.AdamW(of, lr=0.01, fused=True),
    "foreach": lambda of: torch.optim.AdamW(of, lr=0.01, foreach=True, maximize=True),
    "NAdam": lambda of: torch.optim.NAdam(of, lr=0.01),
    "RAdam": lambda of: torch.optim.RAdam(of, lr=0.01),
    "RMSprop": lambda of: torch.optim.RMSprop(of, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda of: torch.optim.Adagrad(of, lr=0.01, lr_decay=0.1),
    "Adadelta": lambda of: torch.optim.Adadelta(of, lr=0.1),
    "Adamax": lambda of: torch.optim.Adamax(of, lr=0.01),
    "ASGD": lambda of: torch.optim.ASGD(of, lr=0.01),
    "Rprop": lambda of: torch.optim.Rprop(of, lr=0.01),
}


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _weights() -> list[nn.Parameter]:
    return [
        nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(n))) for n, shape in enumerate(_SHAPES)
    ]


_SHAPES = ((17, 5), (33,), (2, 3, 3, 3), ())


def _give_gradients(weights: list[nn.Parameter], number: int, dtype: torch.dtype = torch.float32) -> None:
    made = torch.Generator().manual_seed(number)
    for weight in weights:
        weight.grad_dtype = dtype
        weight.grad = torch.randn(weight.shape, generator=made).to(dtype)


def _far(found: Any, wanted: Any) -> float:
    pairs = zip(found, wanted, strict=True)
    return max(float((one - other).abs().max()) / max(1.0, float(other.abs().max())) for one, other in pairs)


def _steps(weights: list[nn.Parameter], optimizer: Any, schedule: Any = None, count: int = 10) -> None:
    for number in range(count):
        _give_gradients(weights, number)
        optimizer.step()
        if schedule is not None:
            schedule.step()


@pytest.mark.parametrize("name", _MAKERS)
def test_an_update_is_that_of_the_optimizer(name: str) -> None:
    found, wanted = _weights(), _weights()
    optimizer, plain = mezzo.torch.compile_update(_MAKERS[name](found)), _MAKERS[name](wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is compiled
        _steps(found, optimizer)
    _steps(wanted, plain)
    assert _far(found, wanted) <= _TOLERANCE
    assert not torch.equal(found[0], _weights()[0])
    for one, other in zip(found, wanted, strict=True):
        held, right = optimizer.state[one], plain.state[other]
        assert held.keys() == right.keys()
        tensors = [key for key, value in right.items() if isinstance(value, torch.Tensor)]
        assert (
            _far([held[key] for key in tensors], [right[key] for key in tensors] or ()) <= _TOLERANCE
            if tensors
            else True
        )


def test_schedules_move_rates_and_momenta_without_compiling_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from mezzo.torch import updating

    calls: list[int] = []
    plain_compile = updating.compile_step
    monkeypatch.setattr(updating, "compile_step", lambda *given: calls.append(1) or plain_compile(*given))
    found, wanted = _weights(), _weights()
    optimizer, plain = (torch.optim.AdamW(of, lr=0.01) for of in (found, wanted))
    optimizer = mezzo.torch.compile_update(optimizer)
    schedules = [torch.optim.lr_scheduler.OneCycleLR(one, 0.01, total_steps=20) for one in (optimizer, plain)]
    _steps(found, optimizer, schedules[0])
    _steps(wanted, plain, schedules[1])
    assert _far(found, wanted) <= _TOLERANCE
    assert len(calls) == 2  # a rate that moves is expected, a momentum that moves was seen once


def test_gradients_in_bf16_are_read_as_they_are() -> None:
    found, wanted = _weights(), _weights()
    optimizer, plain = mezzo.torch.compile_update(_MAKERS["AdamW"](found)), _MAKERS["AdamW"](wanted)
    for number in range(5):
        _give_gradients(found, number, torch.bfloat16)
        for weight, other in zip(wanted, found, strict=True):
            assert other.grad is not None
            weight.grad = other.grad.float()
        optimizer.step()
        plain.step()
        assert {one.grad.dtype for one in found if one.grad is not None} == {torch.bfloat16}
    assert _far(found, wanted) <= _TOLERANCE


def test_optimizers_that_are_not_compiled_take_gradients_in_bf16_too() -> None:
    model = driving.Net().train()
    start = copy.deepcopy(model)
    run = mezzo.torch.compile(model, weight_grad_reduce="bf16")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    run(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    assert {one.grad.dtype for one in model.parameters() if one.grad is not None} == {torch.bfloat16}
    for one, other in zip(model.parameters(), start.parameters(), strict=True):
        other.grad = one.grad if one.grad is None else one.grad.float()
    torch.optim.AdamW(start.parameters(), lr=0.01).step()
    assert _far(model.parameters(), start.parameters()) == 0


def test_low_copies_are_written_beside_the_weights() -> None:
    model = driving.Net()
    run = compiled(model, weight_update="fp32")
    optimizer = mezzo.torch.compile_update(torch.optim.AdamW(model.parameters(), lr=0.05))
    x = torch.randn(4, 32)
    places: dict[str, int] = {}
    for number in range(4):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        copies = dict(zip(dict(model.named_parameters()), SHADOWS.low_copies(list(model.parameters())), strict=True))
        lows = {name: low for name, several in copies.items() for _, low in several}
        for name, low in lows.items():
            assert torch.equal(low, model.get_parameter(name).detach().bfloat16()), (name, number)
        assert set(lows) >= {"up.weight", "down.weight"}
        if number > 1:  # from the second step on they are written where they stand
            assert {name: low.data_ptr() for name, low in lows.items()} == places
        optimizer.step()
        places = {name: low.data_ptr() for name, low in lows.items()}


def test_training_with_masters_is_training_without() -> None:
    model = driving.Net().train()
    beside = copy.deepcopy(model)
    x = torch.randn(8, 32)
    losses: list[list[float]] = []
    for one, options in ((model, {"weight_update": "fp32"}), (beside, {})):
        run = compiled(one, **options)
        optimizer: Any = torch.optim.SGD(one.parameters(), lr=0.05)
        optimizer = mezzo.torch.compile_update(optimizer) if options else optimizer
        found = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        losses.append(found)
        torch._dynamo.reset()
    assert losses[0] == pytest.approx(losses[1], rel=driving.BF16_EPS)
    assert losses[0][-1] < losses[0][0]


def test_a_gradient_that_waits_for_a_step_between_is_refused() -> None:
    model = driving.Net().train()
    run = compiled(model, weight_update="fp32")
    optimizer = mezzo.torch.compile_update(torch.optim.SGD(model.parameters(), lr=0.05))
    for _ in range(3):
        optimizer.zero_grad()
        run(torch.randn(4, 32)).sum().backward()
        optimizer.step()
    waiting = run(torch.randn(4, 32)).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        waiting.backward()


def test_weights_that_join_later_are_stepped() -> None:
    found, wanted = _weights(), _weights()
    optimizer, plain = mezzo.torch.compile_update(_MAKERS["AdamW"](found)), _MAKERS["AdamW"](wanted)
    for number in range(8):
        for weights in (found, wanted):
            _give_gradients(weights, number)
            if number in (0, 1, 5):
                weights[1].grad = None
        optimizer.step()
        plain.step()
    assert _far(found, wanted) <= _TOLERANCE


def test_a_state_that_is_loaded_is_gone_on_with() -> None:
    found, wanted = _weights(), _weights()
    first = _MAKERS["AdamW"](found)
    _steps(found, first, count=3)
    with torch.no_grad():
        for one, other in zip(wanted, found, strict=True):
            one.copy_(other)
    optimizer, plain = mezzo.torch.compile_update(_MAKERS["AdamW"](found)), _MAKERS["AdamW"](wanted)
    for one in (optimizer, plain):
        one.load_state_dict(copy.deepcopy(first.state_dict()))
    _steps(found, optimizer, count=4)
    _steps(wanted, plain, count=4)
    assert _far(found, wanted) <= _TOLERANCE


def test_closures_hooks_and_groups_are_heeded() -> None:
    found, wanted = _weights(), _weights()
    said: list[str] = []
    results: list[list[float]] = []
    for weights in (found, wanted):
        groups = [{"params": weights[:2]}, {"params": weights[2:], "lr": 0.5, "weight_decay": 0.0}]
        optimizer: Any = torch.optim.AdamW(groups, lr=0.01)
        optimizer = mezzo.torch.compile_update(optimizer) if weights is found else optimizer
        optimizer.register_step_pre_hook(lambda *given: said.append("before"))
        optimizer.register_step_post_hook(lambda *given: said.append("after"))

        def closure(optimizer: Any = optimizer, weights: Any = weights) -> torch.Tensor:
            optimizer.zero_grad()
            loss = sum((one.square().sum() for one in weights), torch.zeros(()))
            loss.backward()
            return loss

        results.append([float(optimizer.step(closure).detach()) for _ in range(4)])
    assert results[0] == pytest.approx(results[1], rel=_TOLERANCE)
    assert said == ["before", "after"] * 8
    assert _far(found, wanted) <= _TOLERANCE


def test_an_optimizer_that_cannot_be_traced_steps_as_it_is_and_says_so() -> None:
    class Reads(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for one in group["params"]:
                    if one.grad.norm().item() > 0:
                        one.data.add_(one.grad, alpha=-0.1)

    found = _weights()
    optimizer = mezzo.torch.compile_update(Reads(found, lr=1.0))
    wanted = [one.detach().clone() for one in found]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(3):
            _give_gradients(found, number)
            for one, weight in zip(wanted, found, strict=True):
                assert weight.grad is not None
                one -= 0.1 * weight.grad
            optimizer.step()
    (told,) = [str(one.message) for one in said if "mezzo" in one.filename or "not compiled" in str(one.message)]
    assert told.startswith("steps of Reads are PyTorch's own from here on, not compiled: ")
    assert _far(found, wanted) <= _TOLERANCE


def test_steps_that_call_their_closure_and_differentiable_ones_are_refused() -> None:
    for optimizer, said in (
        (torch.optim.LBFGS(_weights()), "steps of LBFGS call their closure themselves"),
        (torch.optim.SGD(_weights(), differentiable=True), "gradients pass through steps of SGD"),
    ):
        with pytest.raises(mezzo.InputError, match=said):
            mezzo.torch.compile_update(optimizer)
        assert "step" not in vars(optimizer)
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.torch.compile_update(None)  # type: ignore[arg-type]  # what a user may write
    assert str(caught.value) == (
        "NoneType is no torch.optim.Optimizer; give the optimizer itself, before others wrap it"
    )


def test_weights_of_fewer_bits_are_no_masters() -> None:
    """However they came to be so: trainers convert a module after it was compiled."""
    model, x = driving.Net(), torch.randn(2, 32, dtype=torch.bfloat16)
    run = compiled(model, weight_update="fp32", fullgraph=False)
    model.bfloat16()
    with pytest.raises(mezzo.InputError) as caught:
        run(x)
    assert str(caught.value) == (
        "option 'weight_update' is 'fp32', and weight 'up.weight' is bfloat16; the module's own weights are the masters"
        ": keep them FP32 (model.float())"
    )
    model.requires_grad_(False)  # as below adapters
    run(x.requires_grad_()).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("is_first", [True, False], ids=["schedule first", "update first"])
def test_schedules_and_updates_are_made_in_any_order(is_first: bool) -> None:
    weights = _weights()
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(weights, lr=1.0)
    if not is_first:
        optimizer = mezzo.torch.compile_update(optimizer)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    if is_first:
        optimizer = mezzo.torch.compile_update(optimizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        for number in range(3):
            _give_gradients(weights, number)
            optimizer.step()
            schedule.step()
    assert schedule.get_last_lr() == [0.125]


def test_threads_that_trace_at_once_leave_the_flag_of_compilers_as_it_was() -> None:
    """The second would remember the flag as the first has set it, and set it for good."""
    is_inside, may_leave, has_tried = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with _as_compiling():
            is_inside.set()
            may_leave.wait(30)

    def second() -> None:
        is_inside.wait(30)
        with _as_compiling():
            has_tried.set()
            leaves_first.join(30)

    leaves_first, leaves_last = threading.Thread(target=first), threading.Thread(target=second)
    leaves_first.start()
    leaves_last.start()
    has_tried.wait(0.5)  # in vain, as the other is inside
    may_leave.set()
    for thread in (leaves_first, leaves_last):
        thread.join(30)
    try:
        assert not torch.compiler.is_compiling()
    finally:
        torch.compiler._is_compiling_flag = False


def test_options_that_change_too_often_are_left_to_the_optimizer() -> None:
    found, wanted = _weights(), _weights()
    optimizer, plain = (torch.optim.SGD(of, lr=0.01, momentum=0.9) for of in (found, wanted))
    optimizer = mezzo.torch.compile_update(optimizer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(12):
            for weights, one in ((found, optimizer), (wanted, plain)):
                _give_gradients(weights, number)
                one.param_groups[0]["maximize"] = bool(number % 2)
                one.param_groups[0]["momentum"] = 0.5 + 0.01 * number
                one.param_groups[0]["dampening"] = number  # a whole number is none that moves
                one.step()
    told = [str(one.message) for one in said if "not compiled" in str(one.message)]
    assert told == [
        "steps of SGD are PyTorch's own from here on, not compiled: its options, other than the learning rate, changed "
        "8 times"
    ]
    assert _far(found, wanted) <= _TOLERANCE


def test_a_scaler_divides_before_the_step() -> None:
    found, wanted = _weights(), _weights()
    for weights in (found, wanted):
        optimizer: Any = torch.optim.AdamW(weights, lr=0.01, fused=True)
        optimizer = mezzo.torch.compile_update(optimizer) if weights is found else optimizer
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        for number in range(6):
            optimizer.zero_grad()
            loss = sum((one.square().sum() for one in weights), torch.zeros(()))
            scaler.scale(loss * (torch.inf if number == 3 else 1.0)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert _far(found, wanted) <= _TOLERANCE


def test_an_update_that_was_compiled_before_is_found_in_the_cache_of_inductor() -> None:
    with fresh_cache():
        first, second = [_count_compiled() for _ in range(2)]
    assert first["fxgraph_cache_miss"] > 0
    assert first["fxgraph_cache_bypass"] == second["fxgraph_cache_bypass"] == 0
    assert (second["fxgraph_cache_hit"], second["fxgraph_cache_miss"]) == (first["fxgraph_cache_miss"], 0)


def _count_compiled() -> Any:
    """What Inductor's cache was asked while an optimizer of fresh weights made three steps."""
    counters.clear()
    weights = _weights()
    optimizer = mezzo.torch.compile_update(_MAKERS["AdamW"](weights))
    for number in range(3):
        _give_gradients(weights, number)
        optimizer.step()
    return counters["inductor"].copy()


class _Pictures(nn.Module):
    """Weights of images that convolutions read, directly and not, and those of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(4, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.turned = nn.ConvTranspose2d(8, 8, 3, padding=1)
        self.one_by_one = nn.Conv2d(8, 8, 1)
        self.read_twice = nn.Conv2d(8, 6, 3, padding=1)
        self.sequence = nn.Conv1d(6, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one_by_one(self.turned(self.grouped(self.plain(x).relu()).relu()).relu())
        x = self.read_twice(x) + self.read_twice.weight.square().sum((1, 2, 3))[:, None, None]
        return self.sequence(x.flatten(2))


def test_low_copies_that_convolutions_of_images_read_have_channels_last() -> None:
    model = _Pictures()
    run = mezzo.torch.compile(model, weight_update="fp32", weight_grad_reduce="bf16")
    optimizer = mezzo.torch.compile_update(torch.optim.AdamW(model.parameters(), lr=0.01))
    x = torch.randn(2, 4, 8, 8)
    for number in range(4):  # from the third on the update has written them
        optimizer.zero_grad()
        if number == 0:
            with fresh_cache():  # of what is found in it nobody writes code
                _, codes = run_fw_bw_and_get_code(lambda: run(x))
        else:
            run(x).sum().backward()
        copies = zip(model.named_parameters(), SHADOWS.low_copies(list(model.parameters())), strict=True)
        lows = {name: (one, low) for (name, one), several in copies for _, low in several}
        assert {name: is_laid_out_last(low) for name, (_, low) in lows.items() if low.dim() > 1} == {
            "plain.weight": True,
            "grouped.weight": True,
            "turned.weight": True,
            "one_by_one.weight": False,  # it has them first as well
            "read_twice.weight": False,
            "sequence.weight": False,
        }, number
        for name, (one, low) in lows.items():
            assert torch.equal(low, one.detach().bfloat16()), (name, number)
        optimizer.step()
    assert not any(is_laid_out_last(one) for one in model.parameters())
    # What the forward lays out anew is the weight that others read too, and no other weight.
    made = re.findall(r"empty_strided_cpu\(\((\d+), (\d+), 3, 3\)", codes[0])
    assert set(made) == {("6", "8")}, codes[0]
