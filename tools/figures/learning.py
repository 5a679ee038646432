"""Draws docs/images/learning-NETWORK.svg: losses of whole trainings, way by way, from what torch_learning.py wrote.

    python benchmarks/torch_learning.py --threads 1 --json out/torch-learning.json
    python benchmarks/torch_workers.py --json out/torch-learning.json
    python tools/figures/learning.py out/torch-learning.json

A line is the mean over seeds of the running mean over 20 steps, on a logarithmic axis. What several workers trained is
a picture of its own, learning-NETWORK-workers.svg, with FP32 in it.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from svg import CUT, GREY, HIGH, INK, LOW, Drawing

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
_COLOURS = (
    INK, HIGH, LOW, "#3b8f5a", "#7a5aa6", "#2aa1a8", "#a0522d", CUT,
    "#d35fb7", "#9aa514", "#1b3f8b", "#e8a13a", "#5f0f40",
)  # fmt: skip
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 500, 52, 372
_WINDOW = 20
_MOST_POINTS = 60  # of a line
_BASELINE, _SHARED = "FP32", ("DDP", "FSDP2")
Lines = Mapping[str, Sequence[float]]


def lines_of(rows: Sequence[Mapping[str, Any]]) -> Lines:
    """The running means of one network, by way."""
    ways = dict.fromkeys(str(row["way"]) for row in rows)
    lines = {}
    for way in ways:
        losses = [row["losses"] for row in rows if row["way"] == way]
        means = [statistics.fmean(step) for step in zip(*losses, strict=True)]
        lines[way] = [
            statistics.fmean(means[max(0, at - _WINDOW + 1) : at + 1])
            for at in range(min(_WINDOW, len(means)) - 1, len(means))
        ]
    return lines


def draw(network: str, lines: Lines) -> Drawing:
    """Loss against steps."""
    drawing = Drawing(760, 430, f"Losses of whole trainings of the {network} network, way by way")
    drawing.text(_LEFT, 28, f"Training loss of the {network} network, mean of the seeds", is_bold=True, size=15)
    every = [loss for line in lines.values() for loss in line]
    low, high = math.log10(min(every)), math.log10(max(every))
    steps = max(map(len, lines.values()))

    def place(at: int, loss: float) -> tuple[float, float]:
        share = (math.log10(loss) - low) / max(high - low, 1e-9)
        return _LEFT + (_RIGHT - _LEFT) * at / max(steps - 1, 1), _BOTTOM - (_BOTTOM - _TOP) * share

    for part in range(5):
        loss = 10 ** (low + (high - low) * part / 4)
        _, y = place(0, loss)
        drawing.line((_LEFT, y), (_RIGHT, y), "#e4e7eb", 1)
        drawing.text(_LEFT - 8, y + 4, f"{loss:.3g}", INK, 12, "end")
        x = _LEFT + (_RIGHT - _LEFT) * part / 4
        drawing.text(x, _BOTTOM + 20, f"{round((steps - 1) * part / 4) + _WINDOW}", INK, 12, "middle")
    drawing.line((_LEFT, _BOTTOM), (_RIGHT, _BOTTOM), GREY)
    drawing.text((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "step", INK, 13, "middle")
    for number, (way, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        every_so_many = math.ceil(len(line) / _MOST_POINTS)
        points = [place(at, loss) for at, loss in enumerate(line) if (len(line) - 1 - at) % every_so_many == 0]
        for start, end in pairwise(points):
            drawing.line(start, end, colour, 1.6)
        drawing.line((_RIGHT + 16, _TOP + 8 + 22 * number), (_RIGHT + 40, _TOP + 8 + 22 * number), colour, 2.4)
        drawing.text(_RIGHT + 48, _TOP + 12 + 22 * number, way, INK, 12)
    return drawing


def main(arguments: Sequence[str]) -> None:
    rows = [row for name in arguments for row in json.loads(Path(name).read_text(encoding="utf-8"))["rows"]]
    for network in dict.fromkeys(row["network"] for row in rows):
        of = [row for row in rows if row["network"] == network]
        shared = [row for row in of if row["way"].startswith(_SHARED)]
        draw(network, lines_of([row for row in of if row not in shared])).save(PICTURES / f"learning-{network}.svg")
        if shared:
            beside = [row for row in of if row["way"] == _BASELINE]
            draw(network, lines_of([*beside, *shared])).save(PICTURES / f"learning-{network}-workers.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
