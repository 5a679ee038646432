"""mezzo quantize-report: each row is what convert makes of values collected once; its table, its document, its words.
Errors that a user can cause stand in tests/answers/golden/calibration.txt.
"""

import importlib
import io
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnx.parser
import pytest
from command_lines import Run
from rich.console import Console

import mezzo
from mezzo.numerics.calibrations import Calibrations, CalibratorRow, MetricScore
from mezzo.numerics.measures import DataSource, Interval, Ruling, Verdict
from mezzo.plugins.discovery import calibrators
from mezzo.quantize import calibration
from mezzo.quantize.collection import collect
from mezzo.quantize.observers.collector import Collector
from mezzo.report.layout.layout import Layout
from mezzo.report.text.measured.calibrations import calibrations_schema, report_calibrations

CLASSIFIER = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,32] x) => (float[N,8] y)
{
   [mm] h = MatMul(x, w)
   [relu] r = Relu(h)
   [last] y = MatMul(r, v)
}
"""
SCREEN = """\
model.onnx to int8 for onnxruntime-cpu, by each calibrator
  judged on held.npz: 200 samples in 2 batches; values collected once, in 1.2 s
  scales are from calib.npz, and held.npz judged the answers

calibrator    top-1  drop   error    size  in int8  chosen in
FP32        90.00 %     -       -  400 KB        -          -
bold        86.00 %  4.00     0.2  100 KB   2 of 2      <1 ms
shy         90.00 %  0.00  0.0123  200 KB   1 of 2      20 ms
  bold: different: output 'y' is off

  in int8: products with weights or of two values that run on integers, of all
  top-1: on 200 samples (one is 0.5 points) no statistically significant drop of shy
"""


@pytest.fixture
def classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model.onnx with calib.npz, whose labels are the model's own classes, but for every tenth."""
    monkeypatch.chdir(tmp_path)
    model, random = onnx.parser.parse_model(CLASSIFIER), np.random.default_rng(5)
    w, v, x = (random.standard_normal(shape, np.float32) for shape in ((32, 64), (64, 8), (160, 32)))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(held, name) for held, name in ((w, "w"), (v, "v")))
    onnx.save(model, "model.onnx")
    label = (np.maximum(x @ w, 0) @ v).argmax(axis=1)
    label[::10] = (label[::10] + 1) % 8
    np.savez("calib.npz", x=x, label=label)
    return tmp_path


def row_of(name: str, ruling: Ruling, error: float, quantized: int, score: MetricScore, **more: float) -> CalibratorRow:
    interval = Interval(error, error, error)
    verdict = Verdict(
        ruling=ruling, error=interval, budget=0.06, budget_source="8 eps", noise=0.0, because="output 'y' is off"
    )
    return CalibratorRow(
        calibrator=name, summary="", scores=(score,), verdict=verdict, agreement=None, size_bytes=quantized * -100_000
        + 300_000, quantized=quantized, products=2, choosing_s=more["choosing_s"],
    )  # fmt: skip


def two() -> Calibrations:
    bold = MetricScore("top-1", 0.86, Interval(0.04, 0.01, 0.07), True)
    shy = MetricScore("top-1", 0.9, Interval(0.0, -0.01, 0.01), True)
    return Calibrations(
        to="int8", target="onnxruntime-cpu", calibrated=DataSource("calib.npz", 1, 40), is_unseen=True,
        judged=DataSource("held.npz", 2, 200), scores=(("top-1", 0.9),), size_bytes=400_000, collecting_s=1.234,
        rows=(
            row_of("bold", Ruling.DIFFERENT, 0.2, 2, bold, choosing_s=1e-4),
            row_of("shy", Ruling.SAME, 0.0123, 1, shy, choosing_s=0.02),
        ),
        notes=("scales are from calib.npz, and held.npz judged the answers",),
    )  # fmt: skip


def test_the_screen_in_a_pipe_is_this() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200, color_system=None, markup=False, highlight=False)
    for part in report_calibrations(Layout.PLAIN, "model.onnx", two()):
        console.print(part)
    assert "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n" == SCREEN


