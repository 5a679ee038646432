"""Final benchmark of a tuned result: speedup over FP32, and over plain `convert`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mezzo.common.errors import MezzoError
from mezzo.common.machine import find_temporary_folder
from mezzo.contracts.timings import Loading
from mezzo.conversion.results import Converted, open_source
from mezzo.numerics.measures import DataSource, TimedModel, Timing
from mezzo.numerics.statistics.speeds import Difference, judge_speed, speed
from mezzo.numerics.timings import FileTimes, Timings
from mezzo.tuning.timing.interleaved_timing import USUAL
from mezzo.tuning.timing.side_by_side import Entrant, time_side_by_side

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.numerics.data.datasets import Batch
    from mezzo.tables.target import Target

BASE, RESULT, ALONE = "FP32", "tuned", "convert alone"


@dataclass(frozen=True, slots=True)
class Race:
    """Timing of the FP32 model, of the result and, if it could be made, of plain `convert`.
    `notes`: how the last two compare.
    """

    timing: Timing
    notes: tuple[str, ...]

    @property
    def fault(self) -> str | None:
        """Why the target cannot run the result."""
        return self.timing.models[1].fault

    @property
    def is_faster(self) -> bool:
        """Whether the result runs, and is not known to be no faster than FP32."""
        speed = self.timing.models[1].speed
        return self.fault is None and (speed is None or speed.estimate > 1.0)


def race(
    model: "Model",
    result: "Artifact",
    convert_alone: Callable[[Path | None], Converted],
    target: "Target",
    batch: "Batch",
) -> Race:
    """Time a search's result, as `mezzo bench` times files. `convert_alone` converts without a
    search, to a file if given a path.

    Raises InputError: the target cannot be timed on this machine, or disk space is missing.
    """
    notes: list[str] = []
    alone: Converted | None = None
    with TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder()) as folder:
        placed = place_result(model, result, Path(folder))
        entrants = [
            Entrant(name=name, model=each, feeds=batch.feeds)
            for name, each in ((BASE, model.given), (RESULT, placed))
        ]
        path = None if model.store is None else Path(folder, f"alone{_suffix(model)}")
        try:
            alone = convert_alone(path)
        except MezzoError as error:
            notes.append(f"what convert alone gives was not timed: {error}")
        else:
            opened = open_source(alone.model if path is None else path, False, None)
            entrants.append(Entrant(name=ALONE, model=opened, feeds=batch.feeds))
        timings = time_side_by_side(
            entrants, target, data=DataSource(batch.origin, 1, batch.samples), batch=None, notes=(),
            turning=USUAL, loading=Loading(), progress=model.progress,
        )  # fmt: skip
    if alone is not None:
        notes.append(_tell_alone(timings.files[1], timings.files[2], alone))
    return Race(summarise_times(timings), tuple(notes))


def place_result(model: "Model", result: "Artifact", folder: Path) -> "Model":
    """Open a result, from a file if possible, as its weights may not fit in memory."""
    if model.store is None:
        return open_source(model.materialize(result), False, None)
    path = folder / f"result{_suffix(model)}"
    model.store.write(result, path, overwrite=False)
    return open_source(path, False, None)


def _suffix(model: "Model") -> str:
    return next((end for end in model.frontend.suffixes if end), "")


def summarise_times(timings: Timings) -> Timing:
    """The summary of times for a record."""
    models = [
        TimedModel(
            name=file.name,
            fault=file.fault,
            median_ns=None if file.times is None else file.times.median_ns,
            least_ns=None if file.times is None else file.times.least_ns,
            speed=file.speed,
        )
        for file in timings.files
    ]
    turns = max(sum(map(len, file.turns_ns)) for file in timings.files)
    return Timing(
        target=timings.target, runtime=timings.runtime, turns=turns, load=timings.load,
        models=tuple(models)
    )  # fmt: skip


def _tell_alone(tuned: FileTimes, alone: FileTimes, converted: Converted) -> str:
    """Describe the result's speed against plain `convert`."""
    error = _error_of(converted)
    errs = "" if error is None else f", which errs by {error:.2e} by its own check"
    if alone.fault is not None or tuned.fault is not None:
        return (
            f"what convert alone gives{errs}, cannot be compared in speed:"
            f" {alone.fault or tuned.fault}"
        )
    speedup = speed(alone.turns_ns, tuned.turns_ns, 2)
    relation = {
        Difference.FASTER: "faster than",
        Difference.SLOWER: "slower than",
        Difference.UNKNOWN: "not significantly faster or slower than",
    }[judge_speed(speedup)]
    ends = f"{speedup.estimate:.2f} times as fast, {speedup.low:.2f} to {speedup.high:.2f}"
    return f"the result is {relation} what convert alone gives{errs}: {ends}"


def _error_of(converted: Converted) -> float | None:
    """The largest error in a conversion's own check; None if it had none."""
    comparison = None if converted.measured is None else converted.measured.comparison
    return None if comparison is None else comparison.verdict.error.estimate
