"""Executor job that emulates a precision assignment: outputs and errors against FP32."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mezzo.common.errors import ContractError
from mezzo.common.memory import current_memory_limit
from mezzo.contracts.executor import prepare, width_of
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Answers, Emulator, Feeds
from mezzo.contracts.quantized_level import QuantizedPorts
from mezzo.contracts.sequences.step_feeds import count_steps
from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.errors import Square, squares_of

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.plans import Accumulation

# Limit on cached FP32 outputs; beyond it they are computed again.
_KEPT_BYTES = 1 << 29


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run. `origin`: the batch's name; `precision_of`: formats of nodes that do not run in
    FP32. `shares`: weight of each output in the error; those of weight 0 are not compared.
    `has_answers`: also return the outputs in FP32 and of the trial; a trial in FP32 always does.
    """

    origin: str
    feeds: Feeds
    precision_of: Mapping[int, DType]
    shares: Mapping[str, float] = field(default_factory=dict)
    has_answers: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial. `squares`: squared errors per output, from `squares_of`; None if an
    output is broken.
    """

    squares: tuple[Square, ...] | None
    answers: tuple[Answers, Answers] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationJob:
    """Emulates a model. `lows`, `version`: how it is read; `fingerprint`: of the graph that the
    node ids of trials refer to; the other fields but `title` are arguments of `Lab.emulator`.
    """

    fingerprint: str
    lows: tuple[DType, ...]
    version: int | None
    formats: tuple[DType, ...]
    accumulation: "Accumulation | None"
    sums_high: frozenset[int]
    limits: Mapping[int, float]
    quantized: QuantizedPorts
    title: str = "emulation"

    def open(self, models: "Sequence[Model]") -> Callable[[Trial], TrialResult]:
        (model,) = models
        reading = model.read(*self.lows, version=self.version)
        if reading.graph.fingerprint != self.fingerprint:
            raise ContractError(
                f"{model.name}: is read as another graph here than where it was planned"
            )
        emulator = lab_of(model).emulator(
            reading,
            self.formats,
            self.accumulation,
            sums_high=self.sums_high,
            limits=self.limits,
            quantized=self.quantized,
        )
        return _Bench(emulator)


class _Bench:
    """An emulator with a cache of FP32 outputs."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._kept: dict[str, Answers] = {}
        self._kept_bytes = 0
        self._most_bytes = current_memory_limit().share_bytes(_KEPT_BYTES)

    @property
    def width(self) -> int:
        return width_of(self._emulator)

    def prepare(self, many: Sequence[Trial]) -> None:
        references = {trial.origin: trial.feeds for trial in many if trial.origin not in self._kept}
        runs: list[tuple[Feeds, Mapping[int, DType]]] = [
            (feeds, {}) for feeds in references.values()
        ]
        runs += [(trial.feeds, trial.precision_of) for trial in many if trial.precision_of]
        prepare(self._emulator, runs)

    def __call__(self, trial: Trial) -> TrialResult:
        reference = self._reference(trial)
        if not trial.precision_of:
            return TrialResult(
                squares_of(reference, reference, trial.shares), (reference, reference)
            )
        answers = self._emulator.run(trial.feeds, trial.precision_of)
        both = (reference, answers) if trial.has_answers else None
        steps = count_steps(trial.feeds)
        return TrialResult(squares_of(reference, answers, trial.shares, steps), both)

    def _reference(self, trial: Trial) -> Answers:
        reference = self._kept.get(trial.origin)
        if reference is None:
            reference = self._emulator.run(trial.feeds, {})
            size = sum(getattr(answer, "nbytes", 0) for answer in reference.values())
            if self._kept_bytes + size <= self._most_bytes:
                self._kept[trial.origin] = reference
                self._kept_bytes += size
        return reference
