"""Ranges and sensitivities of a module, graph by graph."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import IN_PAIRS
from torch import nn
from torch.nn.utils import parametrizations

import mezzo
import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.torch.onednn.int8_kernels import multiplies_int8

_BATCHES = [torch.randn(8, 32, generator=torch.Generator().manual_seed(seed)) * (1 + seed) for seed in range(5)]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Layers(nn.Module):
    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.breaks = breaks
        self.up, self.norm, self.down = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.relu(self.up(x)))
        if self.breaks:
            torch._dynamo.graph_break()
        down: torch.Tensor = self.down(hidden * 30)
        return down


def test_ranges_are_those_of_all_batches_in_each_graph() -> None:
    module = Layers(breaks=True).eval()
    ups = torch.cat([module.up(batch) for batch in _BATCHES])
    downs = torch.cat([module(batch) for batch in _BATCHES])
    first, second = mezzo.torch.ranges(module, _BATCHES)
    for graph, node, values in ((first, "up/addmm", ups), (second, "down/addmm", downs)):
        (found,) = [value for value in graph.values if value.node == node]
        assert found.count == values.numel()
        # Kernels of other sizes sum in another order.
        assert found.minimum == pytest.approx(float(values.min()), rel=1e-5)
        assert found.maximum == pytest.approx(float(values.max()), rel=1e-5)


@pytest.mark.parametrize("to", ["bf16", "fp16"])
def test_sensitivities_are_those_of_the_exported_program(to: str) -> None:
    module = Layers().eval()
    (graph,) = mezzo.torch.sensitivity(module, _BATCHES, to=to)
    exported = torch.export.export(module, (_BATCHES[0],))
    expected = mezzo.sensitivity(exported, [{"x": batch.numpy()} for batch in _BATCHES], to=to)  # type: ignore[arg-type]  # the types are ONNX's
    assert len(graph.units) == len(expected.units) == 5
    # The bias is a product's own or an operand of it, so single roundings differ.
    assert [unit.error for unit in graph.units] == pytest.approx([unit.error for unit in expected.units], rel=0.1)
    assert {unit.name for unit in graph.units} == {
        "up/addmm", "relu", "norm/native_layer_norm", "mul", "down/addmm"
    }  # fmt: skip


@pytest.mark.skipif(not multiplies_int8(IN_PAIRS), reason="oneDNN has no INT8 matmuls on this machine")
@pytest.mark.parametrize("options", [{}, {"calibrator": "none"}], ids=["static", "rows"])
def test_each_graph_has_its_units_in_int8(options: dict[str, str]) -> None:
    module = Layers(breaks=True).eval()
    first, second = mezzo.torch.sensitivity(module, _BATCHES, to="int8", **options)
    assert [unit.name for unit in first.units] == ["up/addmm"]
    assert [unit.name for unit in second.units] == ["down/addmm"]
    # Steps of eight bits; errors are of the first batch, whose numbers are a fifth of the last one's.
    assert all(0.001 < unit.error < 0.1 for graph in (first, second) for unit in graph.units)


@pytest.mark.skipif(not multiplies_int8(IN_PAIRS), reason="oneDNN has no INT8 matmuls on this machine")
def test_frozen_weights_that_are_computed_are_seen() -> None:
    module = nn.Sequential(parametrizations.weight_norm(nn.Linear(32, 16)), nn.ReLU(), nn.Linear(16, 8)).eval()
    by_freezing = {
        is_frozen: mezzo.torch.sensitivity(module, _BATCHES, to="int8", freeze=is_frozen)[0].units
        for is_frozen in (False, True)
    }
    names = {is_frozen: sorted(unit.name for unit in units) for is_frozen, units in by_freezing.items()}
    assert names == {False: ["2/addmm"], True: ["0/addmm", "2/addmm"]}


def test_a_compiled_module_is_measured_as_the_module_is() -> None:
    module = Layers().eval()
    (expected,) = mezzo.torch.sensitivity(module, _BATCHES)
    (graph,) = mezzo.torch.sensitivity(mezzo.torch.compile(module), _BATCHES)
    assert graph.units == expected.units


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mezzo.torch.ranges(Layers(), []), "data holds no batch; give one at least"),
        (lambda: mezzo.torch.sensitivity(Layers(), []), "data holds no batch; give one at least"),
        (lambda: mezzo.torch.ranges("model", _BATCHES), "str is no module or function; give what is called"),
        (
            lambda: mezzo.torch.sensitivity(Layers(), _BATCHES, to="int8,bf16"),
            "to is 'int8,bf16', and sensitivity is measured for one format at a time; name one of them",
        ),
        (lambda: mezzo.torch.sensitivity(Layers(), _BATCHES, to="int4,bf16"), "to is 'int4,bf16', and sensitivity"),
        (lambda: mezzo.torch.sensitivity(Layers(), _BATCHES, polcy="off"), "option 'polcy' is unknown (did you mean"),
        (
            lambda: mezzo.torch.ranges(nn.LSTM(32, 4), [torch.randn(2, 3, 32)]),
            "nothing can be measured: Dynamo traced no graph on the data",
        ),
    ],
)
def test_errors_are_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value).startswith(message) and "\n" not in str(raised.value)
