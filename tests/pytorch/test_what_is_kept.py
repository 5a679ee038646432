"""What a compiled model keeps of its graphs: names, sizes and lines, and none of its weights or of the compiler."""

import gc
import types
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from torch import fx, nn

from mezzo.torch.compiler.compiled import account

_STRANGERS = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, type)


def _reached(root: object) -> Iterator[object]:
    """All that an object holds on to; of functions what they close over, and not their modules."""
    met, pending = {id(root)}, [root]
    while pending:
        one = pending.pop()
        yield one
        is_function = isinstance(one, types.FunctionType)
        held: Any = (*(one.__closure__ or ()), *(one.__defaults__ or ())) if is_function else gc.get_referents(one)  # type: ignore[attr-defined]  # a function has them
        for other in held:
            if id(other) not in met and not isinstance(other, _STRANGERS):
                met.add(id(other))
                pending.append(other)


def test_an_account_holds_no_weights_and_no_nodes_of_the_compiler() -> None:
    torch._dynamo.reset()
    run = driving.compiled(driving.Net().eval())
    with torch.no_grad():
        run(torch.randn(2, 32))
    (graph,) = account(run).graphs
    assert graph.plan is not None and graph.snapshot is not None
    lines = graph.snapshot.graph.lines
    kept = [type(one).__name__ for one in _reached(graph) if isinstance(one, torch.Tensor | fx.Node | nn.Module)]
    assert not kept
    assert {line.file.rpartition("/")[2] for line in lines.values()} == {"driving.py"}
    assert all(node.rule for node in graph.plan.nodes)
