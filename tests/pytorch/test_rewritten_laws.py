"""Rewritten graphs say what every call makes: by it compilers leave calls out, and write over memory. Regions hold."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from program_laws import feeds_of
from random_programs import Program as RandomProgram
from random_programs import planned
from rewritten_laws import disobeyed, stale

import mezzo.torch.compiler.passes
import mezzo.torch.compiler.subgraphs
from mezzo.aten.program import Program
from mezzo.contracts.plans import Plan
from mezzo.planner.options import Options
from mezzo.torch import precision
from mezzo.torch.compiler.rewriting import RewrittenGraph, rewrite


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@dataclass
class Found:
    """Of how many graphs that were rewritten what is stale and was not before, and what runs in no region's format."""

    graphs: int = 0
    stale: list[str] = field(default_factory=list)
    disobeyed: list[str] = field(default_factory=list)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    """What is wrong with the graphs that a test has rewritten."""
    found = Found()

    def noting(program: Program, options: Options, plan: Plan | None = None) -> RewrittenGraph:
        before = set(stale(program))
        made = rewrite(program, options, plan)
        found.graphs += 1
        found.stale += [said for said in stale(made.result.program) if said not in before]
        found.disobeyed += [] if program.path else disobeyed(made)
        return made

    monkeypatch.setattr(mezzo.torch.compiler.passes, "rewrite", noting)
    monkeypatch.setattr(mezzo.torch.compiler.subgraphs, "rewrite", noting)
    return found


class InLow(torch.nn.Module):
    """A function whose author asks for BF16."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        y = x.tanh()
        with precision("bf16"):
            return self.function(y)


@pytest.mark.parametrize(
    "function",
    [
        # Its clone makes an expanded tensor dense; taken for one that changes nothing, it was left out.
        lambda y: torch.repeat_interleave(y[:, :4], 2, dim=1),
        lambda y: y[:, :1].expand(8, 8, 16).reshape(8, 4, 2, 16).transpose(1, 2).reshape(8, 8, 16),
        lambda y: y.unfold(1, 4, 2).permute(0, 3, 1, 2).reshape(8, 12, 16),
        lambda y: y.diagonal(dim1=1, dim2=2).unsqueeze(1).expand(8, 3, 8).reshape(8, 24),
        lambda y: y.chunk(2, -1)[1].transpose(1, 2).contiguous().view(8, 64),
    ],
    ids=["repeat_interleave", "expand", "unfold", "diagonal", "chunk"],
)
def test_views_that_are_made_low_keep_their_strides(function: Callable[[Any], Any], found: Found) -> None:
    model, x = InLow(function).eval(), torch.randn(8, 8, 16)
    assert error_of(compiled(model)(x), model(x)) <= BF16_EPS  # they move numbers below 1, each rounded once
    assert found.graphs == 1 and found.stale == []


@pytest.mark.parametrize("seed", [62, 63, 64, 67, 90])
def test_calls_make_what_graphs_say_in_the_formats_of_regions(seed: int, found: Found) -> None:
    to = "bf16" if seed % 2 else "fp16"
    compiled(planned(RandomProgram(seed).text, to, seed), to=to, fullgraph=False)(*feeds_of(seed)[0])
    assert found.graphs and found.stale == [] and found.disobeyed == []
