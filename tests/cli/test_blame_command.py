"""`mezzo blame`: exit codes 0, 1, 2 and 3, a report, one JSON document, and errors of one line."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

import mezzo

_MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,16] x) => (float[N,16] y)
    <float a = {900}, float b = {900}, float c = {0.00001}>
    { [up] p = Mul (x, a)  [over] q = Mul (p, b)  [down] r = Mul (q, c)  [last] y = Tanh (r) }"""

# Figures, which depend on the machine, are N, and columns are two blanks apart.
_NEITHER = """\
model.onnx <-> bf16.onnx on right.npz
data.npz: 20 samples in 1 batch

neither: the device answers as the model's types say, and these answers are within the bound

compared  error  bound  verdict
emulation of the model <-> FP32  N  N  the same
device <-> emulation  0  N  the same
device <-> FP32  N  N  the same
"""


@pytest.fixture(autouse=True)
def _files(folder: Path) -> None:
    """A model that FP16 ruins, as FP16 and BF16, data, and what a device answers with the BF16 model."""
    model = onnx.parser.parse_model(_MODEL)
    onnx.save(model, "model.onnx")
    for to in ("fp16", "bf16"):
        mezzo.convert(model, f"{to}.onnx", to=to, policy="aggressive", include=["*"], target="any")
    x = np.random.default_rng(0).standard_normal((20, 16)).astype(np.float32)
    np.savez("data.npz", x=x)
    right = mezzo.emulate("bf16.onnx", {"x": x})["y"]
    np.savez("right.npz", y=right)
    np.savez("wrong.npz", y=right * 1.5)


def _blame(run: Run, model: str, *words: str):  # type: ignore[no-untyped-def]  # a result of the fixture's
    return run("blame", "model.onnx", model, "--data", "data.npz", *words)


def test_answers_as_the_types_say_are_nobodys_fault(run: Run) -> None:
    ran = _blame(run, "bf16.onnx", "--answers", "right.npz")
    assert (ran.code, ran.err) == (0, "")
    text = re.sub(r"\d\.\d+(e[+-]\d\d)?", "N", re.sub(" {2,}", "  ", ran.out))
    assert text == _NEITHER


def test_wrong_kernel_is_1_and_what_is_not_known_is_said(run: Run) -> None:
    ran = _blame(run, "bf16.onnx", "--answers", "wrong.npz")
    assert (ran.code, ran.err) == (1, "")
    assert "kernel: wrong.npz does not compute what the model's types say: output 'y' differs most, by 0.5" in ran.out
    assert "parts of the model have to run on the device for that" in ran.out


def test_wrong_plan_is_1_and_the_node_is_explained(run: Run) -> None:
    np.savez("overflow.npz", **mezzo.emulate("fp16.onnx", {"x": np.load("data.npz")["x"]}))
    ran = _blame(run, "fp16.onnx", "--answers", "overflow.npz")
    assert (ran.code, ran.err) == (1, "")
    assert "plan: the model is wrong as its own types say: " in ran.out
    assert "it begins at 'over' (Mul)" in ran.out and "  mezzo explain fp16.onnx over\n" in ran.out


def test_runtime_here_is_judged_and_the_record_is_one_document(run: Run) -> None:
    ran = _blame(run, "model.onnx", "--target", "onnxruntime-cpu", "--json")
    record = json.loads(ran.out)
    assert ran.code == 0 and record["format"] == "mezzo-blame/1" and record["finding"] == "neither"
    assert record["device"].startswith("onnxruntime ") and record["kernel"] is None


def test_data_that_shows_nothing_is_3(run: Run) -> None:
    np.savez("nan.npz", x=np.full((4, 16), np.nan, np.float32))
    ran = run("blame", "model.onnx", "model.onnx", "--data", "nan.npz", "--target", "onnxruntime-cpu")
    assert ran.code == 3 and "cannot tell: the device answers as the model's types say, and whether" in ran.out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "nothing says whose answers are judged; give --target for a runtime that is installed here, or --answers"),
        (
            ["--answers", "data.npz"],
            "data.npz: has no array 'y'; it has x; store every output of the model by its name",
        ),
        (["--answers", "no.npz"], "no.npz: no such file"),
        (["--target", "tensorrt"], "target 'tensorrt' does not run here; run it on "),
        (["--target", "onnxruntime-cpu", "--reproduce", "data.npz"], "--reproduce is 'data.npz', which is no folder;"),
        (["--target", "onnxruntime-cpu", "--reproduce", "no/fault"], "cannot write the part 'no/fault': 'no' is not a"),
        (["--answers", "right.npz", "--target", "onnxruntime-cpu"], "--target and --answers each say whose answers"),
    ],
)
def test_errors_are_one_line(run: Run, words: list[str], error: str) -> None:
    ran = _blame(run, "model.onnx", *words)
    assert ran.code == 2 and ran.out == "" and ran.err.startswith(f"mezzo: {error}") and ran.err.count("\n") == 1
