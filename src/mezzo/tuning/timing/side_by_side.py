"""Side-by-side timing of whole models on an installed runtime, each in its own process."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import count_cores, find_load, find_machine
from mezzo.contracts.frontend import Model, Progress, lab_of
from mezzo.contracts.lab import Feeds, Profiler
from mezzo.contracts.timings import LayerTime, Loading, Stopwatch
from mezzo.evaluate.runtime_answers import Reference, compare_on_runtime, feeds_of_sizes
from mezzo.numerics.data.datasets import Batch
from mezzo.numerics.measures import Comparison, DataSource, Load
from mezzo.numerics.statistics.speeds import judge_speed, speed, spread_of
from mezzo.numerics.timings import FileTimes, Timings
from mezzo.tables.target import Target
from mezzo.tuning.timing.interleaved_timing import Taken, Turning, take_turns

_PROFILED_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A model to time, its name and feeds. `watch`: an open stopwatch, left open."""

    name: str
    model: Model
    feeds: Feeds
    watch: Stopwatch | None = None


def find_timed(model: Model, target: Target) -> str:
    """A target's runtime with its version. Raises InputError: it cannot time this model."""
    return _profiler(model).find_timed(target)


def time_side_by_side(
    entrants: Sequence[Entrant],
    target: Target,
    *,
    data: DataSource,
    batch: int | None,
    notes: Sequence[str],
    turning: Turning,
    loading: Loading,
    layers: bool = False,
    answers: bool = False,
    progress: Progress | None = None,
) -> Timings:
    """Time models interleaved, the first as the reference. A model that the target cannot run gets
    a fault, and the others go on. `layers`: profile each afterwards. `answers`: compare the
    outputs, as the target runs them.

    Raises InputError: the target cannot be timed on this machine.
    """
    runtime = find_timed(entrants[0].model, target)
    before = find_load()
    with ExitStack() as open_:
        watches = [
            each.watch
            or open_.enter_context(
                closing(_profiler(each.model).stopwatch(target, each.feeds, loading))
            )
            for each in entrants
        ]
        results = take_turns(watches, turning, progress)
        after = find_load()
        rows = [_row(each, results, number) for number, each in enumerate(entrants)]
        problems: list[str] = []
        if answers and len(entrants) > 1:
            rows = _with_answers(rows, entrants, watches, data, problems)
        if layers:
            rows = [
                _with_layers(row, watch, progress) for row, watch in zip(rows, watches, strict=True)
            ]
    load = None if before is None or after is None else Load(before, after)
    return Timings(
        target=target.name, runtime=runtime, machine=find_machine(), cores=count_cores(),
        threads=loading.threads, keeps_types=loading.keeps_types, data=data, batch=batch,
        pause_s=turning.pause_s, load=load,
        files=tuple(rows), notes=(*notes, *problems),
    )  # fmt: skip


def _profiler(model: Model) -> Profiler:
    profiler = lab_of(model).profiler
    if profiler is None:
        raise InputError(
            f"{model.name} cannot be timed: front end {model.frontend.name!r} does not; leave"
            " it out"
        )
    return profiler


def _row(entrant: Entrant, every: Sequence[Taken], number: int) -> FileTimes:
    own, reference = every[number], every[0]
    is_compared = number > 0 and own.fault is None and reference.fault is None
    others = sum(each.fault is None for each in every) - 1
    speedup = speed(reference.turns_ns, own.turns_ns, others) if is_compared else None
    return FileTimes(
        name=entrant.name,
        size_bytes=entrant.model.size_bytes,
        is_reference=number == 0,
        fault=own.fault,
        turns_ns=tuple(map(tuple, own.turns_ns)),
        calls=own.calls,
        times=None if own.fault is not None else spread_of(own.turns_ns),
        speed=speedup,
        difference=None if speedup is None else judge_speed(speedup),
        inputs={
            name: _spell_feed(feed) for name, feed in entrant.feeds.items() if feed is not None
        },
    )


def _with_layers(row: FileTimes, watch: Stopwatch, progress: Progress | None) -> FileTimes:
    if row.fault is not None:
        return row
    if progress is not None:
        progress("profiling", 0, 0)
    try:
        layers: Sequence[LayerTime] = watch.layers(_PROFILED_RUNS)
    except MezzoError as error:  # also an oversized profile: the times stay valid
        return replace(row, fault=f"it was timed, but not profiled: {error}")
    return replace(row, layers=tuple(layers))


def _with_answers(
    rows: Sequence[FileTimes], entrants: Sequence[Entrant], watches: Sequence[Stopwatch],
    data: DataSource, problems: list[str],
) -> list[FileTimes]:  # fmt: skip
    """The rows with comparisons of outputs, all run by the target; reasons for missing ones are
    added to `problems`.
    """
    if rows[0].fault is not None:
        return [*rows]
    first = entrants[0]
    batch = Batch(first.feeds, {}, data.name, data.samples)
    every = feeds_of_sizes([batch], lab_of(first.model).inputs.slots)
    compared = [rows[0]]
    try:
        with closing(watches[0].start()) as runner:
            reference = Reference(first.model, every, runner.answer)
    except MezzoError as error:
        problems.append(f"answers were not compared: {first.name}: {error}")
        return [*rows]
    for row, entrant, watch in zip(rows[1:], entrants[1:], watches[1:], strict=True):
        answers = None
        is_shared = all(first.feeds.get(name) is feed for name, feed in entrant.feeds.items())
        if row.fault is None and is_shared:  # models with their own feeds have a note instead
            try:
                answers = _answers_of(entrant, watch, reference, first.model, data)
            except MezzoError as error:
                problems.append(f"answers of {entrant.name} were not compared: {error}")
        compared.append(replace(row, answers=answers))
    return compared


def _answers_of(
    entrant: Entrant, watch: Stopwatch, reference: Reference, first: Model, data: DataSource
) -> Comparison:
    """Compare a file's outputs on the reference's feeds. Raises MezzoError: it fails."""
    candidate = entrant.model.runnable(entrant.model.original)
    with closing(watch.start()) as runner:
        return compare_on_runtime(reference, first, candidate, runner.answer, data)


def _spell_feed(feed: Any) -> str:
    """Type and shape: "float32[1,3,224,224]"."""
    if isinstance(feed, list | tuple):
        return f"list of {len(feed)}"
    array = np.asarray(feed)
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"
