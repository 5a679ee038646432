"""Runs of results on their target's runtime: loading, kernel counts, outputs, timing."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_temporary_folder
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Profiler
from mezzo.contracts.sequences.sequence_lab import over_steps
from mezzo.contracts.sequences.step_feeds import first_feeds
from mezzo.contracts.timings import LayerTime, Loading, ProductKernels, Runner
from mezzo.evaluate.runtime_answers import Reference, compare_on_runtime, feeds_of_sizes
from mezzo.numerics.measures import Comparison, DataSource, Deviation, Interval, Timing
from mezzo.numerics.statistics.speeds import Difference, judge_speed, speed
from mezzo.tuning.timing.final_benchmark import BASE, place_result, summarise_times
from mezzo.tuning.timing.interleaved_timing import Turning
from mezzo.tuning.timing.side_by_side import Entrant, time_side_by_side

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.numerics.data.datasets import Batch
    from mezzo.numerics.timings import Timings
    from mezzo.tables.target import Target

# One second of interleaved turns, loading not counted.
_TURNING = Turning(starts=1, rounds=None, seconds=None, turns_s=1.0)
# FP32 calls shorter than this mostly measure call overhead, and decide nothing.
_SHORTEST_NS = 1e6
_RESULT, _FLOATS, _OTHER = "result", "floats alone", "other result"


def find_runtime(profiler: Profiler, target: "Target") -> str | None:
    """A target's runtime with its version, if installed and able to run whole models."""
    try:
        return profiler.find_loaded(target)
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of one result on the runtime. `fault`: why it fails to load or run."""

    fault: str | None
    products: ProductKernels | None = None
    comparison: Comparison | None = None

    @property
    def because(self) -> str | None:
        """The reason why the result failed; None if it runs with right outputs."""
        if self.comparison is not None and self.comparison.is_wrong:
            return f"it answers wrong: {self.comparison.verdict.because}"
        return self.fault


@dataclass(frozen=True, slots=True)
class _Kept:
    """Stopwatch of a model that is already loaded: it is timed in its running process."""

    runner: Runner

    def start(self) -> Runner:
        return self

    def turn(self, pause_s: float, calls: int) -> float:
        return self.runner.turn(pause_s, calls)

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.runner.answer(feeds)

    def kernels(self) -> ProductKernels | None:
        return self.runner.kernels()

    def layers(self, runs: int) -> Sequence[LayerTime]:
        raise NotImplementedError("a process that serves turns is not profiled")

    def close(self) -> None:
        """Does nothing: `RuntimeRuns` closes the process."""


class RuntimeRuns:
    """Runs results of one model on one target: outputs on batches, times on the first batch. The
    last result stays loaded until the next one, or `close`.
    """

    def __init__(
        self,
        model: "Model",
        target: "Target",
        batches: "Sequence[Batch]",
        emulated: Mapping[str, Deviation] | None,
    ) -> None:
        """`emulated`: outputs of the emulated check. Raises MezzoError: FP32 fails."""
        self._model, self._target, self._batch, self._emulated = model, target, batches[0], emulated
        self._feeds = first_feeds(self._batch.feeds)  # of one call
        self._reference = Reference(
            model.given, feeds_of_sizes(batches, lab_of(model.given).inputs.slots)
        )
        samples = sum(batch.samples for batch in batches)
        self._source = DataSource(self._batch.origin, len(batches), samples)
        self._open = ExitStack()
        self._last: tuple[Artifact, Entrant] | None = None

    def see(self, result: "Artifact") -> Seen:
        """Load a result, count its kernels and compare its outputs."""
        self.close()
        placed = self._place(result, self._open)
        try:
            runner = self._load(result, placed)
            products = runner.kernels()
            candidate = placed.runnable(placed.original)
            comparison = compare_on_runtime(
                self._reference,
                self._model.given,
                candidate,
                over_steps(runner.answer),
                self._source,
                self._emulated,
            )
        except MezzoError as error:
            self.close()
            return Seen(str(error))
        return Seen(None, products, comparison)

    def time(self, result: "Artifact", alone: "Artifact | None") -> "Timings":
        """Time FP32, a result and, if given, one without quantization, in this order."""
        with ExitStack() as others:
            entrants = [self._entrant(BASE, self._model.given), self._entrant_of(result, others)]
            if alone is not None:
                entrants.append(self._entrant(_FLOATS, self._place(alone, others)))
            return self._take_turns(entrants)

    def speed(self, result: "Artifact", other: "Artifact") -> Interval | None:
        """The speedup of a result over another; None if one of them fails to run."""
        with ExitStack() as others:
            entrants = [
                self._entrant(_OTHER, self._place(other, others)),
                self._entrant_of(result, others),
            ]
            return self._take_turns(entrants).files[1].speed

    def close(self) -> None:
        """Stop the loaded result."""
        self._last = None
        self._open.close()

    def _load(self, result: "Artifact", placed: "Model") -> Runner:
        """Load a result and keep it loaded. Raises ContractError: the runtime fails."""
        profiler = lab_of(placed).profiler
        assert profiler is not None, "its runtime was found"
        loading = Loading(shows_kernels=True)
        watch = self._open.enter_context(
            closing(profiler.stopwatch(self._target, self._feeds, loading))
        )
        runner = self._open.enter_context(closing(watch.start()))
        self._last = result, replace(self._entrant(_RESULT, placed), watch=_Kept(runner))
        return runner

    def _take_turns(self, entrants: "Sequence[Entrant]") -> "Timings":
        return time_side_by_side(
            entrants, self._target, data=self._source, batch=None, notes=(), turning=_TURNING,
            loading=Loading(), progress=self._model.progress,
        )  # fmt: skip

    def _entrant_of(self, result: "Artifact", until: ExitStack) -> Entrant:
        """A result to time: already loaded if it was the last one seen."""
        last, loaded = self._last or (None, None)
        return (
            loaded
            if loaded is not None and last is result
            else self._entrant(_RESULT, self._place(result, until))
        )

    def _entrant(self, name: str, model: "Model") -> Entrant:
        return Entrant(name=name, model=model, feeds=self._feeds)

    def _place(self, result: "Artifact", until: ExitStack) -> "Model":
        folder = until.enter_context(
            TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder())
        )
        return place_result(self._model, result, Path(folder))


def is_slower(timings: "Timings") -> bool:
    """Whether the result (second) is slower than floats alone (third), or without those, than FP32
    (first).

    Calls so short that they mostly measure overhead decide nothing.
    """
    base, result, *others = timings.files
    rival = others[0] if others else base
    if (
        result.times is None
        or rival.times is None
        or base.times is None
        or base.times.median_ns < _SHORTEST_NS
    ):
        return False
    return (
        judge_speed(speed(rival.turns_ns, result.turns_ns, len(timings.files) - 1))
        is Difference.SLOWER
    )


def times_of_floats(timings: "Timings") -> Timing:
    """The timing of floats alone against FP32, from three."""
    base, _, alone = timings.files
    return summarise_times(replace(timings, files=(base, alone)))
