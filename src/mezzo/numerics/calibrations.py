"""Results of quantizing one model with several calibrators."""

from dataclasses import dataclass

from mezzo.ir.display import Displayed
from mezzo.numerics.measures import DataSource, Interval, Ruling, Verdict


@dataclass(frozen=True, slots=True)
class MetricScore:
    """A metric's mean (larger is better) and its drop below the reference's, with a paired
    confidence interval. `is_share`: it is a fraction of the samples, such as an accuracy.
    """

    name: str
    value: float
    drop: Interval
    is_share: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorRow:
    """The model of one calibrator, as `convert` would write it. `verdict` judges its outputs;
    `agreement`: fraction of samples with the reference's top-1 class, None without classes.
    `quantized`: INT8 matmuls and convolutions, out of `products`; `choosing_s`: time to compute its
    scales from collected statistics.
    """

    calibrator: str
    summary: str
    scores: tuple[MetricScore, ...]
    verdict: Verdict
    agreement: Interval | None
    size_bytes: int
    quantized: int
    products: int
    choosing_s: float


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibrations(Displayed):
    """One model quantized by several calibrators from statistics that were collected once.

    `calibrated`: the data that scales come from; `judged`: the data that outputs were judged on;
    `is_unseen`: they share no sample. `scores`: the reference's metrics by name, empty without
    labels and metric.
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
        """The most accurate among the calibrators with the most INT8 matmuls and convolutions, by
        output error, which is finer than top-1. None if no outputs are within their budgets, or
        nothing runs in INT8.
        """
        right = [
            row
            for row in self.rows
            if row.verdict.ruling in (Ruling.SAME, Ruling.UNDECIDED) and row.quantized
        ]
        return min(
            right, key=lambda row: (-row.quantized, row.verdict.error.estimate), default=None
        )
