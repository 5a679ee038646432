"""Has a child process time models: what crashes or hangs there costs one measurement, not the caller's process.

The child is a plain command with files in and out: no function or object of the caller travels, and a script that calls
mezzo needs no guard around its main part, which starting a process by `multiprocessing` would take.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from mezzo.common.errors import ContractError
from mezzo.common.machine import find_temporary_folder
from mezzo.common.message_style import option
from mezzo.contracts.profiles import Effort
from mezzo.onnx.profile.feedfiles import write_feeds
from mezzo.onnx.profile.runtimes import profiling_version
from mezzo.onnx.run.feeds import Datum, fit_feeds
from mezzo.tables.target import Target

_INLINE_LIMIT_BYTES = 2**31 - 2**20
_LONGEST_REASON = 300
# Where in the runtime's sources an exception was raised.
_PLACE = re.compile(r"Exception from \S+:\d+: |Check '.*?' failed at \S+: |/onnxruntime_src/\S+:\d+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What the runtime ran as one piece. `names` are the names it gives of itself and of nodes it holds.

    `reads` and `makes` are value names as the runtime has them; `feeds` are indices of the kernels that read what it
    makes. `time_ns` per run of the model, the mean of the middle half of the runs; `spread_ns`: how far that mean may
    be off. `calls` per run.
    """

    names: tuple[str, ...]
    op: str
    makes: tuple[str, ...]
    feeds: tuple[int, ...]
    time_ns: float
    spread_ns: float
    calls: float


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one model in ns per round: the median of the round's calls. `kernels` are empty if it was not profiled;
    `between_ns` is what a run takes beside its kernels.
    """

    rounds_ns: tuple[float, ...]
    kernels: tuple[Kernel, ...]
    between_ns: float


def write_whole(model: onnx.ModelProto, path: Path) -> None:
    """Make a file of a model that holds all its weights."""
    if model.ByteSize() < _INLINE_LIMIT_BYTES:
        path.write_bytes(model.SerializeToString())
    else:
        copy = onnx.ModelProto()  # saving with external data empties the tensors of what it saves
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="weights")


Write = Callable[[onnx.ModelProto, Path], None]


def time_models(
    models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
    target: Target,
    feeds: Mapping[str, Datum],
    effort: Effort,
    *,
    profile: bool,
    write: "Write" = write_whole,
) -> tuple[Timed, ...]:
    """Time models in turns, in one child process: what drifts on the machine drifts for all of them. `write` makes a
    file of one that is none.

    Raises:
        InputError: the runtime is missing, or the feeds do not fit.
        ContractError: the runtime cannot load or run a model, crashes, or does not finish in time.
    """
    profiling_version(target)
    assert target.runtime is not None, "its version was found"
    with tempfile.TemporaryDirectory(prefix="mezzo-", dir=find_temporary_folder()) as name:
        folder = Path(name)
        paths = []
        for number, model in enumerate(models):
            place = folder / str(number)
            place.mkdir()
            paths.append(stage_model(model, place, feeds, write))
        request = {"driver": target.runtime.driver, "profile": profile, "models": paths, **asdict(effort)}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        _call(folder, target.name, effort)
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    if "error" in answer:
        raise ContractError(f"target {target.name!r} does not run the model: {spell_reason(answer['error'])}")
    return tuple(
        Timed(tuple(timed["rounds_ns"]), tuple(map(_kernel, timed["kernels"])), float(timed["between_ns"]))
        for timed in answer["models"]
    )


def spell_reason(said: str) -> str:
    """What a runtime has said, cut short, without the places of its own sources."""
    return _PLACE.sub("", said)[:_LONGEST_REASON]


def stage_model(
    model: onnx.ModelProto | str | os.PathLike[str],
    place: Path,
    feeds: Mapping[str, Datum],
    write: Write = write_whole,
    structure: onnx.ModelProto | None = None,
) -> str:
    """Put a model and its feeds where the child looks. A path is used as it is. `structure`: the model without its
    weights, where it has been read.
    """
    if isinstance(model, str | os.PathLike):
        proto = structure or onnx.load(os.fspath(model), load_external_data=False)
        write_feeds(fit_to(proto, feeds), place / "feeds")
        return os.path.abspath(os.fspath(model))
    write_feeds(fit_to(model, feeds), place / "feeds")
    path = place / "model.onnx"
    write(model, path)
    return str(path)


def fit_to(model: onnx.ModelProto, feeds: Mapping[str, Datum]) -> dict[str, Datum]:
    """Those of some feeds that a model takes, as it takes them. Raises InputError: they do not fit."""
    initial = frozenset(tensor.name for tensor in model.graph.initializer)
    ports = [port for port in model.graph.input if port.name in feeds or port.name not in initial]
    wanted = {port.name for port in ports}
    return fit_feeds({name: feed for name, feed in feeds.items() if name in wanted}, ports, initial)


def _call(folder: Path, target: str, effort: Effort) -> None:
    source = str(Path(__file__).parents[3])  # what holds the package
    known = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": source if not known else os.pathsep.join((source, known))}
    command = [sys.executable, "-m", "mezzo.onnx.profile.worker", str(folder)]
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=effort.limit_s * 2, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ContractError(
            f"target {target!r}: timing did not end within {effort.limit_s * 2:.0f} s; use a smaller batch of data, or "
            f"leave out {option('measure')}"
        ) from None
    if not (folder / "answer.json").exists():
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ContractError(
            f"target {target!r}: the runtime crashed (exit code {done.returncode}) on a model"
            f"{': ' + spell_reason(said[-1]) if said else ''}; leave out {option('measure')}"
        )


def _kernel(given: Mapping[str, Any]) -> Kernel:
    return Kernel(
        names=tuple(given["names"]),
        op=given["op"],
        makes=tuple(given["makes"]),
        feeds=tuple(given["feeds"]),
        time_ns=float(given["time_ns"]),
        spread_ns=float(given["spread_ns"]),
        calls=float(given["calls"]),
    )
