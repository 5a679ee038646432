"""Bodies of operators that call graphs: products inside run low, borders stay, weights are cast once, regions hold."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_over

import mezzo.torch
from mezzo.contracts.plans import Plan

# At most six products stand one behind the other; each rounds its operands and its result once.
_TOLERANCE = 18 * BF16_EPS
W = 16


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Of(nn.Module):
    """Calls a function of itself, which has some layers, and of an input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.one, self.two, self.table = nn.Linear(W, W), nn.Linear(W, W), nn.Embedding(8, W)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def _cond(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > -1e9, lambda x: m.one(x).relu(), lambda x: m.two(x).tanh(), (m.one(x),))


def _other(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() < -1e9, lambda x: m.one(x).relu(), lambda x: m.two(x).tanh(), (m.one(x),))


def _nested(m: Any, x: torch.Tensor) -> Any:
    def yes(x: torch.Tensor) -> Any:
        return torch.cond(x.mean() > -1e9, lambda x: m.one(x), lambda x: m.two(x), (m.two(x),))

    return torch.cond(x.sum() > -1e9, yes, lambda x: m.two(x) * 2, (x,))


def _while(m: Any, x: torch.Tensor) -> Any:
    def body(i: torch.Tensor, x: torch.Tensor) -> Any:
        return i + 1, m.one(x).tanh()

    return while_loop(lambda i, x: i < 3, body, (torch.zeros((), dtype=torch.int64), x))[1]


def _scan(m: Any, x: torch.Tensor) -> Any:
    def step(held: torch.Tensor, x: torch.Tensor) -> Any:
        held = m.one(held) + x
        return held, held * 2

    return scan(step, x, torch.stack([x, m.two(x)]))


def _map(m: Any, x: torch.Tensor) -> Any:
    return map_over(lambda x: m.one(x), torch.stack([x, x * 2]))


@torch.compiler.nested_compile_region
def _repeated(m: Any, x: torch.Tensor) -> Any:
    return m.one(x).relu()


def _twice(m: Any, x: torch.Tensor) -> Any:
    return _repeated(m, _repeated(m, x))


KINDS = {
    "cond": _cond,
    "other branch": _other,
    "nested": _nested,
    "while_loop": _while,
    "scan": _scan,
    "map": _map,
    "twice": _twice,
}


