"""mezzo ranges: what it prints and refuses."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run


@pytest.fixture
def overflowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with model.onnx, whose value 'square' passes FP16, and data.npz."""
    monkeypatch.chdir(tmp_path)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[N, 8] x) => (float[N, 8] y) {
        [sq] square = Mul(x, x)  [root] y = Sqrt(square) }""")
    onnx.save(model, "model.onnx")
    x = np.full((6, 8), 2, np.float32)
    x[4, 1] = 900
    np.savez("data.npz", x=x)


@pytest.mark.usefixtures("overflowing")
def test_a_value_that_passes_the_format_comes_first(run: Run) -> None:
    ran = run("ranges", "model.onnx", "--data", "data.npz", "--batch", "2")
    assert ran.code == 0
    assert "1 value passes f16's range" in ran.out
    row = next(line for line in ran.out.splitlines() if line.startswith("square"))
    assert "sq" in row.split()
    assert "data.npz[4:6]" in row
    assert "fits f8" not in ran.out


@pytest.mark.usefixtures("overflowing")
def test_another_format_is_judged_by_its_own_range(run: Run) -> None:
    assert "every value fits bf16" in run("ranges", "model.onnx", "--data", "data.npz", "--format", "bf16").out
    assert "3 values pass" in run("ranges", "model.onnx", "--data", "data.npz", "--format", "f8e4m3fn").out


@pytest.mark.usefixtures("overflowing")
def test_the_document_tells_every_value(run: Run) -> None:
    ran = run("ranges", "model.onnx", "--data", "data.npz", "--json")
    document = json.loads(ran.out)
    assert document["command"] == "ranges"
    found = {value["value"]: value for value in document["ranges"]["values"]}
    assert found.keys() == {"x", "square", "y"}
    assert (found["square"]["minimum"], found["square"]["maximum"]) == (4.0, 810000.0)
    assert found["square"]["formats"]["f16"]["beyond"] == pytest.approx(1 / 48, rel=1e-8)  # as rounded for the document
    assert document["data"]["samples"] == 6


@pytest.mark.usefixtures("overflowing")
def test_quiet_prints_nothing_and_still_keeps_the_state(run: Run) -> None:
    ran = run("ranges", "model.onnx", "--data", "data.npz", "--resume", "state.npz", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert run("ranges", "model.onnx", "--data", "data.npz", "--resume", "state.npz").code == 0


@pytest.mark.usefixtures("overflowing")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "fp8"], "--format 'fp8' is unknown; choose one of fp16, bf16, f8e4m3fn, f8e5m2"),
        (["--top", "0"], "--top is 0; give 1 or more"),
        (["--batch", "0"], "--batch is 0; give 1 or more"),
        (["--resume", "model.onnx"], "--resume 'model.onnx' is a model of this command; give it a name of its own"),
        (["--labels", "z"], "nothing for 'z'"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, words: list[str], message: str) -> None:
    ran = run("ranges", "model.onnx", "--data", "data.npz", *words)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
