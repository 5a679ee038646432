"""Results run on the runtime of their target: loaded there, products counted, answers compared, calls timed."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_temporary_folder
from mezzo.contracts.lab import Profiler
from mezzo.contracts.timings import Layer, Loading, ProductKernels, Runner
from mezzo.conversion.results import lab_of
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

# A second of turns, loading apart.
_TURNING = Turning(starts=1, rounds=None, seconds=None, turns_s=1.0)
# Calls of FP32 that take less mostly measure what a call costs: they decide nothing.
_SHORTEST_NS = 1e6
_RESULT, _FLOATS, _OTHER = "result", "floats alone", "other result"


def find_runtime(profiler: Profiler, target: "Target") -> str | None:
    """The runtime of a target with its version, where it is installed and runs whole models; None elsewhere."""
    try:
        return profiler.find_timed(target)
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class Seen:
    """One result on the runtime. `fault`: why it does not load or run."""

    fault: str | None
    products: ProductKernels | None = None
    comparison: Comparison | None = None

    @property
    def because(self) -> str | None:
        """What is wrong with it; None where it runs and answers right."""
        if self.comparison is not None and self.comparison.is_wrong:
            return f"it answers wrong: {self.comparison.verdict.because}"
        return self.fault


@dataclass(frozen=True, slots=True)
class _Kept:
    """The stopwatch of a model that is loaded: to be timed it is not loaded again, and its process goes on."""

    runner: Runner

    def start(self) -> Runner:
        return self

    def turn(self, pause_s: float, calls: int) -> float:
        return self.runner.turn(pause_s, calls)

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.runner.answer(feeds)

    def kernels(self) -> ProductKernels | None:
        return self.runner.kernels()

    def layers(self, runs: int) -> Sequence[Layer]:
        raise NotImplementedError("a process that serves turns is not profiled")

    def close(self) -> None:
        """Leave the process to whoever started it."""


class RuntimeRuns:
    """Results of one model on the runtime of one target: answers on batches, times on the first of them. The last one
    seen stays loaded until another is seen, or all is closed.
    """

    def __init__(
        self, model: "Model", target: "Target", batches: "Sequence[Batch]", held: Mapping[str, Deviation] | None
    ) -> None:
        """`held`: the outputs of the emulated check, whose budgets hold here too. Raises MezzoError: FP32 fails."""
        self._model, self._target, self._batch, self._held = model, target, batches[0], held
        self._reference = Reference(model.given, feeds_of_sizes(batches, lab_of(model.given).inputs.slots))
        samples = sum(batch.samples for batch in batches)
        self._source = DataSource(self._batch.origin, len(batches), samples)
        self._open = ExitStack()
        self._last: tuple[Artifact, Entrant] | None = None

    def see(self, result: "Artifact") -> Seen:
        """Load a result, count its products and compare its answers."""
        self.close()
        placed = self._place(result, self._open)
        try:
            runner = self._load(result, placed)
            products = runner.kernels()
            candidate = placed.runnable(placed.original)
            comparison = compare_on_runtime(
                self._reference, self._model.given, candidate, runner.answer, self._source, self._held
            )
        except MezzoError as error:
            self.close()
            return Seen(str(error))
        return Seen(None, products, comparison)

    def time(self, result: "Artifact", alone: "Artifact | None") -> "Timings":
        """Time FP32, a result, and another with nothing quantized where one is given, in this order."""
        with ExitStack() as others:
            entrants = [self._entrant(BASE, self._model.given), self._entrant_of(result, others)]
            if alone is not None:
                entrants.append(self._entrant(_FLOATS, self._place(alone, others)))
            return self._take_turns(entrants)

    def speed(self, result: "Artifact", other: "Artifact") -> Interval | None:
        """How many times as fast a result is as another; None where one of them does not run."""
        with ExitStack() as others:
            entrants = [self._entrant(_OTHER, self._place(other, others)), self._entrant_of(result, others)]
            return self._take_turns(entrants).files[1].speed

    def close(self) -> None:
        """End what is loaded."""
        self._last = None
        self._open.close()

    def _load(self, result: "Artifact", placed: "Model") -> Runner:
        """Load a result that stays loaded. Raises ContractError: the runtime does not."""
        profiler = lab_of(placed).profiler
        assert profiler is not None, "its runtime was found"
        loading = Loading(shows_kernels=True)
        watch = self._open.enter_context(closing(profiler.stopwatch(self._target, self._batch.feeds, loading)))
        runner = self._open.enter_context(closing(watch.start()))
        self._last = result, replace(self._entrant(_RESULT, placed), watch=_Kept(runner))
        return runner

    def _take_turns(self, entrants: "Sequence[Entrant]") -> "Timings":
        return time_side_by_side(
            entrants, self._target, data=self._source, batch=None, notes=(), turning=_TURNING, loading=Loading(),
            progress=self._model.progress,
        )  # fmt: skip

    def _entrant_of(self, result: "Artifact", until: ExitStack) -> Entrant:
        """A result to be timed: as it is loaded, if it is the last one seen."""
        last, loaded = self._last or (None, None)
        return loaded if loaded is not None and last is result else self._entrant(_RESULT, self._place(result, until))

    def _entrant(self, name: str, model: "Model") -> Entrant:
        return Entrant(name=name, model=model, feeds=self._batch.feeds)

    def _place(self, result: "Artifact", until: ExitStack) -> "Model":
        folder = until.enter_context(TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder()))
        return place_result(self._model, result, Path(folder))


def is_slower(timings: "Timings") -> bool:
    """Whether the result, the second, is slower than floats alone, the third, or where none is, than FP32, the first.

    Calls so short that they mostly measure what a call costs tell nothing.
    """
    base, result, *others = timings.files
    beside = others[0] if others else base
    if result.times is None or beside.times is None or base.times is None or base.times.median_ns < _SHORTEST_NS:
        return False
    return judge_speed(speed(beside.turns_ns, result.turns_ns, len(timings.files) - 1)) is Difference.SLOWER


def times_of_floats(timings: "Timings") -> Timing:
    """The times of floats alone beside FP32, of three."""
    base, _, alone = timings.files
    return summarise_times(replace(timings, files=(base, alone)))