def _run(function: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    """The account of a program, once its answers are held against those in FP64."""
    model, x = Of(function).eval(), torch.randn(4, W)
    run = compiled(model, **options)
    with torch.no_grad():
        found = run(x)
        exact = Of(function).eval().double()
        exact.load_state_dict(model.state_dict())
        wanted = exact(x.double())
    for one, right in zip(*(made if isinstance(made, tuple) else (made,) for made in (found, wanted)), strict=True):
        assert one.dtype is torch.float32
        assert error_of(one, right) < _TOLERANCE
    return run, mezzo.torch.account(run).graphs[0]


def _products(plan: Plan) -> dict[str, str]:
    return {node.name: str(node.precision.compute) for node in plan.nodes if node.op in ("addmm", "mm")}


@pytest.mark.parametrize("kind", KINDS)
def test_products_in_bodies_run_low(kind: str) -> None:
    _, graph = _run(KINDS[kind])
    inside = {name: made for path, plan in graph.bodies.items() for name, made in _products(plan).items()}
    assert graph.notes == {}
    assert inside and set(inside.values()) == {"bf16"}
    assert all(name.startswith(f"{path}/") for path, plan in graph.bodies.items() for name in _products(plan))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_bodies_read_are_cast_once(kind: str) -> None:
    run, graph = _run(KINDS[kind])
    assert "one.weight" in graph.shadows
    bodies = _bodies_of(run)
    assert bodies
    for body in bodies:
        inputs = {node for node in body.graph.nodes if node.op == "placeholder" and node.meta["val"].shape == (W, W)}
        read = [node for node in inputs if node.users]
        assert all(node.meta["val"].dtype is torch.bfloat16 for node in read)


def _bodies_of(run: Any) -> list[Any]:
    """The bodies of a program that runs without code, by what Inductor would be given."""
    found: list[Any] = []

    def inner(module: Any, inputs: object, **ignored: object) -> Any:
        found.extend(one for name, one in module.named_modules() if name and hasattr(one, "graph"))
        return module.forward

    from mezzo.torch.compiler.backend import Backend
    from mezzo.torch.compiler.compiled import wrap
    from mezzo.torch.compiler.settings import read_settings

    torch._dynamo.reset()
    with torch.no_grad():
        wrap(run._orig_mod, Backend(read_settings({}), inner))(torch.randn(4, W))
    return found


def test_explain_finds_what_is_in_a_body() -> None:
    run, _ = _run(_while)
    told = {chain[0].name: chain[0].rule for chain in mezzo.torch.explain(run, "one").chains}
    assert told["while_loop_body_graph_0/one/addmm"] == "linear"


@pytest.mark.parametrize("options", [{"exclude": ["while_loop_body_graph_0/*"]}, {"keep_region": ["one"]}])
def test_options_select_nodes_in_bodies(options: dict[str, Any]) -> None:
    _, graph = _run(_while, **options)
    assert set(_products(graph.bodies["while_loop_body_graph_0"]).values()) == {"f32"}


def test_a_weight_that_a_body_reads_in_both_precisions_comes_in_as_it_is() -> None:
    def both(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > -1e9, lambda x: m.one(x) + m.one.weight.double().sum().float(), m.two, (x,))

    _, graph = _run(both)
    assert set(_products(graph.bodies["true_graph_0"]).values()) == {"bf16"}
    assert "one.weight" not in graph.shadows and "one.bias" in graph.shadows


def test_regions_hold_in_bodies_and_around_them() -> None:
    def inside(m: Any, x: torch.Tensor) -> Any:
        def yes(x: torch.Tensor) -> Any:
            with mezzo.torch.keep():
                y = m.one(x)
            return m.two(y)

        return torch.cond(x.sum() > -1e9, yes, lambda x: m.two(x), (x,))

    def around(m: Any, x: torch.Tensor) -> Any:
        with mezzo.torch.keep():
            return torch.cond(x.sum() > -1e9, lambda x: m.two(x), lambda x: m.one(x), (x,))

    _, graph = _run(inside)
    assert sorted(_products(graph.bodies["true_graph_0"]).values()) == ["bf16", "f32"]
    torch._dynamo.reset()
    _, graph = _run(around)
    assert {made for plan in graph.bodies.values() for made in _products(plan).values()} == {"f32"}
    assert graph.shadows == ()


def test_a_body_whose_callers_are_in_different_regions_stays_as_it_is() -> None:
    def mixed(m: Any, x: torch.Tensor) -> Any:
        with mezzo.torch.keep():
            y = _repeated(m, x)
        return _repeated(m, y)

    _, graph = _run(mixed)
    assert graph.notes == {"repeated_subgraph0": "its callers are in different regions, so it stays as it is"}
    assert graph.bodies == {} and graph.shadows == ()


def test_weights_that_change_are_read_anew_in_bodies() -> None:
    model, x = Of(_while).eval(), torch.randn(4, W)
    run = compiled(model)
    with torch.no_grad():
        run(x)
        model.one.weight.mul_(-2)
        assert error_of(run(x), model(x)) < _TOLERANCE


@pytest.mark.parametrize("kind", ["while_loop", "twice"])
def test_inductor_compiles_bodies_that_read_low_weights(kind: str) -> None:
    model, x = Of(KINDS[kind]).eval(), torch.randn(4, W)
    run = mezzo.torch.compile(model)
    with torch.no_grad():
        assert error_of(run(x), model(x)) < _TOLERANCE
    assert "one.weight" in mezzo.torch.account(run).graphs[0].shadows
