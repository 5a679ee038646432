"""Results run on the runtime of their target: loaded there, products counted, answers compared, calls timed."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mezzo.converting.results import lab_of
from mezzo.core.lab import Profiler
from mezzo.core.timings import Loading, ProductKernels
from mezzo.errors import InputError, MezzoError
from mezzo.judging.runtime_answers import Reference, compare_on_runtime, feeds_of_sizes
from mezzo.judging.side_by_side import Entrant, time_side_by_side
from mezzo.judging.turns import Turning
from mezzo.machine import find_temporary_folder
from mezzo.numerics.measures import Comparison, DataSource, Deviation, Timing
from mezzo.numerics.speeds import Difference, judge_speed, speed
from mezzo.search.racing import BASE, place_result, summarise_times

if TYPE_CHECKING:
    from mezzo.core.frontend import Model
    from mezzo.core.reading import Artifact
    from mezzo.numerics.datasets import Batch
    from mezzo.numerics.timings import Timings

# A second of turns, loading apart.
_TURNING = Turning(starts=1, rounds=None, seconds=None, turns_s=1.0)
# Calls of FP32 that take less mostly measure what a call costs: they decide nothing.
_SHORTEST_NS = 1e6
_RESULT, _FLOATS = "result", "floats alone"


def find_runtime(profiler: Profiler, target: str) -> str | None:
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


class RuntimeRuns:
    """Results of one model on the runtime of one target, on one batch."""

    def __init__(self, model: "Model", target: str, batch: "Batch", held: Mapping[str, Deviation] | None) -> None:
        """`held`: the outputs of the emulated check, whose budgets hold here too. Raises MezzoError: FP32 fails."""
        self._model, self._target, self._batch, self._held = model, target, batch, held
        fed = feeds_of_sizes(batch, lab_of(model.given).inputs.slots)
        try:
            self._reference = Reference(model.given, fed)
        except MezzoError:  # a length that is open may not be free
            self._reference = Reference(model.given, fed[:1])
        self._source = DataSource(batch.origin, 1, batch.samples)

    def see(self, result: "Artifact") -> Seen:
        """Load a result, count its products and compare its answers."""
        with self._placed(result) as placed:
            profiler = lab_of(placed).profiler
            assert profiler is not None, "its runtime was found"
            candidate = placed.runnable(placed.original)
            with closing(profiler.stopwatch(self._target, self._batch.feeds, Loading(shows_kernels=True))) as watch:
                try:
                    with closing(watch.start()) as runner:
                        products = runner.kernels()
                        comparison = compare_on_runtime(
                            self._reference, self._model.given, candidate, runner.answer, self._source, self._held
                        )
                except MezzoError as error:
                    return Seen(str(error))
        return Seen(None, products, comparison)

    def time(self, result: "Artifact", alone: "Artifact | None") -> "Timings":
        """Time FP32, a result, and another with nothing quantized where one is given, in this order."""
        with self._placed(result) as placed:
            entrants = [self._entrant(BASE, self._model.given), self._entrant(_RESULT, placed)]
            if alone is None:
                return self._take_turns(entrants)
            with self._placed(alone) as other:
                return self._take_turns([*entrants, self._entrant(_FLOATS, other)])

    def _take_turns(self, entrants: list[Entrant]) -> "Timings":
        return time_side_by_side(
            entrants, self._target, data=self._source, batch=None, notes=(), turning=_TURNING, loading=Loading(),
            progress=self._model.progress,
        )  # fmt: skip

    def _entrant(self, name: str, model: "Model") -> Entrant:
        return Entrant(name=name, model=model, feeds=self._batch.feeds)

    @contextmanager
    def _placed(self, result: "Artifact") -> "Iterator[Model]":
        with TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder()) as folder:
            yield place_result(self._model, result, Path(folder))


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
