"""What the first screen and the account of a conversion say where integers run: in words of theirs, not of casts."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run

PRODUCTS = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,32] x) => (float[N,8] y)
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(h)
   [last] y = MatMul(r, v)
}
"""


@pytest.fixture
def products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model.onnx of two products, and data.npz for it."""
    monkeypatch.chdir(tmp_path)
    model, random = onnx.parser.parse_model(PRODUCTS), np.random.default_rng(6)
    w, v, x = (random.standard_normal(shape, np.float32) for shape in ((32, 64), (64, 8), (64, 32)))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(held, name) for held, name in ((w, "w"), (v, "v")))
    onnx.save(model, "model.onnx")
    np.savez("data.npz", x=x)


def convert(run: Run, source: str, *words: str) -> str:
    ran = run("convert", source, "q.onnx", "--to", "int8", "--data", "data.npz", "--overwrite", *words)
    assert ran.code == 0, ran.err
    return ran.out


@pytest.mark.usefixtures("products")
def test_tensors_quantized_are_counted_beside_casts(run: Run) -> None:
    rows = dict(line.rsplit(None, 1) for line in convert(run, "model.onnx", "-v").splitlines() if "  " in line)
    assert rows["tensors quantized"] == "4" and rows["casts added"] == "0"  # two values, two weights


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("words", [("--no-provenance",), ()])
def test_a_model_that_came_quantized_is_kept_and_told_so(run: Run, words: tuple[str, ...]) -> None:
    convert(run, "model.onnx", *words)
    before = Path("q.onnx").read_bytes()
    ran = run("convert", "q.onnx", "again.onnx", "--to", "int8", "--data", "data.npz", *words)
    assert ran.code == 0 and Path("again.onnx").read_bytes() == before
    if words:  # nothing tells what made it
        assert "no further speed gain: the model came quantized" in " ".join(ran.out.split())


@pytest.mark.usefixtures("products")
def test_numbers_that_gave_no_scale_are_told(run: Run) -> None:
    with np.load("data.npz") as data:
        x = data["x"].copy()
    x[2, 3] = np.nan
    np.savez("data.npz", x=x)
    assert "NaN and infinities in the data gave no scale: 1 of the numbers of 'x'" in convert(run, "model.onnx", "-v")


@pytest.mark.usefixtures("products")
def test_the_command_to_ask_a_result_has_the_options_that_made_it(run: Run) -> None:
    told = convert(run, "model.onnx", "-v")
    commands = [line.partition("mezzo ")[2] for line in told.splitlines() if "mezzo explain q.onnx" in line]
    assert commands and all(command.split()[-2:] == ["--to", "int8"] for command in commands)
    for command in commands:
        ran = run(*command.split())
        assert ran.code == 0 and "int8" in ran.out
