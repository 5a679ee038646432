"""Records of measurements: ranges, errors, verdicts, sensitivity, costs, frontier."""

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mezzo.common.late_binding import function_above
from mezzo.formats.dtypes import DType
from mezzo.ir.display import Displayed
from mezzo.numerics.step_errors import StepErrors
from mezzo.tables.target import Gain


@dataclass(frozen=True, slots=True)
class DataSource:
    """The data of a measurement. `samples` are independent rows, in `batches`. `seed`: that of
    random inputs, None for real data.
    """

    name: str
    batches: int
    samples: int
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval; `confidence` is 0.95 for a 95 % interval."""

    estimate: float
    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class FormatRange:
    """The effect of one format on a value. Fractions are of its finite elements, for the next two
    of its nonzero ones.

    `beyond`: rounds to infinity. `below_normal`: nonzero, under the smallest normal number.
    `vanishing`: nonzero and rounds to zero. `rounding`: relative L2 error of rounding the value
    once.
    """

    beyond: float
    below_normal: float
    vanishing: float
    rounding: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """The range of one value over all batches. `node`: its producer as plans name it ("input x" for
    an input).

    `minimum` and `maximum` are of all finite elements; `quantiles`, as (share, magnitude),
    `formats` and `mean_absolute` are of a sample of `sampled` out of `count` elements.
    `largest_at`: the batch with the largest magnitude.
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
class Ranges(Displayed):
    """The ranges of every float value of a model, in graph order. `skipped`: values that were not
    measured, and why.

    `unknown`: reasons why the data cannot represent the values, as text; empty if there are none.
    """

    data: DataSource
    values: tuple[ValueRange, ...]
    skipped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class Ruling(enum.Enum):
    """The outcome of a comparison: whether the outputs on these samples are within the budget."""

    SAME = "same"
    DIFFERENT = "different"
    # Within the budget, but maybe not on other samples: more of them would decide.
    UNDECIDED = "undecided"
    UNKNOWN = "cannot tell"  # the data, or the reference's outputs on it, cannot reveal an error

    @property
    def is_open(self) -> bool:
        """Whether the comparison was inconclusive."""
        return self in (Ruling.UNDECIDED, Ruling.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over rows of text. `standard_error`: None for a single row."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTokens:
    """A language model's next tokens against the reference's, on running text.

    `kl`: Kullback-Leibler divergence of the reference's distribution to the candidate's, in nats
    per token. `agreement`: share of tokens with the same likeliest next token. `perplexity`: of the
    text's own next tokens, None if the reference predicts each token itself instead, as masked
    language models do.
    """

    rows: int
    tokens: int
    kl: Mean
    agreement: Mean
    reference_perplexity: Mean | None
    perplexity: Mean | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The error of one value against the reference's, over all data.

    `relative_l2`: ||y - ref|| / ||ref||, with an interval over samples. `sqnr_db`: 20 log10 of its
    inverse. `largest_ulp`: the largest error in units in the last place of `ulp_format`, at the
    reference's magnitude. `fault`: NaN, infinities, zeros or constants where the reference has
    none, which always make the value wrong. `worst`: relative L2 of the worst sample, `worst_at`
    its index. `figures`: those of `mezzo.numerics.metrics.figures`, by name.

    Outputs alone have a budget, FP32 noise and a `ruling`. `unknown`: why an output cannot be
    judged; `worry`: a partial loss that does not fail it; `doubt`: one that leaves its ruling open.
    `next_tokens`: of logits on running text. `steps`: of a sequence, whose worst step is then the
    error.
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
    top1: Interval | None = None  # fraction of rows with the reference's argmax
    topk: Interval | None = None  # fraction of rows with the reference's k largest elements
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
    next_tokens: NextTokens | None = None
    steps: StepErrors | None = None


@dataclass(frozen=True, slots=True)
class MetricResult:
    """The user's own metric on the reference and on the candidate."""

    name: str
    reference: float
    candidate: float

    @property
    def drop(self) -> float:
        """The candidate's loss against the reference; larger metrics are better."""
        return self.reference - self.candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether two models have the same outputs, each within its own budget.

    `error`, `budget` and `noise` are of the deciding output; the error is NaN if none could be
    judged. `noise`: FP32's own rounding noise; `budget_source`: where the budget comes from;
    `budget_asked`: the requested one, if noise replaced it. `because`: the reason, as text.
    `unknown`: what could not be judged and why, as text.
    """

    ruling: Ruling
    error: Interval
    budget: float
    budget_source: str
    budget_asked: float | None = None
    noise: float
    because: str
    unknown: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether the outputs are known to be the same; `ruling` tells wrong from unknown."""
        return self.ruling is Ruling.SAME


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Displayed):
    """The outputs of one model compared with a reference's. `run`: "emulated" with every value
    rounded as typed, or "native" on a runtime. `sizes_bytes`: of the reference and the model, if
    known; `target`: the model's recorded target, `gain` that target's documented speedup; `names`:
    of the reference and the model, their paths if they are files. `is_swapped`: the reference has
    low precision, and the model has none.
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
    names: tuple[str, str] = ("the reference", "the model")
    is_swapped: bool = False

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML page about the comparison, and return its path. It draws the
        graph of a model that is a file.

        Raises InputError: the path cannot be written, or is a file that is no such page.
        """
        function_above("api.compare", "write_page")(self, path)
        return Path(path)

    @property
    def is_wrong(self) -> bool:
        """Whether the outputs are known to differ."""
        return self.verdict.ruling is Ruling.DIFFERENT


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitError:
    """The output error when one unit (a node, or nodes tied together) runs in low precision and all
    else in high.

    `is_measured`: by a run of its own; otherwise its share of the error of `together` units in one
    run, between `low` and `high`. `fault`: see `Deviation`.
    """

    name: str
    nodes: tuple[str, ...]
    error: float
    is_measured: bool
    together: int = 1
    low: float | None = None  # None if measured
    high: float | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sensitivity(Displayed):
    """Units by falling error. `runs`: forward runs on `data`; `all_low`: the error with all units
    in low precision, NaN if nothing ran. `unknown`: what the data cannot show, as text.
    """

    data: DataSource
    all_low: float
    runs: int
    unknown: tuple[str, ...] = ()
    units: tuple[UnitError, ...]


