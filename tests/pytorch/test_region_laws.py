"""Regions, held by random programs: every operator has the mark of its innermost region, through every tracer."""

import io

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
import torch._inductor.lowering  # before its table of decompositions
from region_programs import (
    Marks,
    Program,
    functional_graphs_of,
    graphs_of,
    marks_of,
    recorded,
    tensors,
    traced,
)

from mezzo.torch.compiler.regions import marking

_SEEDS = range(10)
_FEWER = range(100, 104)


def _check(program: Program, found: Marks) -> None:
    noted = recorded(program.text)
    assert found == {number: noted[number] for number in noted.keys() - (program.checkpoints - found.keys())}, (
        program.text
    )


@pytest.mark.parametrize("seed", _SEEDS)
def test_compiled_operators_have_the_mark_of_their_innermost_region(seed: int) -> None:
    program = Program(seed)
    with torch.no_grad():
        graphs = graphs_of(traced(program.text), *tensors())
    assert marks_of(graphs) == recorded(program.text), program.text


@pytest.mark.parametrize("seed", _SEEDS)
def test_every_piece_of_a_decomposed_operator_has_its_mark(seed: int) -> None:
    program = Program(seed)
    with torch.no_grad():
        forward, _ = functional_graphs_of(traced(program.text), *tensors())
    _check(program, marks_of(forward))


@pytest.mark.parametrize("seed", _FEWER)
def test_backward_pieces_have_the_mark_of_their_operator(seed: int) -> None:
    program = Program(seed, bodies=False)
    forward, backward = functional_graphs_of(traced(program.text), *tensors(requires_grad=True))
    _check(program, marks_of(forward))
    found, noted = marks_of(backward), recorded(program.text)
    assert found and found == {number: noted[number] for number in found}, program.text


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
@pytest.mark.parametrize("seed", _FEWER)
def test_exported_operators_have_the_mark_of_their_innermost_region(seed: int, strict: bool) -> None:
    program = Program(seed, depth=3, breaks=False, bodies=False)

    class Model(torch.nn.Module):
        def forward(self, x: "torch.Tensor", w: "torch.Tensor") -> "torch.Tensor":
            return run(x, w)

    run = traced(program.text)
    with torch.no_grad(), marking():
        exported = torch.export.export(Model(), tensors(), strict=strict)
    _check(program, marks_of([exported.graph_module]))
    for table in ({}, None):
        decomposed = exported.run_decompositions(table)
        file = io.BytesIO()
        torch.export.save(decomposed, file)
        file.seek(0)
        loaded = torch.export.load(file)
        _check(program, marks_of([loaded.graph_module]))


@pytest.mark.parametrize("seed", _FEWER)
def test_answers_are_the_same_without_regions(seed: int) -> None:
    """Nothing converts here, so regions change not one bit: in eager code, and in graphs that run as they are."""
    program = Program(seed)
    plain = "\n".join(_without_regions(program.text))
    x, w = tensors()
    with torch.no_grad():
        wanted = traced(plain)(x, w)
        assert torch.equal(traced(program.text)(x, w), wanted)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(traced(program.text), backend="eager")(x, w), wanted)


def _without_regions(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        bare = line.lstrip()
        if bare.startswith("@region"):
            continue
        if bare.startswith("with region"):
            line = line[: len(line) - len(bare)] + "if True:"
        elif bare.startswith("m_"):
            name = bare.partition(" ")[0]
            line = f"{name} = Calling({name[2:]})"
        lines.append(line)
    return lines
