"""Draws docs/images/frontier.svg: what `mezzo tune` finds between cost and error on the demo model.

    python tools/figures/frontier.py

The data are the account that `mezzo tune --json` prints; predicted and measured errors are those of this machine.
"""

import json
import math
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from svg import CUT, GREY, INK, LOW, Drawing

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "images" / "frontier.svg"
DIGITS = ROOT / "examples" / "digits"
BUDGET = "3e-4"
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 700, 60, 372


def tune() -> dict[str, Any]:
    """The account of a search on the held-out digits."""
    with TemporaryDirectory() as folder:
        words = ["tune", DIGITS / "digits.onnx", Path(folder, "tuned.onnx"), "--data", DIGITS / "heldout.npz"]
        words += ["--labels", "label", "--max-error", BUDGET, "--json"]
        ran = subprocess.run([sys.executable, "-m", "mezzo", *words], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def draw(account: dict[str, Any]) -> Drawing:
    """Cost against error, both axes logarithmic but for cost; the plan that was chosen stands out."""
    points, budget = account["frontier"], account["search"]["budget"]
    whole = max(point["cost"] for point in points)
    drawing = Drawing(740, 430, "Error against cost for the plans that mezzo tune finds on the demo model")
    drawing.text(_LEFT, 28, f"The frontier of the demo model, budget {budget:g}", is_bold=True, size=15)
    _draw_axes(drawing)
    drawing.line((_LEFT, _y(budget)), (_RIGHT, _y(budget)), CUT, 1.4, "6 5")
    drawing.text(_RIGHT, _y(budget) - 7, "budget", CUT, 12, "end")
    for point in points:
        if point["predicted_error"] > 0:
            drawing.dot(_x(point["cost"] / whole), _y(point["predicted_error"]), 4, "#ffffff", GREY)
    for point in points:
        if point["error"]:
            fill = CUT if point["is_chosen"] else LOW
            drawing.dot(_x(point["cost"] / whole), _y(point["error"]), 6 if point["is_chosen"] else 5, fill)
            if point["is_chosen"]:
                words = f"chosen: {point['low_nodes']} nodes in f16, {point['cost'] / whole:.0%} of FP32's cost"
                drawing.text(_x(point["cost"] / whole) - 150, _y(point["error"]) + 40, words, CUT, 12)
    _draw_key(drawing)
    return drawing


def _draw_axes(drawing: Drawing) -> None:
    for exponent in (-5, -4, -3):
        for digit in (1, 2, 5):
            error = digit * 10.0**exponent
            if 1e-5 < error <= 1e-3:
                drawing.line((_LEFT, _y(error)), (_RIGHT, _y(error)), "#e4e7eb", 1)
                drawing.text(_LEFT - 8, _y(error) + 4, f"{digit}e{exponent}", INK, 12, "end")
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        drawing.line((_x(share), _BOTTOM), (_x(share), _BOTTOM + 5), GREY)
        drawing.text(_x(share), _BOTTOM + 20, f"{share:.0%}", INK, 12, "middle")
    drawing.line((_LEFT, _TOP), (_LEFT, _BOTTOM), GREY)
    drawing.line((_LEFT, _BOTTOM), (_RIGHT, _BOTTOM), GREY)
    drawing.text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "cost, all in FP32 = 100 %", INK, 13, "middle")
    drawing.text(24, (_TOP + _BOTTOM) / 2, "relative L2 error of the output", INK, 13, "middle", turn=-90)


def _draw_key(drawing: Drawing) -> None:
    drawing.dot(_RIGHT - 228, 70, 4, "#ffffff", GREY)
    drawing.text(_RIGHT - 218, 74, "predicted from single runs", size=12)
    drawing.dot(_RIGHT - 228, 90, 5, LOW)
    drawing.text(_RIGHT - 218, 94, "run on all of the tuning data", size=12)


def _x(share: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (share - 0.48) / (1.02 - 0.48)


def _y(error: float) -> float:
    low, high = math.log10(1.9e-5), math.log10(1.1e-3)
    return _BOTTOM - (_BOTTOM - _TOP) * (math.log10(error) - low) / (high - low)


def main() -> None:
    draw(tune()).save(PICTURE)


if __name__ == "__main__":
    main()
