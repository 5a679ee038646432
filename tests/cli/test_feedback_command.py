"""Sequences on the command line: what is fed back is said, the worst step decides, and what cannot be is one line."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

from mezzo.report.records.account import schema

AVERAGE = """<ir_version: 10, opset_import: ["" : 21]> average (float[N,2] x, float[N,2] h) => (float[N,2] new_h)
    <float[2,2] w = {1, 2, 3, 4}, float a = {0.995}, float b = {0.005}> {
        p = MatMul(x, w)  s = Mul(b, p)  kept = Mul(a, h)  new_h = Add(kept, s) }"""


@pytest.fixture
def average(folder: Path) -> Path:
    onnx.save(onnx.parser.parse_model(AVERAGE), "average.onnx")
    rng = np.random.default_rng(0)
    np.savez("x.npz", x=(1 + rng.standard_normal((400, 2))).astype(np.float32))
    return folder


def test_the_worst_step_decides_and_growth_is_said(average: Path, run: Run) -> None:
    assert run("convert", "average.onnx", "low.onnx", "--to", "fp16", "--quiet").code == 0
    compared = run("compare", "average.onnx", "low.onnx", "--data", "x.npz", "--feedback", "guess", "-v")
    assert compared.code == 1, compared.out
    assert "each step is fed 'new_h' as 'h' from the one before" in compared.err
    assert "the data has no 'h': zeros at the first step" in compared.err
    assert "on 400 steps" in compared.out
    assert "new_h: error " in compared.out and " at step 400" in compared.out and ": grows" in compared.out
    assert "--feedback guess" in compared.out  # the next command has it too
    assert run("convert", "average.onnx", "kept.onnx", "--to", "fp16", "--feedback", "guess", "--quiet").code == 0
    words = ("compare", "average.onnx", "kept.onnx", "--data", "x.npz", "--feedback", "new_h=h")
    assert run(*words).code == 0
    assert "carried-state" in run("explain", "kept.onnx", "Add:new_h").out


def test_account_has_the_error_of_each_step(average: Path, run: Run) -> None:
    assert run("convert", "average.onnx", "low.onnx", "--to", "fp16", "--quiet").code == 0
    words = ("compare", "average.onnx", "low.onnx", "--data", "x.npz", "--feedback", "guess", "--json")
    account = json.loads(run(*words).out)
    jsonschema.Draft202012Validator(schema()).validate(account)
    (output,) = account["errors"]["outputs"]
    assert output["steps"]["count"] == 400
    assert max(error for _, error in output["steps"]["curve"]) == output["steps"]["worst"]
    assert account["settings"]["feedback"] == "guess"


def test_random_steps_as_many_as_asked(average: Path, run: Run) -> None:
    words = ("ranges", "average.onnx", "--data", "random", "--feedback", "guess", "--steps", 30)
    assert "30 samples in 1 batch" in run(*words).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--feedback", "h=new_h"), "output of --feedback 'h' is unknown; choose one of new_h"),
        (("--feedback", "new_h=x", "--feedback", "new_h=h"),
         "--feedback 'new_h=h' names output 'new_h' a second time; give each once"),
        (("--feedback", "new_h"), "--feedback 'new_h' is not understood; give OUTPUT=INPUT, or --feedback guess"),
        (("--steps", 3), "--steps is 3 and no output is fed back; give --feedback too"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [("compare", "average.onnx"), ("ranges",)])
def test_what_cannot_be_fed_back_is_one_line(
    average: Path, run: Run, command: tuple[str, ...], words: tuple[object, ...], message: str
) -> None:
    ran = run(*command, "average.onnx", "--data", "x.npz", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.strip() == f"mezzo: {message}"
