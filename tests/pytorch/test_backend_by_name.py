"""`torch.compile(model, backend="mezzo")`, Inductor's own passes, and options that speak of nothing."""

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled
from torch import fx
from torch._inductor import config

import mezzo.torch
import mezzo.torch.compiler.backend
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No code is generated: the graphs of backends by name run as they are after the pass, too."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    driving.generate_no_code(monkeypatch)
    yield
    torch._dynamo.reset()


def _by_name(of: Any, **options: object) -> Any:
    return torch.compile(of, backend="mezzo", options=options or None)  # type: ignore[arg-type]  # mezzo's


@pytest.mark.parametrize("options", [{}, {"to": "fp16"}])
@pytest.mark.parametrize("kind", ["module", "function", "in place"])
def test_a_model_that_names_the_backend_has_an_account(kind: str, options: dict[str, Any]) -> None:
    model, x = driving.Net().eval(), torch.randn(3, 32)
    run: Any = model
    if kind == "in place":
        model.compile(backend="mezzo", options=options or None)
    else:
        run = _by_name(model if kind == "module" else lambda x: model(x), **options)
    assert mezzo.torch.account(run).graphs == []
    with torch.no_grad():
        run(x)
    (graph,) = mezzo.torch.account(run).graphs
    assert "up.weight" in graph.shadows
    assert f"  {'f16' if options else 'bf16'}  " in repr(mezzo.torch.explain(run, "up"))


def test_accounts_of_two_models_are_apart() -> None:
    runs = [_by_name(kind().eval()) for kind in (driving.Net, driving.Gated)]
    with torch.no_grad():
        for run in runs:
            run(torch.randn(3, 32))
    names = [mezzo.torch.account(run).graphs[0].shadows for run in runs]
    assert "gate.weight" in names[1] and "gate.weight" not in names[0] and "up.weight" in names[0]


def test_what_another_compiler_made_has_no_account() -> None:
    run = torch.compile(driving.Net(), backend="eager")
    with pytest.raises(InputError, match=r"was not compiled by mezzo; compile it with mezzo\.torch\.compile, or with"):
        mezzo.torch.account(run)
    with pytest.raises(InputError, match="was not compiled by mezzo"):
        mezzo.torch.account(driving.Net())


def test_an_option_of_a_backend_by_name_is_told_in_one_line() -> None:
    run = _by_name(driving.Net().eval(), polcy="balanced")
    with torch.no_grad(), pytest.raises(InputError, match=r"option 'polcy' is unknown \(did you mean 'policy'\?\)"):
        run(torch.randn(3, 32))


def test_sums_of_gradients_are_not_for_a_backend_by_name() -> None:
    """They were FP32 without a word."""
    run = _by_name(driving.Net(), weight_grad_reduce="bf16")
    with pytest.raises(InputError) as caught:
        run(torch.randn(3, 32))
    assert str(caught.value) == (
        "option 'weight_grad_reduce' is of a module, and a backend is given graphs; use "
        "mezzo.torch.compile(model, weight_grad_reduce='bf16')"
    )


# -- passes of the user's -------------------------------------------------------------------------------------------


