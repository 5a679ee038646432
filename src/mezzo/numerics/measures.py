"""What was measured, as data: ranges, errors, verdicts, sensitivity, costs and the frontier between speed and error."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.formats.dtypes import DType
from mezzo.ir.display import Shown
from mezzo.tables.target import Gain


@dataclass(frozen=True, slots=True)
class DataSource:
    """The data that something was measured on. `samples` are independent rows; `batches` how they came. `seed` is that
    of inputs that were drawn at random, None where they are somebody's data.
    """

    name: str
    batches: int
    samples: int
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate over samples with its confidence interval; `confidence` is 0.95 for a 95 % interval."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class FormatRange:
    """What one format would do to a value's numbers. Shares are of its finite numbers, of its nonzero ones below 1.

    `beyond`: rounds to infinity. `below_normal`: nonzero, under the smallest normal number. `vanishing`: nonzero and
    rounds to zero. `rounding`: relative L2 error of rounding the value once.
    """

    beyond: float
    below_normal: float
    vanishing: float
    rounding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """What one value held over all batches. `node` is its producer as plans spell it ("input x" for an input).

    `minimum` and `maximum` are of all finite numbers; `quantiles` of magnitudes as (share, magnitude), `formats` and
    `mean_absolute` are of a sample of `sampled` numbers out of `count`. `largest_at` names the data of the largest
    magnitude.
    """

    value: str
    node: str
    op: str
    count: int
    sampled: int
    minimum: float
    maximum: float
    mean_absolute: float
    has_nan: bool
    has_infinity: bool
    quantiles: tuple[tuple[float, float], ...]
    formats: Mapping[DType, FormatRange]
    largest_at: str

    @property
    def largest(self) -> float:
        """The largest finite magnitude."""
        return max(abs(self.minimum), abs(self.maximum))


@dataclass(frozen=True, slots=True, repr=False)
class Ranges(Shown):
    """The ranges of every float value of a model, in graph order. `skipped` says what was not measured, and why.

    `unknown`: why the data cannot tell what the values are, in words; empty where it can.
    """

    data: DataSource
    values: tuple[ValueRange, ...]
    skipped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Ruling(enum.Enum):
    """What a comparison comes to: on the samples that there are the answers are, or are not, within the budget."""

    SAME = "same"
    DIFFERENT = "different"
    UNDECIDED = "undecided"  # within the budget, but other samples may not be: more of them would decide
    UNKNOWN = "cannot tell"  # the data, or the reference's answers to it, show nothing

    @property
    def is_open(self) -> bool:
        """Whether it says neither yes nor no."""
        return self in (Ruling.UNDECIDED, Ruling.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How one value of a model differs from the reference's, over all data.

    `relative_l2`: ||y - ref|| / ||ref||, with an interval over samples. `sqnr_db`: 20 log10 of its inverse.
    `largest_ulp`: the largest error in units in the last place of `ulp_format`, at the reference's magnitude.
    `fault`: NaN, infinities, zeros or constants where the reference has none; such a value is wrong whatever the rest.
    An output has a budget and FP32 noise of its own, and a `ruling`; `unknown` says why it cannot be judged, `worry`
    what a part of it lost that does not make it wrong, `doubt` what of that leaves open whether it is right. A layer
    has none of them. `worst`: the relative L2 of the sample
    that differs most, `worst_at` its number from 0. `figures` are those of `mezzo.numerics.metrics.figures`, by name.
    """

    name: str
    samples: int
    relative_l2: Interval
    cosine: float
    sqnr_db: float
    largest_absolute: float
    largest_ulp: float
    ulp_format: DType
    fault: str | None = None
    top1: Interval | None = None  # share of rows whose largest element stands where the reference's does
    topk: Interval | None = None  # share of rows whose k largest elements are the reference's
    k: int | None = None
    ruling: Ruling | None = None
    budget: float | None = None
    budget_source: str | None = None
    budget_asked: float | None = None
    noise: float | None = None
    unknown: str | None = None
    worry: str | None = None
    doubt: str | None = None
    worst: float | None = None
    worst_at: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricResult:
    """The user's own metric on the reference and on the candidate."""

    name: str
    reference: float
    candidate: float

    @property
    def drop(self) -> float:
        """By how much the candidate is worse, where larger is better."""
        return self.reference - self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether two models give the same answers, each output within its own budget.

    `error`, `budget` and `noise` are those of the output that decides, the error NaN where none could be judged.
    `noise` is what FP32 itself differs by when it sums in another order; `budget_source` says who set the budget, and
    `budget_asked` what was asked for where noise took its place.
    `because` tells why, and not the ruling again. `unknown`: what the data cannot tell, and why, each in words.
    """

    ruling: Ruling
    error: Interval
    budget: float
    budget_source: str
    noise: float
    because: str
    unknown: tuple[str, ...] = ()
    budget_asked: float | None = None

    @property
    def is_same(self) -> bool:
        """Whether the answers are known to be the same. Where it is False, `ruling` tells wrong from not known."""
        return self.ruling is Ruling.SAME


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Shown):
    """The answers of one model against a reference's. `run`: "emulated" in the true precision, or "native".
    `sizes_bytes`: those of the reference and of the model, where they are known; `target`: what the model says that it
    was made for, and `gain` what the target's table tells of its speed.
    """

    data: DataSource
    run: str
    outputs: tuple[Deviation, ...]
    layers: tuple[Deviation, ...]
    verdict: Verdict
    metric: MetricResult | None = None
    notes: tuple[str, ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    target: str | None = None
    gain: Gain | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the answers are known to be others."""
        return self.verdict.ruling is Ruling.DIFFERENT


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitError:
    """What running one unit, a node or nodes that are judged together, low costs in output error when all else is high.

    `is_measured`: by a run of its own; otherwise it is a share of the error that `together` units made in one run, and
    may lie between `low` and `high`. `fault`: see `Deviation`.
    """

    name: str
    nodes: tuple[str, ...]
    error: float
    is_measured: bool
    fault: str | None = None
    together: int = 1
    low: float | None = None  # None where it is measured
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sensitivity(Shown):
    """Units, the most costly first. `runs` is how many forward runs it took, on `data`; `all_low` the error of all, NaN
    where nothing was run. `unknown`: what the data cannot tell, in words.
    """

    data: DataSource
    units: tuple[UnitError, ...]
    all_low: float
    runs: int
    unknown: tuple[str, ...] = ()


