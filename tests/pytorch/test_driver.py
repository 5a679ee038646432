"""torch.compile's driver: right answers, weights cast once, accounts, and options; no code is generated here."""

import copy
import importlib
import pickle
import runpy
import threading
from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo.torch
from mezzo.aten import torch_versions
from mezzo.common.errors import InputError
from mezzo.torch.compiler.compiled import account
from mezzo.torch.weights.weight_layouts import LowCopy
from mezzo.torch.weights.weights import SHADOWS, Shadows

# Up to four products stand one behind the other; each rounds its operands and its result once.
_TOLERANCE = 12 * BF16_EPS


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _models() -> list[tuple[type[nn.Module], Callable[[int], Any]]]:
    return [
        (driving.Net, lambda n: torch.randn(n, 32)),
        (driving.Tied, lambda n: torch.randint(0, 50, (4, 8))),
        (driving.Conv, lambda n: torch.randn(n, 3, 8, 8)),
        (driving.Gated, lambda n: torch.randn(n, 7, 32)),
    ]


@pytest.mark.parametrize(("kind", "feed"), _models(), ids=lambda one: getattr(one, "__name__", "feed"))
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_answers_are_those_of_eager_in_low_precision(kind: Any, feed: Any, mode: Any) -> None:
    model = kind().eval()
    exact = copy.deepcopy(model).double()
    run = compiled(model)
    with mode():
        for n in (4, 6):
            x = feed(n)
            found, wanted = run(x), exact(x.double() if x.is_floating_point() else x)
            assert found.dtype is torch.float32
            assert 0 < error_of(found, wanted) < _TOLERANCE
    for graph in account(run).graphs:
        assert graph.plan is not None
        assert graph.shadows


def test_a_tied_weight_is_cast_once() -> None:
    model = driving.Tied().eval()
    before = len(SHADOWS)
    run = compiled(model)
    with torch.no_grad():
        run(torch.randint(0, 50, (4, 8)))
    names = account(run).graphs[0].shadows
    assert len(names) == len(set(names)) == len(SHADOWS) - before


def test_weights_of_graphs_are_named_by_module_path() -> None:
    run = compiled(driving.Net().eval())
    with torch.no_grad():
        run(torch.randn(2, 32))
    assert {"up.weight", "down.weight"} <= set(account(run).graphs[0].shadows)


def test_dynamic_shapes_are_one_graph() -> None:
    model = driving.Net().eval()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for n in (3, 5, 9):
            x = torch.randn(n, 32)
            assert error_of(run(x), model(x)) < _TOLERANCE
    assert len(account(run).graphs) == 1


def test_graph_breaks_give_a_plan_each() -> None:
    model = driving.Net().eval()

    def call(x: Any) -> Any:
        y = model(x)
        torch._dynamo.graph_break()
        return model(y)

    run = compiled(call, fullgraph=False)
    with torch.no_grad():
        x = torch.randn(3, 32)
        assert error_of(run(x), call(x)) < _TOLERANCE
    assert len([plan for plan in account(run).plans if plan is not None]) == 2


