"""Benchmark of models side by side on an installed runtime: mezzo.bench."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Progress
from mezzo.contracts.timings import Loading
from mezzo.conversion.results import open_source
from mezzo.evaluate.timed_inputs import feed_all
from mezzo.numerics.timings import Timings
from mezzo.planner.options import chosen_target
from mezzo.tuning.timing.interleaved_timing import PAUSE_S, USUAL, Turning
from mezzo.tuning.timing.side_by_side import Entrant, find_timed, time_side_by_side

if TYPE_CHECKING:
    import onnx

    from mezzo.numerics.data.datasets import Data

STARTS = USUAL.starts
_MOST_THREADS = 1024


def bench(
    files: "Sequence[str | os.PathLike[str] | onnx.ModelProto]",
    *,
    target: str | None = None,
    data: "Data" = "random",
    baseline: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    runs: int | None = None,
    seconds: float | None = None,
    starts: int = STARTS,
    types: str = "file",
    layers: bool = False,
    trust_external_paths: bool = False,
    progress: Progress | None = None,
) -> Timings:
    """Time models side by side, report significant speed differences, and compare their outputs.

    Each model is loaded in its own process, and the processes run in turns. Every timed call
    follows a pause of 20 ms and an untimed warm-up call. All models are loaded anew `starts` times.
    A model that the runtime cannot load or run has a `fault`; the others go on. `answers` compares
    each model's outputs on the runtime with the reference's on the same inputs; an open batch size
    is tried at several values.

    Args:
        files: models; the first is the reference for the others.
        target: a target whose runtime is installed here, as `mezzo doctor` lists; by default that
            of fp16.
        data: as in `compare`, its first batch; "random" draws inputs that fit. Each model gets the
            inputs that it has.
        baseline: the model that is the reference instead of the first.
        batch_size: samples per call, if the models leave the batch size open; 1 by default.
        threads: threads of the runtime; by default the runtime decides.
        runs: timed calls of each model, over all starts; 60 by default.
        seconds: approximate total time, loading included; a minute if `runs` is not given either.
        starts: how often each model is loaded anew.
        types: "file" computes in the types of the file, "runtime" in those that the runtime
            prefers: OpenVINO computes FP32 in BF16 where the machine supports it.
        layers: whether each model also runs under the runtime's profiler, after the timed calls.

    Raises:
        InputError: an option, a file or the data is at fault, or the target's runtime is not
            installed.
        ModelError: a file is not valid ONNX.
    """
    sources = _in_order(files, baseline)
    turning = _turning(runs, seconds, starts)
    loading = _loading(threads, types)
    chosen = chosen_target("fp16", target)
    models = [open_source(source, trust_external_paths, progress) for source in sources]
    runtime = find_timed(models[0], chosen)
    if not loading.keeps_types and not runtime.startswith("openvino "):
        raise InputError(
            f"target {chosen.name!r} runs the types of the file and chooses none; leave out"
            f" {option('types')}"
        )
    fed, source, notes = feed_all(models, data, batch_size)
    entrants = [
        Entrant(name=_name(sources[number], number), model=model, feeds=feeds)
        for number, (model, feeds) in enumerate(zip(models, fed, strict=True))
    ]
    return time_side_by_side(
        entrants, chosen, data=source, batch=batch_size, notes=notes, turning=turning,
        loading=loading, layers=layers, answers=True, progress=progress,
    )  # fmt: skip


def _in_order(files: "Sequence[Any]", baseline: str | os.PathLike[str] | None) -> list[Any]:
    """The models, the reference first. Raises InputError: there are none."""
    if isinstance(files, str | os.PathLike):
        files = [files]
    models = list(files)
    if baseline is not None:
        path = os.fspath(baseline)
        position = next((n for n, model in enumerate(models) if isinstance(model, str | os.PathLike)
                     and os.fspath(model) == path), None)  # fmt: skip
        models = [models.pop(position) if position is not None else baseline, *models]
    if not models:
        raise InputError("there is no file to time; give one or more models")
    return models


def _turning(runs: int | None, seconds: float | None, starts: int) -> Turning:
    for name, value in (("runs", runs), ("starts", starts)):
        if value is not None and value < 1:
            raise InputError(f"{option(name)} is {value}; give 1 or more")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise InputError(f"{option('seconds')} is {seconds:g}; give a time above 0")
    if runs is None and seconds is None:
        runs, seconds = USUAL.rounds, USUAL.seconds
    return Turning(starts=starts, rounds=runs, seconds=seconds, pause_s=PAUSE_S)


def _loading(threads: int | None, types: str) -> Loading:
    if threads is not None and not 1 <= threads <= _MOST_THREADS:
        raise InputError(f"{option('threads')} is {threads}; give 1 to {_MOST_THREADS}")
    if types not in ("file", "runtime"):
        raise InputError(f"{option('types')} is {types!r}; choose one of file, runtime")
    return Loading(threads=threads, keeps_types=types == "file")


def _name(source: object, number: int) -> str:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"model {number + 1}"