BYTES_MOVED = "bytes moved"
BYTES_STORED = "bytes of weights"


@dataclass(frozen=True, slots=True)
class NodeCost:
    """The cost of one node in each precision, in the unit of its `CostTable`."""

    node: str
    high: float
    low: float


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of nodes. `unit`: `BYTES_MOVED` for tables, "ns" for measured times; `BYTES_STORED` of
    whole plans, where the storage of weights was searched.
    """

    source: str
    unit: str
    nodes: tuple[NodeCost, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The cheapest plan for one price of error. `weight`: cost units per squared error, infinite
    for FP32 only.

    `cost` is in the unit of the costs; `low_nodes` counts weights in blocks where their storage was
    searched; `error` is measured, None if only predicted.
    `predicted_error`: the root of the summed squared errors of low-precision units, times the
    record's `prediction.factor`.
    """

    weight: float
    cost: float
    low_nodes: int
    predicted_error: float
    error: float | None = None
    is_chosen: bool = False

    @property
    def best_error(self) -> float:
        """The measured error if there is one, else the predicted one."""
        return self.predicted_error if self.error is None else self.error


@dataclass(frozen=True, slots=True)
class Prediction:
    """Accuracy of predicted errors, from the `points` of the frontier that were also measured.

    `factor`: correction of the root of summed squares that makes predictions right on average; a
    measured error is between `low` and `high` times the prediction.
    """

    factor: float
    low: float
    high: float
    points: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRecord:
    """Record of a search. `evaluations` are passes over all tuning data, `partial_evaluations` over
    a part of it; `checks`: passes of a converted model over the data that judges it.

    `margin`: on the tuning data the error had to stay below budget / margin. `held_out_error`: on
    data the search never used. `stopped_by`: why the search ended. `costliest`: the unit with the
    largest error. `unknown`: what the data cannot show, as text; if not empty, the budget is not
    verified. `max_bytes`: the size that bounded the search instead of an error; then `budget` only
    allows for other data.
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
    max_bytes: int | None = None


class Load(NamedTuple):
    """The machine's load average over a minute, before and after a measurement."""

    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedModel:
    """One model of a timing run. `fault`: why the target cannot run it; then no times are set.

    `median_ns` and `least_ns` are per call; `speed`: speedup over the first model, None for that
    one.
    """

    name: str
    fault: str | None
    median_ns: float | None
    least_ns: float | None
    speed: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Interleaved timings of models on a target: the FP32 source, the result, and plain `convert`'s
    result where it exists. `load`: None if the system has none.
    """

    target: str
    runtime: str
    turns: int
    load: Load | None
    models: tuple[TimedModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedFormat:
    """Formats (as an option: "int8,bf16") for a target that were tried for their speed, without a
    request for either. `median_ns`: per call; `speed`: speedup over FP32 on the same runtime; both
    None if it was not timed. `fault`: why it was not taken, whatever its speed.
    """

    to: str
    target: str
    median_ns: float | None = None
    speed: Interval | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCheck:
    """A check of a result on its target's own runtime. `why_not`: why it was skipped; then no other
    field counts.

    `runtime` includes the version. `fault`: why it fails to load or run the result. `comparison`:
    its outputs against FP32's. `planned`: quantized matmuls and convolutions in the file;
    `in_floats`: those that the runtime's optimized graph has in floats; `returned`: those that went
    back to floats because of this check.
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
        """Whether the result fails to run on the target, or has wrong outputs."""
        return self.fault is not None or (self.comparison is not None and self.comparison.is_wrong)

    @property
    def is_in_doubt(self) -> bool:
        """Whether the outputs on the target leave the ruling open."""
        return self.comparison is not None and any(
            output.doubt for output in self.comparison.outputs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All measurements for one model's record; those not requested are None or empty. `data`: the
    data of decisions; `shares_data`: some of it was also used to judge. `tried`: the formats that
    were tried without a request for one, the fastest first.
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
    tried: tuple[TriedFormat, ...] = ()
    shares_data: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ruling(self) -> Ruling | None:
        """The verdict of the check: different if the runtime is wrong; None if nothing was
        compared.
        """
        if self.runtime is not None and self.runtime.is_wrong:
            return Ruling.DIFFERENT
        return None if self.comparison is None else self.comparison.verdict.ruling

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and those of the comparison."""
        return self.notes if self.comparison is None else (*self.notes, *self.comparison.notes)
