"""Graphs in which there is nothing to plan come through as they are."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import mezzo
from mezzo.aten.program import Program
from mezzo.torch.compiler.rewriting import rewrite
from mezzo.torch.compiler.settings import read_settings


def _rewritten(result: Callable[[fx.Node, fx.Node], Any]) -> fx.GraphModule:
    """A graph without calls, planned: of an input and a constant, and what it returns of them."""
    graph, mode = fx.Graph(), FakeTensorMode()
    given, held = graph.placeholder("x"), graph.get_attr("held")
    for node in (given, held):
        node.meta["val"] = mode.from_tensor(torch.ones(3))
    owner = nn.Module()
    owner.held = torch.ones(3)
    graph.output(result(given, held))
    module = fx.GraphModule(owner, graph)
    rewrite(Program(graph=module.graph, owner=module), read_settings({}).planning())
    module.recompile()
    return module


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (lambda x, held: (), ()),
        (lambda x, held: None, None),
        (lambda x, held: (3, None), (3, None)),
        (lambda x, held: (x, x), (2.0, 2.0)),
        (lambda x, held: (held, x), (1.0, 2.0)),
    ],
    ids=["nothing", "none", "numbers", "inputs", "constant"],
)
def test_a_graph_without_calls_returns_what_it_did(result: Callable[..., Any], wanted: Any) -> None:
    made = _rewritten(result)(torch.full((3,), 2.0))
    told = [float(one[0]) if isinstance(one, torch.Tensor) else one for one in made or ()]
    assert (None if made is None else tuple(told)) == wanted


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x, x.shape[0]), lambda x: None])
def test_a_function_that_computes_nothing_is_compiled(function: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    x = torch.ones(3)
    assert torch.utils._pytree.tree_map(id, compiled(function)(x)) == torch.utils._pytree.tree_map(id, function(x))


def test_bodies_that_hand_on_what_they_get_are_planned() -> None:
    torch._dynamo.reset()
    linear, x = nn.Linear(4, 4).eval(), torch.ones(2, 4)

    def function(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (x.clone(), linear(x)), lambda x: (x * 0, x + 1), (x,))

    with torch.no_grad():
        assert torch.equal(compiled(function)(x)[0], x)
        assert torch.equal(compiled(function)(-x)[0], 0 * x)


def test_an_exported_program_that_returns_its_input_is_converted() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    x = torch.ones(3)
    assert torch.equal(mezzo.convert(torch.export.export(Same(), (x,)), to="bf16").model.module()(x), x)
