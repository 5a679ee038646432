"""The two examples that GraphAMP's authors give of their regions: a program of two products and two GELUs, and the same
with the second half left to its author.
"""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
import torch.nn.functional as functional
from region_programs import graphs_of
from torch import Tensor, nn

import mezzo
from mezzo.aten.marks import Mark, marks_in
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import frontend_of
from mezzo.torch import keep
from mezzo.torch.compiler.regions import marking

_KEPT = Mark(None, is_exact=True)
_PRODUCTS = ("matmul", "mm")


class _Automatic(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        matmul_1 = torch.matmul(a, b)
        act_1 = functional.gelu(matmul_1)
        matmul_2 = torch.matmul(act_1, c)
        return functional.gelu(matmul_2)


class _ByHand(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        matmul_1 = torch.matmul(a, b)
        act_1 = functional.gelu(matmul_1)
        with keep():
            matmul_2 = torch.matmul(act_1.bfloat16(), c.bfloat16())
            return functional.gelu(matmul_2)


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 64)


def _exported(model: nn.Module, *, strict: bool) -> Any:
    with marking(), torch.no_grad():
        return torch.export.export(model, _inputs(), strict=strict)


def _compiled(model: nn.Module) -> Any:
    with torch.no_grad():
        (graph,) = graphs_of(model, *_inputs())
    return graph


_TRACERS: dict[str, Callable[[nn.Module], Any]] = {
    "compiled": _compiled,
    "strict": lambda model: _exported(model, strict=True).graph_module,
    "non-strict": lambda model: _exported(model, strict=False).graph_module,
    "decomposed": lambda model: _exported(model, strict=True).run_decompositions().graph_module,
}


@pytest.mark.parametrize("tracer", _TRACERS)
def test_nothing_is_marked_where_there_is_no_region(tracer: str) -> None:
    assert {mark for *_, mark in marks_in(_TRACERS[tracer](_Automatic()))} == {None}


@pytest.mark.parametrize("tracer", _TRACERS)
def test_second_product_its_casts_and_gelu_are_kept(tracer: str) -> None:
    marks = [
        mark
        for _, node, mark in marks_in(_TRACERS[tracer](_ByHand()))
        if node.op.startswith("call") and "_assert_tensor_metadata" not in str(node.target)  # what export adds
    ]
    assert marks == [None, None, _KEPT, _KEPT, _KEPT, _KEPT]


def _typed(program: Any) -> list[tuple[str, torch.dtype]]:
    """Products and GELUs with the types in which they run."""
    found = []
    for node in program.graph.nodes:
        name = str(node.target).split(".")[1] if node.op == "call_function" else ""
        if name in (*_PRODUCTS, "gelu"):
            found.append((name, node.all_input_nodes[0].meta["val"].dtype))
    return found


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
def test_products_run_low_and_gelus_in_fp32(strict: bool) -> None:
    """The first example. A product of PyTorch's on a CPU gives what it reads, so a cast follows each."""
    exported = _exported(_Automatic(), strict=strict).run_decompositions({})
    converted = mezzo.convert(exported, to="bf16", target="torch-cpu").model
    assert _typed(converted) == [
        ("matmul", torch.bfloat16), ("gelu", torch.float32), ("matmul", torch.bfloat16), ("gelu", torch.float32)
    ]  # fmt: skip
    casts = [node for node in converted.graph.nodes if "convert_element_type" in str(node.target)]
    assert [node.args[1] for node in casts].count(torch.bfloat16) == 4  # a, b, act_1 and c


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
def test_what_is_kept_runs_as_it_is_written(strict: bool) -> None:
    """The second example, of what the region says: its half is typed by its author, and the answer is in BF16."""
    exported = _exported(_ByHand(), strict=strict).run_decompositions({})
    converted = mezzo.convert(exported, to="bf16", target="torch-cpu").model
    assert _typed(converted)[2:] == [("matmul", torch.bfloat16), ("gelu", torch.bfloat16)]
    assert converted.module()(*_inputs()).dtype is torch.bfloat16


def test_line_of_what_stands_in_a_region_is_the_programs() -> None:
    exported = _exported(_ByHand(), strict=True).run_decompositions({})
    model = frontend_of(exported).open(exported, trust_external_paths=False, progress=None)
    graph = model.read(DType.BFLOAT16).graph
    assert graph.marks
    assert {graph.lines[number].code for number in graph.marks} == {
        "matmul_2 = torch.matmul(act_1.bfloat16(), c.bfloat16())",
        "return functional.gelu(matmul_2)",
    }