def test_the_users_autocast_reads_weights_that_were_cast_once() -> None:
    model = driving.Net().eval()
    run = compiled(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        x = torch.randn(3, 32)
        found, wanted = run(x), model(x)
    assert found.dtype is wanted.dtype is torch.bfloat16
    assert error_of(found, wanted) < _TOLERANCE
    assert "up.weight" in account(run).graphs[0].shadows


def test_what_may_be_trained_casts_its_weights_at_every_call() -> None:
    model = driving.Net()
    run, x = compiled(model), torch.randn(3, 32)
    for _ in range(2):
        assert 0 < error_of(run(x).detach(), model(x).detach()) < _TOLERANCE
        _writes_data(model)  # nobody can see it
    (graph,) = account(run).graphs
    assert graph.shadows == ()
    assert graph.casts > 4, "two weights and two biases among them"


# -- each way of changing a weight ---------------------------------------------------------------------------------


def _copies(model: Any) -> None:
    with torch.no_grad():
        model.up.weight.copy_(torch.randn(64, 32))


def _multiplies(model: Any) -> None:
    with torch.inference_mode():
        model.up.weight.mul_(-3)


def _loads(model: Any) -> None:
    model.load_state_dict(driving.Net().state_dict())


def _steps(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=3.0, foreach=True)
    _fill_gradients(model)
    optimizer.step()


def _detaches(model: Any) -> None:
    model.up.weight.detach().mul_(-3)


def _gives_data(model: Any) -> None:
    model.up.weight.data = torch.randn(64, 32)


def _gives_data_twice(model: Any) -> None:
    """The second may lie where the first weight lay."""
    model.up.weight.data = torch.randn(64, 32)
    model.up.weight.data = torch.randn(64, 32)


def _reads_vector(model: Any) -> None:
    count = sum(weight.numel() for weight in model.parameters())
    nn.utils.vector_to_parameters(torch.randn(count), model.parameters())


def _swaps(model: Any) -> None:
    model.up.weight = nn.Parameter(torch.randn(64, 32))


def _swaps_module(model: Any) -> None:
    model.up = nn.Sequential(model.up, nn.Linear(64, 4, bias=False), nn.Linear(4, 64, bias=False))


def _parametrizes(model: Any) -> None:
    nn.utils.parametrize.register_parametrization(model.up, "weight", _Doubled())


class _Doubled(nn.Module):
    def forward(self, weight: Any) -> Any:
        return -2 * weight


def _fill_gradients(model: Any) -> None:
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def _steps_fused(model: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, fused=True)
    _fill_gradients(model)
    optimizer.step()


def _steps_compiled(model: Any) -> None:
    _step_compiled(model, torch.optim.AdamW(model.parameters(), lr=1.0))


def _steps_fused_compiled(model: Any) -> None:
    _step_compiled(model, torch.optim.AdamW(model.parameters(), lr=1.0, fused=True))


def _step_compiled(model: Any, optimizer: torch.optim.Optimizer) -> None:
    _fill_gradients(model)
    torch.compile(optimizer.step, backend="aot_eager")()


def _writes_data(model: Any) -> None:
    model.up.weight.data.mul_(-3)


def _writes_numpy(model: Any) -> None:
    model.up.weight.detach().numpy()[...] *= -3


_SEEN = (
    _copies, _multiplies, _loads, _steps, _detaches, _gives_data, _gives_data_twice, _reads_vector, _swaps,
    _swaps_module, _parametrizes, _steps_fused, _steps_compiled, _steps_fused_compiled,
)  # fmt: skip
_UNSEEN = (_writes_data, _writes_numpy)


@pytest.mark.parametrize("change", [*_SEEN, *_UNSEEN], ids=lambda change: change.__name__)
def test_a_changed_weight_is_cast_again(change: Callable[[Any], None]) -> None:
    model = driving.Net().eval()
    run, x = compiled(model), torch.randn(5, 32)
    with torch.no_grad():
        run(x)
        before = model(x)
    change(model)
    if change in _UNSEEN:
        mezzo.torch.refresh(run)
    with torch.no_grad():
        wanted = model(x)
        assert error_of(before, wanted) > 0.05, "the change is one that shows"
        assert error_of(run(x), wanted) < _TOLERANCE


@pytest.mark.parametrize("asked", ["all", "module", "function"])
def test_refresh_casts_again_what_nobody_saw_change(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.torch.weights.weights._sample_of", lambda weight: None)  # as of a weight on a GPU
    model = driving.Net().eval()
    run, x = compiled(model), torch.randn(5, 32)
    with torch.no_grad():
        run(x)
        _writes_numpy(model)
        assert error_of(run(x), model(x)) > 0.05, "nobody can see it"
        mezzo.torch.refresh(*{"all": (), "module": (model,), "function": (model.forward,)}[asked])
        assert error_of(run(x), model(x)) < _TOLERANCE


def test_weights_made_under_inference_mode_are_cast_at_every_call() -> None:
    with torch.inference_mode():
        model = driving.Net().eval()
        run, x = compiled(model), torch.randn(5, 32)
        run(x)
        model.up.weight.mul_(-3)
        assert error_of(run(x), model(x)) < _TOLERANCE


def test_a_weight_that_the_graph_writes_is_cast_again() -> None:
    model = driving.Net().eval()

    def call(x: Any) -> Any:
        y = model(x)
        model.up.weight.mul_(-3)
        return y

    run, x = compiled(call), torch.randn(5, 32)
    with torch.no_grad():
        for _ in range(3):
            wanted = model(x)
            assert error_of(run(x), wanted) < _TOLERANCE


def test_low_copies_die_with_their_weights() -> None:
    shadows = Shadows()
    weight = nn.Parameter(torch.randn(4, 4))
    shadows.of(weight, LowCopy(torch.bfloat16)).of(weight)
    assert shadows.size_bytes == 32
    del weight
    assert shadows.size_bytes == 0 and len(shadows) == 0


def test_threads_may_call_at_once() -> None:
    model = driving.Net().eval()
    run = compiled(model)
    feeds = [torch.randn(5, 32) for _ in range(4)]
    with torch.no_grad():
        run(feeds[0])
        wanted = [model(x) for x in feeds]
        mezzo.torch.refresh(run)
    errors: list[float] = []

    def work(place: int) -> None:
        with torch.no_grad():
            errors.extend(error_of(run(feeds[place]), wanted[place]) for _ in range(20))

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 80 and max(errors) < _TOLERANCE


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"])
def test_copies_compile_for_themselves(again: Callable[[Any], Any]) -> None:
    model = driving.Net().eval()
    run, x = compiled(model), torch.randn(5, 32)
    with torch.no_grad():
        run(x)
        other = again(run)
        other.up.weight.mul_(-3)
        wanted = other._orig_mod(x)
        assert error_of(other(x), wanted) < _TOLERANCE
        assert error_of(run(x), model(x)) < _TOLERANCE
    assert type(other) is type(run)
    assert len(other.plans) == len(run.plans) == 1


def test_a_compiled_module_is_the_module() -> None:
    model = driving.Net()
    run = compiled(model)
    assert run.up is model.up
    assert run.state_dict().keys() == {f"_orig_mod.{name}" for name in model.state_dict()}
    run.eval()
    assert not model.training


# -- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"polcy": "balanced"}, "option 'polcy' is unknown (did you mean 'policy'?)"),
        ({"policy": "no-such"}, "no-such"),
        (
            {"to": "fp8"},
            "to is 'fp8', and a model in ATen is converted to fp16, bf16 or int8 alone; choose one of these, or for "
            "others export the module to ONNX and convert that",
        ),
        ({"to": "fp8,fp16", "target": "tensorrt"}, "is converted to fp16, bf16 or int8 alone"),
        ({"io": "low"}, "option 'io' is of converted models"),
        ({"correct": "weights"}, "option 'correct' is 'weights', and corrections are of constants; give freeze=True"),
        ({"mode": "fast"}, "mode 'fast' is unknown; choose one of"),
        ({"options": "max-autotune"}, "options are 'max-autotune'; give a mapping of Inductor's"),
        ({"dynamic": "yes"}, "option 'dynamic' is 'yes'; give True, False, or None"),
        ({"options": {"freezing": True}}, "use mezzo.torch.compile(freeze=True)"),
    ],
)
def test_a_wrong_option_is_told_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        mezzo.torch.compile(driving.Net(), **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_nobody_can_call_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^NoneType is no module or function; give what is called$"):
        mezzo.torch.compile(None)  # type: ignore[arg-type]  # what a user may write


def test_what_was_not_compiled_has_no_account() -> None:
    with pytest.raises(InputError, match=r"Net was not compiled by mezzo; compile it with mezzo\.torch\.compile"):
        account(driving.Net())


@pytest.mark.parametrize(
    ("version", "said"), [(None, "which is not installed; install it: pip"), ("2.10.1+cpu", "works with 2.11 to 2.13")]
)
def test_an_unfit_pytorch_is_told_in_one_line(monkeypatch: Any, version: str | None, said: str) -> None:
    monkeypatch.setattr(torch_versions, "find_version", lambda name: version)
    with pytest.raises(InputError) as caught:
        torch_versions.check_torch()
    assert said in str(caught.value)


@pytest.mark.parametrize("module", ["mezzo.aten.torch_internals", "mezzo.torch.torch_internals"])
def test_a_pytorch_without_a_private_name_is_told_in_one_line(monkeypatch: Any, module: str) -> None:
    """A later version may have moved it."""
    home, name = ("torch._ops", "OpOverload") if "aten" in module else ("torch._inductor.compile_fx", "compile_fx")
    monkeypatch.delattr(importlib.import_module(home), name)
    with pytest.raises(InputError, match=rf"^PyTorch 2\S+ lacks a part that mezzo uses: .*{name}.*; mezzo works with"):
        runpy.run_module(module)


def test_torch_finds_the_backend_by_name() -> None:
    assert "mezzo" in torch._dynamo.list_backends()


def test_a_graph_that_cannot_be_planned_runs_as_it_is(monkeypatch: Any) -> None:
    from mezzo.torch.compiler import rewriting

    def fail(*given: object, **named: object) -> None:
        raise KeyError("no such row")

    monkeypatch.setattr(rewriting, "convert_model", fail)
    model = driving.Net().eval()
    run, x = compiled(model), torch.randn(3, 32)
    with torch.no_grad():
        assert error_of(run(x), model(x)) < 2**-20
    assert account(run).graphs[0].plan is None
    assert "could not be planned: KeyError" in (account(run).graphs[0].note or "")
