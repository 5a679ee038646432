"""A failed comparison told in full (-v) ends with a command, ready to copy, that explains where the error begins."""

import re
import shlex

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

import mezzo

_SCALE = """<ir_version: 10, opset_import: ["" : 18]>
g (float[N,20] x) => (float[N,20] y) <float a = {900}, float b = {900}, float c = {0.00001}>
{ [one] p = Mul(x, a)  [two] q = Mul(p, b)  [three] y = Mul(q, c) }"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A model that FP16 ruins, and data."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32))


def _convert(model: onnx.ModelProto, *, provenance: bool) -> None:
    onnx.save(model, "model.onnx")
    mezzo.convert(
        "model.onnx", "bad.onnx", policy="aggressive", include=["*"], target="any", provenance=provenance
    )  # fmt: skip


def _next_commands(out: str) -> list[str]:
    return re.findall(r"^  (mezzo explain .*)$", out, flags=re.MULTILINE)


@pytest.mark.parametrize(("provenance", "asked"), [(True, "bad.onnx"), (False, "model.onnx")])
def test_the_command_runs_and_names_the_operator(run: Run, provenance: bool, asked: str) -> None:
    _convert(onnx.parser.parse_model(_SCALE), provenance=provenance)
    ran = run("compare", "model.onnx", "bad.onnx", "--data", "data.npz", "-v")
    assert ran.code == 1
    (command,) = _next_commands(ran.out)
    assert command == f"mezzo explain {asked} q"
    answer = run(*shlex.split(command)[1:])
    assert answer.code == 0 and "value q: made by two" in answer.out and "two (Mul) runs in" in answer.out


@pytest.mark.parametrize("name", ["-q", "a b", "it's", "/block.0/q'", "q;ls"])
def test_the_command_holds_any_name(run: Run, name: str) -> None:
    model = onnx.parser.parse_model(_SCALE)
    for node in model.graph.node:
        node.input[:] = [name if value == "q" else value for value in node.input]
        node.output[:] = [name if value == "q" else value for value in node.output]
    _convert(model, provenance=True)
    ran = run("compare", "model.onnx", "bad.onnx", "--data", "data.npz", "-v")
    (command,) = _next_commands(ran.out)
    answer = run(*shlex.split(command)[1:])
    assert answer.code == 0 and "two (Mul) runs in" in answer.out


def test_what_is_the_same_has_no_next_command(run: Run) -> None:
    onnx.save(onnx.parser.parse_model(_SCALE), "model.onnx")
    ran = run("compare", "model.onnx", "model.onnx", "--data", "data.npz")
    assert ran.code == 0 and "try next" not in ran.out


def test_the_value_of_a_body_is_named_so_that_explain_takes_it(run: Run) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[N,20] x) => (float[N,20] y) <bool yes = {1}, float a = {900}, float c = {0.00001}>
        { [if] q = If(yes) <then_branch = t () => (float[N,20] v) { [up] u = Mul(x, a) [more] v = Mul(u, a) },
                            else_branch = e () => (float[N,20] w) { [same] w = Identity(x) }>
          [down] y = Mul(q, c) }""")
    _convert(model, provenance=True)
    ran = run("compare", "model.onnx", "bad.onnx", "--data", "data.npz", "-v")
    assert ran.code == 1
    for command in _next_commands(ran.out):
        assert run(*shlex.split(command)[1:]).code == 0, command