class _Pass:
    """Doubles what relus make, and notes what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, graph: fx.Graph) -> None:
        self.seen += [str(node.target) for node in graph.nodes if node.op == "call_function"]
        for node in list(graph.nodes):
            if node.target is torch.ops.aten.relu.default:
                with graph.inserting_after(node):
                    twice = graph.call_function(torch.ops.aten.add.Tensor, (node, node))
                twice.meta = dict(node.meta)
                node.replace_all_uses_with(twice)
                twice.args = (node, node)


@pytest.mark.parametrize("how", ["config", "option", "several"])
def test_a_pass_of_the_users_runs_before_the_plan(how: str) -> None:
    linear, passes = torch.nn.Linear(8, 8), [_Pass(), _Pass()]

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(linear(x))

    given: Any = passes if how == "several" else passes[0]
    options = {"joint_custom_pre_pass": given} if how == "option" else {}
    with torch.no_grad(), config.patch(joint_custom_pre_pass=None if how == "option" else given):
        run = compiled(call, **options)
        x = torch.randn(3, 8)
        times = 4 if how == "several" else 2
        # One product in BF16, against FP32's.
        assert driving.error_of(run(x), times * call(x)) < 3 * driving.BF16_EPS
    assert passes[0].seen and "prims.convert_element_type.default" not in passes[0].seen, "it saw the graph as traced"
    assert mezzo.torch.account(run).graphs[0].plan is not None


def test_caches_know_the_users_pass() -> None:
    from torch._inductor.custom_graph_pass import CustomGraphPass

    from mezzo.torch.compiler.passes import PlanningPass

    class Told(CustomGraphPass):
        def __call__(self, graph: fx.Graph) -> None: ...
        def uuid(self) -> str:
            return "mine"

    edited: Any = SimpleNamespace(inputs=())
    options: Any = SimpleNamespace(planning=SimpleNamespace(low=DType.BFLOAT16))
    alone, told = PlanningPass(edited, options, "d"), PlanningPass(edited, options, "d", [Told()])
    assert alone.uuid() == "d"
    assert told.uuid() == ("d", "mine")
    assert PlanningPass(edited, options, "d", [_Pass()]).uuid() is None, "nothing is cached that cannot be told apart"


# -- what matches nothing -------------------------------------------------------------------------------------------

_UNMATCHED = [
    ({"exclude": ["zzz*"]}, r"exclude 'zzz\*' matches no node; patterns are globs on node names, or 'op:'"),
    ({"include": ["op:admm"]}, r"include 'op:admm' matches no node \(did you mean 'op:addmm'\?\)"),
    ({"keep_region": ["upp"]}, r"keep_region 'upp' matches no node.*; regions are paths"),
    ({"fix_region": {"upp": "fp32"}}, r"fix_region 'upp' matches no node.*; regions are paths"),
]


@pytest.mark.parametrize(("options", "said"), _UNMATCHED)
def test_a_pattern_that_matches_nothing_is_told_in_one_line(options: dict[str, Any], said: str) -> None:
    run = compiled(driving.Net().eval(), **options)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(InputError, match=f"^{said}"):
            run(torch.randn(3, 32))


@pytest.mark.parametrize(("options", "said"), _UNMATCHED)
def test_a_backend_by_name_warns_of_a_pattern_that_matches_nothing(options: dict[str, Any], said: str) -> None:
    run = _by_name(driving.Net().eval(), **options)
    with torch.no_grad(), pytest.warns(UserWarning, match=f"in a graph that mezzo was given, {said}"):
        run(torch.randn(3, 32))


def test_a_pattern_may_match_in_one_graph_of_several() -> None:
    model = driving.Net().eval()

    def call(x: Any) -> Any:
        y = model.up(x)
        torch._dynamo.graph_break()
        return model.down(model.norm(y))

    run = compiled(call, fullgraph=False, exclude=["*down*"], keep_region=["up"])
    with torch.no_grad():
        run(torch.randn(3, 32))
    plans = [plan for plan in mezzo.torch.account(run).plans if plan is not None]
    products = [node for plan in plans for node in plan.nodes if node.op == "addmm"]
    assert [(node.name, str(node.precision.compute)) for node in products] == [
        ("up/addmm", "f32"),
        ("down/addmm", "f32"),
    ]


def test_an_error_of_the_users_stays_the_error() -> None:
    def call(x: Any) -> Any:
        raise ValueError("mine")

    run = compiled(call, fullgraph=False, exclude=["zzz*"])
    with torch.no_grad(), pytest.raises(ValueError, match="mine"):
        run(torch.randn(3, 32))


def test_what_a_policy_refuses_is_told_in_one_line() -> None:
    from mezzo.tables.policy import Policy

    def fails(*_: object) -> None:
        raise RuntimeError("no idea")

    policy = Policy(name="mine", summary="fails", rules=(), findings=None, function=fails)  # type: ignore[arg-type]
    run = compiled(driving.Net().eval(), policy=policy)
    with warnings.catch_warnings(), torch.no_grad(), pytest.raises(InputError, match="no idea"):
        run(torch.randn(3, 32))


class _Around(torch.nn.Sequential):
    """A forward of PyTorch's own around one that is not."""


@pytest.mark.parametrize("kind", [torch.nn.Sequential, _Around])
def test_in_place_modules_of_pytorchs_own_are_told_to_stay_as_they_are(kind: Any) -> None:
    model = kind(torch.nn.Linear(4, 4), torch.nn.ReLU())
    model.compile(backend="mezzo")
    with torch.no_grad():
        model(torch.randn(2, 4))
    with pytest.raises(InputError) as caught:
        mezzo.torch.account(model)
    assert str(caught.value) == (
        f"{kind.__name__} was compiled in place, where Dynamo leaves modules of torch.nn as they are; use what "
        "mezzo.torch.compile or torch.compile returns"
    )


def test_in_place_a_forward_of_ones_own_is_compiled_wherever_it_stands() -> None:
    model = _Around(driving.Net().eval())
    model.compile(backend="mezzo")
    with torch.no_grad():
        model(torch.randn(3, 32))
    assert len(mezzo.torch.account(model).graphs) == 1


def test_the_ninth_model_of_one_code_says_that_it_was_not_compiled() -> None:
    """Of one forward Dynamo compiles as many as its limit; what is past it runs, in FP32, with PyTorch's warning."""
    runs = [compiled(torch.nn.Sequential(torch.nn.Linear(4, 4)), fullgraph=False) for _ in range(9)]
    with torch.no_grad():
        for run in runs:
            run(torch.randn(2, 4))
    assert [len(mezzo.torch.account(run).graphs) for run in runs] == [1] * 8 + [0]
    assert repr(mezzo.torch.account(runs[-1])) == (
        "Account: nothing was compiled yet: call it once; where it has run, nothing could be: an LSTM, or code that "
        "eight backends were compiled for, which torch.compiler.reset() forgets"
    )
    with pytest.raises(
        InputError, match=r"^no graph of the model was planned: nothing was compiled yet: call it once; where"
    ):
        mezzo.torch.explain(runs[-1], "0")
