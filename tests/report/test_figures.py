"""A figure is one file: what compares, reports, accounts and pages have it by its name."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from samples import SAME, show

import mezzo.numerics.metrics.figures as room
from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.metrics import Meter
from mezzo.report.layout.layout import Layout
from mezzo.report.records.account import describe_comparison, schema
from mezzo.report.records.sections import number
from mezzo.report.text.measured.comparison import report_comparison

NAMES = "in.onnx", "out.onnx"
_FILE = """
from mezzo.numerics.metrics.figures import Figure

class _Bias:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, want, found, error):
        self.total, self.count = self.total + float((found - want).sum()), self.count + want.size

    def result(self):
        return self.total / self.count

FIGURE = Figure("bias", "bias", _Bias)
"""


@pytest.fixture
def with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more file in the folder of figures."""
    (tmp_path / "bias.py").write_text(_FILE)
    monkeypatch.setattr(room, "__path__", [*room.__path__, str(tmp_path)])
    monkeypatch.setattr(room, "figures", room.figures.__wrapped__)
    monkeypatch.setattr("mezzo.numerics.metrics.metrics.figures", room.figures)


def test_figures_are_found_by_their_files() -> None:
    assert [figure.name for figure in room.figures()] == sorted(figure.name for figure in room.figures())
    assert len(room.figures()) == len([p for p in Path(room.__path__[0]).glob("*.py") if p.stem != "__init__"])


def test_a_new_figure_is_one_file(with_a_file: None) -> None:
    meter = Meter("y", DType.FLOAT16)
    for shift in (0.5, 1.5):
        want = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
        meter.add(want, want + np.float32(shift), 4)
    found = meter.result()
    assert found.figures["bias"] == pytest.approx(1.0, rel=4 * float(np.finfo(np.float32).eps))
    comparison = replace(SAME, outputs=(found,), layers=(found,))
    account = describe_comparison(*NAMES, comparison)
    jsonschema.validate(account, schema())
    assert json.loads(json.dumps(account))["errors"]["outputs"][0]["figures"] == {"bias": number(found.figures["bias"])}
    shown = show(report_comparison(Layout.PLAIN, *NAMES, comparison)).splitlines()
    tables = [line.split() for line in shown if line.split()[1:2] == ["relative"]]
    assert all("bias" in words for words in tables) and len(tables) == 2
    assert sum(f"{found.figures['bias']:.4g}" in line.split() for line in shown if line.startswith("y ")) == 2
