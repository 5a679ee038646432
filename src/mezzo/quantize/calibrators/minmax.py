"""Min-max calibration: the full observed range, without clipping."""

from typing import ClassVar

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary


class MinMax(Calibrator):
    name: ClassVar[str] = "minmax"
    summary: ClassVar[str] = "from the smallest number seen to the largest; nothing is clipped"
    also: ClassVar[tuple[str, ...]] = ("naive", "absmax")

    def choose(self, seen: Summary, grid: Grid) -> Range:
        assert seen.extremes is not None, "numbers were seen"
        return seen.extremes
