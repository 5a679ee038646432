"""The page of a sequence draws the error at each step."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
from opened_pages import Opened

import mezzo

COUNTER = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,2] x, float[1,2] h) => (float[1,2] new_h, float[1,2] y)
    <float a = {0.995}> { kept = Mul(a, h)  new_h = Add(kept, x)  y = Neg(x) }"""


def test_page_of_a_sequence_draws_the_error_at_each_step(browser: Any, tmp_path: Path) -> None:
    source = onnx.parser.parse_model(COUNTER)
    low = mezzo.convert(source, to="fp16", policy="aggressive", include=["*"], check=False).model
    x = np.random.default_rng(0).random((300, 2), np.float32)
    mezzo.compare(source, low, {"x": x}, feedback="guess").report(tmp_path / "steps.html")
    opened = Opened(browser, tmp_path / "steps.html")
    assert opened.page.locator("#steps-chart polyline").count() == 2
    assert opened.page.locator("#steps-chart .key").inner_text().split() == ["new_h", "y", "budget"]
    opened.run("mezzoPage.print(); dispatchEvent(new Event('afterprint'))")
    opened.close()
