"""Times files side by side in one run on an installed runtime: mezzo.bench."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.timings import Loading
from mezzo.conversion.results import Progress, open_source
from mezzo.evaluate.timed_inputs import feed_all
from mezzo.numerics.timings import Timings
from mezzo.planner.options import chosen_target
from mezzo.tuning.timing.interleaved_timing import PAUSE_S, USUAL, Turning
from mezzo.tuning.timing.side_by_side import Entrant, find_timed, time_side_by_side

if TYPE_CHECKING:
    import onnx

    from mezzo.numerics.data.datasets import Data

DEFAULT_TARGET = "onnxruntime-cpu"
STARTS = USUAL.starts
_MOST_THREADS = 1024


def bench(
    files: "Sequence[str | os.PathLike[str] | onnx.ModelProto]",
    *,
    target: str = DEFAULT_TARGET,
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
    """Time files side by side in one run, say which is faster where that is more than noise, and compare their answers.

    Every file is loaded in a process of its own, as a user would load it, and they run in turns; before each timed turn
    stand 20 ms of rest and a call that is not timed. All is loaded anew `starts` times. A file that the target does not
    load or run has a `fault`, and the others go on. `answers` of each are those that the runtime gives, beside the
    reference's on the same feeds, where the number of samples is open at several sizes.

    Args:
        files: models; the first is the reference of the others.
        target: a target whose runtime is installed here: "onnxruntime-cpu", "openvino-cpu", "onnxruntime-cuda".
        data: as in `compare`, its first batch; "random" draws what fits. Each file is fed what it has inputs for.
        baseline: the file that is the reference instead of the first.
        batch_size: samples per call, where the models leave their number open; 1 by default.
        threads: how many the runtime may use; by default it decides.
        runs: timed turns of each file, over all starts; 60 by default.
        seconds: about how long all of it may take, loading included; a minute where `runs` is not given either.
        starts: how often each file is loaded anew.
        types: "file" runs the types that the file states, "runtime" those that the runtime likes best: OpenVINO
            computes FP32 in BF16 where the machine can.
        layers: whether each file also runs under the runtime's profiler, after its turns.

    Raises:
        InputError: an option, a file or the data is at fault, or the target's runtime is not installed.
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
            f"target {chosen.name!r} runs the types of the file and chooses none; leave out {option('types')}"
        )
    fed, source, notes = feed_all(models, data, batch_size)
    entrants = [
        Entrant(name=_name(sources[number], number), model=model, feeds=feeds)
        for number, (model, feeds) in enumerate(zip(models, fed, strict=True))
    ]
    return time_side_by_side(
        entrants, chosen, data=source, batch=batch_size, notes=notes, turning=turning, loading=loading, layers=layers,
        answers=True, progress=progress,
    )  # fmt: skip


def _in_order(files: "Sequence[Any]", baseline: str | os.PathLike[str] | None) -> list[Any]:
    """The files, the reference first. Raises InputError: there are none."""
    if isinstance(files, str | os.PathLike):
        files = [files]
    listed = list(files)
    if baseline is not None:
        wanted = os.fspath(baseline)
        same = next((n for n, each in enumerate(listed) if isinstance(each, str | os.PathLike)
                     and os.fspath(each) == wanted), None)  # fmt: skip
        listed = [listed.pop(same) if same is not None else baseline, *listed]
    if not listed:
        raise InputError("there is no file to time; give one or more models")
    return listed


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