def test_the_table_fits_a_terminal_of_80_columns() -> None:
    text = io.StringIO()
    for part in report_calibrations(Layout.TERMINAL, "model.onnx", two()):
        Console(file=text, width=80, color_system=None, markup=False, highlight=False).print(part)
    rows = [line for line in text.getvalue().splitlines() if line.startswith((" FP32", "FP32", " shy", "shy"))]
    assert [row.split()[-1] for row in rows] == ["-", "ms"]


def test_the_best_is_right_first_and_then_quantizes_most() -> None:
    """The one that errs least may only have put its products back."""
    found = two()
    assert found.best is found.rows[1]
    shy, bold = found.rows[1], row_of("bold", Ruling.SAME, 0.05, 2, found.rows[0].scores[0], choosing_s=0.0)
    both = Calibrations(**{name: getattr(found, name) for name in found.__slots__} | {"rows": (shy, bold)})
    assert both.best is bold


def test_a_row_is_what_convert_makes(classifier: Path) -> None:
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], target="openvino-cpu")
    assert [row.calibrator for row in found.rows] == [*calibrators()]
    for row in found.rows:
        converted = mezzo.convert(
            "model.onnx", "out.onnx", overwrite=True, to="int8", target="openvino-cpu", calibrator=row.calibrator,
            data="calib.npz", labels=["label"],
        )  # fmt: skip
        assert converted.measured is not None and converted.measured.comparison is not None
        assert row.verdict == converted.measured.comparison.verdict
        assert row.size_bytes == Path("out.onnx").stat().st_size


def test_ranges_found_at_run_time_stand_first_where_the_target_finds_them(classifier: Path, run: Run) -> None:
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], calibrators="none,minmax")
    assert [row.calibrator for row in found.rows] == ["none", "minmax"]
    assert found.rows[0].quantized == 2 == found.rows[1].quantized
    ran = run("quantize-report", "model.onnx", "--data", "calib.npz", "--labels", "label", "--calibrators", "none",
              "--target", "openvino-cpu")  # fmt: skip
    assert ran.code == 2 and "names no kernel that does so" in ran.err


