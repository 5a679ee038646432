"""Models past what protobuf holds are timed from files. The limit is lowered: every weight here is past it."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.common.errors import ContractError
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.request import Request
from mezzo.contracts.profiles import Effort
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import open_source
from mezzo.onnx.files import files, runnable_model, save
from mezzo.planner.options import Options, read_options
from mezzo.tuning.costs import table_costs
from mezzo.tuning.measured_costs import Measurement, measure
from mezzo.tuning.timing.interleaved_timing import Turning

_TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[16,64] x) => (float[16,64] y)
{
   [one] a = MatMul(x, w)
   [relu] b = Relu(a)
   [two] y = MatMul(b, v)
}"""
_LIMIT_BYTES = 20_000  # each weight takes 64 * 256 * 4


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose weights lie in a file, under a limit that it passes; where large files go nothing may be left."""
    model = onnx.parser.parse_model(_TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (64, 256)), ("v", (256, 64))):
        numbers = (rng.standard_normal(shape) / 16).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.data", size_threshold=0)
    for module in (save, files):
        monkeypatch.setattr(module, "MAX_MESSAGE_BYTES", _LIMIT_BYTES)
    monkeypatch.setattr(runnable_model, "MAPPED_FROM", 0)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return path


def batches(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((16, 64)).astype(np.float32)} for _ in range(count)]


def left_of(large: Path) -> list[Path]:
    """What mezzo left of temporary files."""
    return [*(large.parent / "temporary").glob("*mezzo*")]


def by_table(model: Model, options: Options, feeds: object) -> Measurement:
    """Costs by which FP16 gains, whatever it does here."""
    costs, table = table_costs(judge_model(model, options)[1].problem, "measured on nothing")
    return Measurement(costs=costs, table=table, high_ns=1.0, low_ns=1.0, mapped_share=1.0, notes=())


def test_it_is_past_the_limit(large: Path) -> None:
    model = open_source(large, False, None)
    with pytest.raises(ContractError, match="a model in memory holds 20000; write it to a file"):
        model.materialize(model.original)


def test_costs_of_operators_are_measured(large: Path) -> None:
    model = open_source(large, False, None)
    options = read_options(Request(to="fp16", target="onnxruntime-cpu", policy="aggressive"))
    found = measure(model, options, batches(1)[0], Effort(runs=2, calls=1))
    names = {node.node: node.high for node in found.table.nodes}
    assert names["one"] > 0 and names["two"] > 0
    assert not left_of(large)


def test_tune_times_the_result_beside_fp32_and_what_convert_gives(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzo.api.tune.measure_target", by_table)
    monkeypatch.setattr("mezzo.tuning.timing.final_benchmark.USUAL", Turning(starts=2, rounds=8, seconds=None))
    result = large.with_name("tuned.onnx")
    found = mezzo.tune(
        large, result, data=batches(8), max_error=0.05, measure=True, target="onnxruntime-cpu", to="fp16"
    )
    assert found.measured is not None and found.measured.search is not None
    # All three ran; which of them is faster is not for this test to say.
    assert [note for note in found.measured.notes if " what convert alone gives, which errs by " in note]
    assert "does not run" not in found.measured.search.stopped_by
    onnx.checker.check_model(str(result), full_check=True)
    assert not left_of(large)
