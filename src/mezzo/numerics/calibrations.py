"""What quantizing a model by one calibrator after the other has shown."""

from dataclasses import dataclass

from mezzo.ir.display import Shown
from mezzo.numerics.measures import DataSource, Interval, Ruling, Verdict


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's mean, larger is better, and by how much it is below the reference's, with an interval over the
    differences of the same samples. `is_share`: it is a share of the samples.
    """

    name: str
    value: float
    drop: Interval
    is_share: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorRow:
    """One calibrator's model, which is what `convert` writes with it. `verdict` judges its answers; `agreement` is the
    share of samples whose first class is the reference's, None where no output has classes. `quantized` of `products`
    run on integers; `choosing_s` is what its scales took once values were collected.
    """

    calibrator: str
    summary: str
    scores: tuple[Score, ...]
    verdict: Verdict
    agreement: Interval | None
    size_bytes: int
    quantized: int
    products: int
    choosing_s: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibrations(Shown):
    """A model quantized by one calibrator after the other, from values that were collected once.

    `calibrated` is the data that scales are from, `judged` that which answers were judged on; `is_unseen`: they have no
    sample in common. `scores` are the reference's metrics by name, empty where neither labels nor a metric were given.
    """

    to: str
    target: str
    calibrated: DataSource
    judged: DataSource
    is_unseen: bool
    scores: tuple[tuple[str, float], ...]
    size_bytes: int
    collecting_s: float
    rows: tuple[CalibratorRow, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> CalibratorRow | None:
        """Of the calibrators whose answers are right, with most products on integers, the one whose answers err least,
        which tells finer than classes do. None where no answers are right, or nothing runs on integers.
        """
        right = [row for row in self.rows if row.verdict.ruling in (Ruling.SAME, Ruling.UNDECIDED) and row.quantized]
        return min(right, key=lambda row: (-row.quantized, row.verdict.error.estimate), default=None)