def test_values_are_collected_once_for_all(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []

    def count(model: Any, planned: Any, session: Any, *more: Any) -> Any:
        passes.append(session.data.name)
        return collect(model, planned, session, *more)

    monkeypatch.setattr(calibration, "collect", count)
    mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"])
    assert len(passes) == 1


def test_a_class_of_ones_own_sees_all_numbers_of_every_batch(classifier: Path) -> None:
    Path("ranges_of_mine.py").write_text(
        "class Extremes:\n"
        "    made = []\n"
        "    def __init__(self):\n"
        "        self.low, self.high, self.count = {}, {}, {}\n        self.made.append(self)\n"
        "    def collect(self, name, array):\n"
        "        self.low[name] = min(self.low.get(name, 0), array.min())\n"
        "        self.high[name] = max(self.high.get(name, 0), array.max())\n"
        "        self.count[name] = self.count.get(name, 0) + len(array)\n"
        "    def choose(self, name):\n        return self.low[name], self.high[name]\n"
    )
    found = mezzo.quantize_report(
        "model.onnx", "calib.npz", labels=["label"], calibrators=["minmax", "ranges_of_mine:Extremes"], batch_size=50,
        correct="none",
    )  # fmt: skip
    plain, ours = found.rows
    assert ours.verdict == plain.verdict and ours.quantized == plain.quantized == 2
    (one,) = importlib.import_module("ranges_of_mine").Extremes.made
    assert {"x", "r"} <= one.count.keys() and set(one.count.values()) == {found.calibrated.samples}


def test_fp8_is_shown_by_the_calibrators_that_suit_it(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that weighs even steps is left out; who names it hears so before anything runs."""
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], to="fp8", target="tensorrt")
    even = {name for name, one in calibrators().items() if one.needs_even}
    assert even and {row.calibrator for row in found.rows} == calibrators().keys() - even
    monkeypatch.setattr(Collector, "add", lambda *_: pytest.fail("data was run"))
    with pytest.raises(mezzo.InputError, match="weighs steps of one size"):
        mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], to="fp8", calibrators="minmax,entropy")


def test_labels_tell_accuracy_of_data_that_no_scale_saw(classifier: Path) -> None:
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"])
    assert found.is_unseen and (found.calibrated.samples, found.judged.samples) == (120, 40)
    scores = dict(found.scores)
    assert scores["top-1"] == 0.9 and scores["top-5"] >= 0.9  # every tenth label is another
    for row in found.rows:
        for score in row.scores:
            assert score.drop.estimate == pytest.approx(scores[score.name] - score.value, abs=1e-12)


def test_data_held_out_judges_and_gives_no_scale(classifier: Path) -> None:
    with np.load("calib.npz") as data:
        np.savez("held.npz", x=data["x"][:8] * 100, label=data["label"][:8])
    plain = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], calibrators="minmax")
    found = mezzo.quantize_report(
        "model.onnx", "calib.npz", held_out="held.npz", labels=["label"], calibrators=["minmax"]
    )
    assert found.is_unseen and (found.calibrated.samples, found.judged.samples) == (160, 8)
    assert plain.rows[0].quantized == 2 and found.rows[0].quantized == 0  # far beyond all ranges, so both went back
    assert found.notes[1].startswith("by the ranges alone the answers were off")


def test_a_metric_of_ones_own_stands_in_the_place_of_classes(classifier: Path, run: Run) -> None:
    Path("scores_of_mine.py").write_text("def margin(outputs, labels):\n    return outputs['y'].max(axis=1) * 100\n")
    ran = run(
        "quantize-report", "model.onnx", "--data", "calib.npz", "--labels", "label", "--metric",
        "scores_of_mine:margin", "--calibrators", "minmax",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "scores_of_mine:margin" in ran.out and "top-1" not in ran.out and "points" not in ran.out


def test_without_labels_classes_are_compared_with_those_of_fp32(classifier: Path, run: Run) -> None:
    with np.load("calib.npz") as data:
        np.savez("plain.npz", x=data["x"])
    ran = run("quantize-report", "model.onnx", "--data", "plain.npz")
    assert ran.code == 0, ran.err
    assert "as FP32" in ran.out and "top-1" not in ran.out


def test_labels_that_are_no_classes_are_told_and_not_guessed(classifier: Path, run: Run) -> None:
    with np.load("calib.npz") as data:
        np.savez("other.npz", x=data["x"], label=data["label"].astype(np.float32))
    ran = run("quantize-report", "model.onnx", "--data", "other.npz", "--labels", "label", "--calibrators", "minmax")
    assert ran.code == 0, ran.err
    assert "top-1 is unknown: of the labels 'label' float32[40] none hold an integer for each of 40 samples" in ran.out


def test_the_document_keeps_its_schema(classifier: Path, run: Run) -> None:
    jsonschema.Draft202012Validator.check_schema(calibrations_schema())
    for words in ((), ("--labels", "label")):
        with np.load("calib.npz") as data:
            np.savez("data.npz", **(dict(data) if words else {"x": data["x"]}))
        ran = run("quantize-report", "model.onnx", "--data", "data.npz", *words, "--json")
        document = json.loads(ran.out)
        jsonschema.validate(document, calibrations_schema())
        assert [row["calibrator"] for row in document["calibrators"]] == ["none", *calibrators()]
        assert len(document["calibrators"][0]["scores"]) == len(words)  # top-1 and top-5


def test_data_that_shows_nothing_ends_with_3(classifier: Path, run: Run) -> None:
    np.savez("nan.npz", x=np.full((16, 32), np.nan, np.float32))
    ran = run("quantize-report", "model.onnx", "--data", "nan.npz")
    assert ran.code == 3 and "cannot tell" in ran.out


def test_the_next_command_writes_the_best(classifier: Path, run: Run) -> None:
    ran = run("quantize-report", "model.onnx", "--data", "calib.npz", "--labels", "label", "--target", "openvino-cpu")
    (command,) = (line.strip() for line in ran.out.splitlines() if line.strip().startswith("mezzo convert"))
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"], target="openvino-cpu")
    assert found.best is not None
    option = "" if found.best.calibrator == "minmax" else f" --calibrator {found.best.calibrator}"
    assert command.endswith(f"--target openvino-cpu{option}")
    assert run(*command.split()[1:]).code == 0
    assert Path("model.int8.onnx").exists()


def test_python_shows_it_in_three_lines(classifier: Path) -> None:
    found = mezzo.quantize_report("model.onnx", "calib.npz", labels=["label"])
    assert len(repr(found).splitlines()) == 3 and math.isfinite(found.collecting_s)
    assert "<table" in found._repr_html_()
