"""A law: every command that a command prints runs as it is printed, and judges no file by itself."""

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

_MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,-2,3,-4,5,6,7,-8,9,1,2,3}, float[3,3] v = {1,2,3,4,-5,6,7,8,9}>
{ [first] h = MatMul(x, w)  [relu] r = Relu(h)  [second] k = MatMul(r, v)  [sm] y = Softmax<axis=-1>(k) }"""
_OVERFLOWS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,4] y) <float a = {900}, float b = {900}, float c = {0.00001}>
{ [one] p = Mul(x, a)  [two] q = Mul(p, b)  [three] y = Mul(q, c) }"""
_INTEGERS = """<ir_version: 10, opset_import: ["" : 21]>
g (int64[N,4] x) => (int64[N,4] y) { y = Add(x, x) }"""
_ANSWERS = (0, 1, 3)  # yes, no, nobody can tell; what does not run ends with 2

CASES = [
    "plan {m}",
    "plan {m} --to bf16 --target openvino-cpu",
    "plan {m} --save p.json",
    "plan integers.onnx",
    "explain {m} sm",
    "explain p.json sm",
    "explain {m} op:MatMul",
    "convert {m} out.onnx",
    "convert {m} out.onnx --to int8 --data {d}",
    "convert {m} out.onnx --data {d}",
    "convert {m} out.onnx --data random",
    "convert {m} out.onnx --data nan.npz",
    "convert {m} out.onnx --data {l} --labels t --batch 5",
    "convert {m} out.onnx --plan p.json",
    "convert {m} out.onnx --to int8 --data {d} --calibrator entropy --quantize-mode full",
    "convert {m} {m} --overwrite",
    "convert {m} {m} --overwrite --data {d}",
    "convert integers.onnx out.onnx",
    "convert models out",
    "convert models out --data folder-data",
    "convert overflows.onnx out.onnx --policy mxnet --include * --data {d}",
    "compare {m} bad.onnx --data {d}",
    "compare {m} bad.onnx --data {d} --max-error 0",
    "compare {m} bad.onnx --data random",
    "compare {m} {m} --data random",
    "compare {m} {m} --data {d} --batch 5",
    "compare {m} {m} --data nan.npz",
    "tune {m} out.onnx --data {d} --max-error 1e-2",
    "tune {m} out.onnx --data {d} --max-error 1e-9",
    "tune {m} out.onnx --data {l} --labels t --max-error 1e-2 --batch 5",
    "tune {m} out.onnx --data {d} --max-error 1e-2 --policy balanced",
    "tune {m} out.onnx --data nan.npz --max-error 1e-2",
    "tune {m} out.onnx --data random --max-error 1e-2",
    "tune {m} {m} --data {d} --max-error 1e-2 --overwrite",
    "quantize-report {m} --data {d}",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, data and a plan; both names have a blank and a quote in them."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.normal(size=(20, 4)).astype(np.float32)
    for name, text in (("my model's.onnx", _MODEL), ("overflows.onnx", _OVERFLOWS), ("integers.onnx", _INTEGERS)):
        onnx.save(onnx.parser.parse_model(text), name)
    onnx.save(onnx.parser.parse_model(_MODEL.replace("9,1,2,3", "9,1,2,-3")), "bad.onnx")
    np.savez("my data.npz", x=x)
    np.savez("with labels.npz", x=x, t=np.zeros(20, np.int64))
    np.savez("nan.npz", x=np.full((8, 4), np.nan, np.float32))
    Path("models").mkdir()
    onnx.save(onnx.parser.parse_model(_MODEL), "models/one two.onnx")
    Path("folder-data").mkdir()
    np.savez("folder-data/one two.npz", x=x)
    return tmp_path


def _printed(out: str) -> list[str]:
    return re.findall(r"^(?:next)? +(mezzo .*)$", out, flags=re.MULTILINE)


def _words(case: str) -> list[str]:
    names = {"{m}": "my model's.onnx", "{d}": "my data.npz", "{l}": "with labels.npz"}
    return [names.get(word, word) for word in case.split()]


@pytest.mark.parametrize("case", CASES)
def test_every_printed_command_runs(run: Run, here: Path, case: str) -> None:
    if "p.json" in case:
        assert run("plan", "my model's.onnx", "--save", "p.json").code == 0
    words = _words(case)
    ran = run(*words, *(["-v"] if words[0] in ("plan", "convert", "compare", "tune") else []))
    assert ran.code in _ANSWERS, ran.err
    for command in _printed(ran.out):
        again = shlex.split(command)
        answer = run(*again[1:])
        assert answer.code in _ANSWERS, f"{command}\n{answer.err}"
        assert again[1] != "compare" or again[2] != again[3] or words[0] == "compare", command
