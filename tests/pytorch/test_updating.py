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
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache, run_and_get_code
from update_cases import MAKERS, TOLERANCE, far, give_gradients, make_steps, make_weights

import mezzo.torch
from mezzo.torch.torch_internals import as_compiling
from mezzo.torch.weights.weights import SHADOWS


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("name", MAKERS)
def test_an_update_is_that_of_the_optimizer(name: str) -> None:
    found, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS[name](found)), MAKERS[name](wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is compiled
        make_steps(found, optimizer)
    make_steps(wanted, plain)
    assert far(found, wanted) <= TOLERANCE
    assert not torch.equal(found[0], make_weights()[0])
    for one, other in zip(found, wanted, strict=True):
        held, right = optimizer.state[one], plain.state[other]
        assert held.keys() == right.keys()
        tensors = [key for key, value in right.items() if isinstance(value, torch.Tensor)]
        assert (
            far([held[key] for key in tensors], [right[key] for key in tensors] or ()) <= TOLERANCE if tensors else True
        )


def test_gradients_in_bf16_are_read_as_they_are() -> None:
    found, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS["AdamW"](found)), MAKERS["AdamW"](wanted)
    for number in range(5):
        give_gradients(found, number, torch.bfloat16)
        for weight, other in zip(wanted, found, strict=True):
            assert other.grad is not None
            weight.grad = other.grad.float()
        optimizer.step()
        plain.step()
        assert {one.grad.dtype for one in found if one.grad is not None} == {torch.bfloat16}
    assert far(found, wanted) <= TOLERANCE


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
    assert far(model.parameters(), start.parameters()) == 0


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
    found, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS["AdamW"](found)), MAKERS["AdamW"](wanted)
    for number in range(8):
        for weights in (found, wanted):
            give_gradients(weights, number)
            if number in (0, 1, 5):
                weights[1].grad = None
        optimizer.step()
        plain.step()
    assert far(found, wanted) <= TOLERANCE


def test_a_state_that_is_loaded_is_gone_on_with() -> None:
    found, wanted = make_weights(), make_weights()
    first = MAKERS["AdamW"](found)
    make_steps(found, first, count=3)
    with torch.no_grad():
        for one, other in zip(wanted, found, strict=True):
            one.copy_(other)
    optimizer, plain = mezzo.torch.compile_update(MAKERS["AdamW"](found)), MAKERS["AdamW"](wanted)
    for one in (optimizer, plain):
        one.load_state_dict(copy.deepcopy(first.state_dict()))
    make_steps(found, optimizer, count=4)
    make_steps(wanted, plain, count=4)
    assert far(found, wanted) <= TOLERANCE


def test_closures_hooks_and_groups_are_heeded() -> None:
    found, wanted = make_weights(), make_weights()
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
    assert results[0] == pytest.approx(results[1], rel=TOLERANCE)
    assert said == ["before", "after"] * 8
    assert far(found, wanted) <= TOLERANCE


def test_an_optimizer_that_cannot_be_traced_steps_as_it_is_and_says_so() -> None:
    class Reads(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for one in group["params"]:
                    if one.grad.norm().item() > 0:
                        one.data.add_(one.grad, alpha=-0.1)

    found = make_weights()
    optimizer = mezzo.torch.compile_update(Reads(found, lr=1.0))
    wanted = [one.detach().clone() for one in found]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(3):
            give_gradients(found, number)
            for one, weight in zip(wanted, found, strict=True):
                assert weight.grad is not None
                one -= 0.1 * weight.grad
            optimizer.step()
    (told,) = [str(one.message) for one in said if "mezzo" in one.filename or "not compiled" in str(one.message)]
    assert told.startswith("steps of Reads are PyTorch's own from here on, not compiled: ")
    assert far(found, wanted) <= TOLERANCE


def test_steps_that_call_their_closure_and_differentiable_ones_are_refused() -> None:
    for optimizer, said in (
        (torch.optim.LBFGS(make_weights()), "steps of LBFGS call their closure themselves"),
        (torch.optim.SGD(make_weights(), differentiable=True), "gradients pass through steps of SGD"),
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
    weights = make_weights()
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(weights, lr=1.0)
    if not is_first:
        optimizer = mezzo.torch.compile_update(optimizer)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    if is_first:
        optimizer = mezzo.torch.compile_update(optimizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*lr_scheduler.*")
        for number in range(3):
            give_gradients(weights, number)
            optimizer.step()
            schedule.step()
    assert schedule.get_last_lr() == [0.125]


def test_threads_that_trace_at_once_leave_the_flag_of_compilers_as_it_was() -> None:
    """The second would remember the flag as the first has set it, and set it for good."""
    is_inside, may_leave, has_tried = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with as_compiling():
            is_inside.set()
            may_leave.wait(30)

    def second() -> None:
        is_inside.wait(30)
        with as_compiling():
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


def test_a_scaler_divides_before_the_step() -> None:
    found, wanted = make_weights(), make_weights()
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
    assert far(found, wanted) <= TOLERANCE


def test_an_update_that_was_compiled_before_is_found_in_the_cache_of_inductor() -> None:
    with fresh_cache():
        first, second = [_count_compiled() for _ in range(2)]
    assert first["fxgraph_cache_miss"] > 0
    assert first["fxgraph_cache_bypass"] == second["fxgraph_cache_bypass"] == 0
    assert (second["fxgraph_cache_hit"], second["fxgraph_cache_miss"]) == (first["fxgraph_cache_miss"], 0)


def _count_compiled() -> Any:
    """What Inductor's cache was asked while an optimizer of fresh weights made three steps."""
    counters.clear()
    weights = make_weights()
    optimizer = mezzo.torch.compile_update(MAKERS["AdamW"](weights))
    for number in range(3):
        give_gradients(weights, number)
        optimizer.step()
    return counters["inductor"].copy()


def test_updates_are_compiled_for_the_sizes_that_there_are() -> None:
    weights = make_weights()
    optimizer = mezzo.torch.compile_update(MAKERS["AdamW"](weights))
    give_gradients(weights, 0)
    optimizer.step()
    with fresh_cache():  # of what is found in it nobody writes code
        _, codes = run_and_get_code(optimizer.step)
    loops = {size for code in codes for size in re.findall(r"x0<static_cast<int64_t>\((.+?)\)", code)}
    assert {f"{one.numel()}L" for one in weights if one.numel() > 1} <= loops, loops
    assert all(size.endswith("L") and size[:-1].isdigit() for size in loops), loops
