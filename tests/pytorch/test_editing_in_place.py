"""A compiler's graph is edited where it stands: to what a copy of it would become, or not at all."""

from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from torch import fx, nn

from mezzo.aten.edit import apply
from mezzo.aten.handed import HandedModel
from mezzo.aten.model import TorchModel
from mezzo.aten.program import Program
from mezzo.aten.read.retype import as_dtype, dtypes_of, fake_mode_of
from mezzo.aten.unpacking import program_of
from mezzo.contracts.frontend import Fault
from mezzo.conversion.conversion import convert_model
from mezzo.formats.dtypes import DType
from mezzo.torch.compiler.settings import read_settings

_MODELS = [
    (driving.Net, torch.randn(2, 32)),
    (driving.Conv, torch.randn(2, 3, 8, 8)),
    (driving.Gated, torch.randn(2, 7, 32)),
]


def _program(kind: type[nn.Module], given: torch.Tensor) -> Program:
    return program_of(torch.export.export(kind().eval(), (given,)).run_decompositions())


def _told(graph: fx.Graph) -> list[object]:
    return [(str(node), node.target, node.args, node.kwargs, dtypes_of(node.meta.get("val"))) for node in graph.nodes]


def _written(graph: fx.Graph) -> list[str]:
    return [repr(one) for one in _told(graph)]


@pytest.mark.parametrize(("kind", "given"), _MODELS)
def test_a_graph_becomes_what_its_copy_does(kind: Any, given: torch.Tensor) -> None:
    program, options = _program(kind, given), read_settings({}).planning()
    _, copied = convert_model(TorchModel(program), options, None)
    before = _written(program.graph)
    model = HandedModel(program)
    convert_model(model, options, None)
    assert _written(program.graph) == _written(copied.program.graph) != before
    model.restore()
    assert _written(program.graph) == before
    program.graph.lint()


def test_a_refused_graph_is_as_it_was(monkeypatch: Any) -> None:
    program = _program(*_MODELS[0])
    before = _told(program.graph)
    monkeypatch.setattr(apply._Applier, "_unplanned", lambda self: Fault("no", frozenset()))
    decided, _ = convert_model(HandedModel(program), read_settings({}).planning(), None)
    assert all(node.precision.compute is not DType.BFLOAT16 for node in decided.plan.nodes)
    assert _told(program.graph) == before


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x,
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:, :, ::2],
        lambda x: x[:1].expand(3, 4, 6),
        lambda x: x[:0],
    ],
)
def test_a_retyped_fake_lies_in_memory_as_a_conversion_of_it_does(made: Any) -> None:
    mode = fake_mode_of(fx.Graph())
    with mode:
        held = made(torch.empty(2, 4, 6))
        wanted = held.to(torch.bfloat16)
    found = as_dtype(mode, held, torch.bfloat16)
    assert (found.dtype, found.shape, found.stride()) == (torch.bfloat16, wanted.shape, wanted.stride())
    assert found.device == wanted.device