BYTES_MOVED = "bytes moved"


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What one node costs in each precision, in the account's unit."""

    node: str
    high: float
    low: float


@dataclass(frozen=True, slots=True)
class CostTable:
    """Where costs come from. `unit`: `BYTES_MOVED` for tables, "ns" for measured times. `total_*` of whole plans."""

    source: str
    unit: str
    nodes: tuple[NodeCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The cheapest plan for one price of error. `weight`: cost units per squared error, infinite where only FP32 is.

    `cost` in the unit of the costs; `error` is measured, None where the plan was only predicted. `predicted_error` is
    the root of the sum of squared errors of what runs low, times the record's `prediction.factor`.
    """

    weight: float
    cost: float
    low_nodes: int
    predicted_error: float
    error: float | None = None
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """How well errors were predicted, by the `points` of the frontier that were measured too.

    `factor`: what sums of squares are taken times, so that predictions are right on the average; the measured error was
    then between `low` and `high` of the predicted one.
    """

    factor: float
    low: float
    high: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """How a search went. Evaluations are passes over all tuning data; partial ones over a part of it; `checks` are
    passes of a converted model over the data that judges it.

    `margin`: the plan had to stay below budget / margin on the tuning data. `held_out_error`: on data that the search
    never saw. `stopped_by`: why the search ended, in words. `costliest`: the unit whose error costs most. `unknown`:
    what the data cannot tell, in words: where it says anything, nobody knows whether the budget holds.
    """

    budget: float
    margin: float
    evaluations: int
    partial_evaluations: int
    checks: int
    error: float
    held_out_error: float | None
    is_within_budget: bool
    stopped_by: str
    time_s: float
    costliest: str | None = None
    unknown: tuple[str, ...] = ()
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """A model that was timed beside others. `fault` says why the target does not run it; then nothing else is known.

    `median_ns` and `least_ns` are times of a call; `speed` is how many times as fast as the first of them it is, None
    for that one itself.
    """

    name: str
    fault: str | None
    median_ns: float | None
    least_ns: float | None
    speed: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Models timed side by side in turns on a target: the source in FP32, the result, and what convert alone gives
    where that could be made. `load` is the machine's before and after, None where the system does not tell.
    """

    target: str
    runtime: str
    turns: int
    load: tuple[float, float] | None
    models: tuple[TimedModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCheck:
    """What the runtime of a target made of a result. `why_not`: why nothing was checked; then the rest says nothing.

    `runtime` has its version. `fault`: why it does not load or run the result. `comparison` is of its answers with
    FP32's. `planned` counts the products that read quantized data in the file, `in_floats` names those that the
    runtime's own graph has in floats. `returned`: products that went back to floats for what was seen.
    """

    target: str
    runtime: str | None = None
    why_not: str | None = None
    fault: str | None = None
    comparison: Comparison | None = None
    planned: int | None = None  # not counted
    in_floats: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether the result does not run there, or answers wrong."""
        return self.fault is not None or (self.comparison is not None and self.comparison.is_wrong)

    @property
    def is_in_doubt(self) -> bool:
        """Whether its answers there leave open whether the result is right."""
        return self.comparison is not None and any(output.doubt for output in self.comparison.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that was measured on the way to one model, for its account; what was not asked for is None or empty. `data`
    is what decided; `shares_data` says that it, or a part of it, also judged.
    """

    data: DataSource | None = None
    ranges: Ranges | None = None
    comparison: Comparison | None = None
    sensitivity: Sensitivity | None = None
    costs: CostTable | None = None
    frontier: tuple[FrontierPoint, ...] = ()
    search: SearchRecord | None = None
    timing: Timing | None = None
    runtime: RuntimeCheck | None = None
    shares_data: bool = False
    notes: tuple[str, ...] = field(default=())
