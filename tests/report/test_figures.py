"""A figure is one row: what compares, reports, accounts and pages have it by its name."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from samples import SAME, show

from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics import figures
from mezzo.numerics.metrics.figures import Figure, Floats
from mezzo.numerics.metrics.metrics import Meter
from mezzo.report.layout.layout import Layout
from mezzo.report.records.account import describe_comparison, schema
from mezzo.report.records.documents import number
from mezzo.report.text.measured.comparison import report_comparison

NAMES = "in.onnx", "out.onnx"


class Bias:
    """The mean of signed differences."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, want: Floats, found: Floats, error: Floats) -> None:
        self.total, self.count = self.total + float((found - want).sum()), self.count + want.size

    def result(self) -> float:
        return self.total / self.count


@pytest.fixture
def with_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more row in the table of figures."""
    monkeypatch.setattr(figures, "FIGURES", (*figures.FIGURES, Figure("bias", "bias", Bias)))


def test_figures_are_sorted_by_name() -> None:
    names = [figure.name for figure in figures.FIGURES]
    assert names == sorted({*names})


def test_a_new_figure_is_one_row(with_a_row: None) -> None:
    meter = Meter("y", DType.FLOAT16)
    for shift in (0.5, 1.5):
        want = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
        meter.add(want, want + np.float32(shift), 4)
    found = meter.result()
    assert found.figures["bias"] == pytest.approx(1.0, rel=4 * float(np.finfo(np.float32).eps))
    comparison = replace(SAME, outputs=(found,), layers=(found,))
    account = describe_comparison(*NAMES, comparison)
    jsonschema.validate(account, schema())
    assert json.loads(json.dumps(account))["errors"]["outputs"][0]["figures"]["bias"] == number(found.figures["bias"])
    shown = show(report_comparison(Layout.PLAIN, *NAMES, comparison)).splitlines()
    tables = [line.split() for line in shown if line.split()[1:2] == ["relative"]]
    assert all("bias" in words for words in tables) and len(tables) == 2
    assert sum(f"{found.figures['bias']:.4g}" in line.split() for line in shown if line.startswith("y ")) == 2
