"""Timing of models in a child process: a crash or hang costs one measurement, not the caller.

The child is a plain command with files as input and output. Nothing is pickled, and a caller's
script needs no `if __name__ == "__main__"` guard, as it would with `multiprocessing`.
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
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.run.feeds import Datum, fit_feeds
from mezzo.onnx.run.runtime import write_model
from mezzo.tables.target import Target

_LONGEST_REASON = 300
# Source locations in runtimes' error messages.
_PLACE = re.compile(
    r"Exception from \S+:\d+: |Check '.*?' failed at \S+: |/onnxruntime_src/\S+:\d+ "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """One kernel that the runtime ran. `names` are its own name and those of the nodes fused in it.

    `makes` are its output values by the runtime's names, `feeds` the indices of its consumers.
    `time_ns` is per run of the model, the interquartile mean over runs; `spread_ns` is two standard
    errors of it. `calls` per run.
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
    """Times of one model in ns, one per round: the median of the round's calls. `kernels` is empty
    without profiling; `between_ns` is the time of a run outside its kernels.
    """

    rounds_ns: tuple[float, ...]
    kernels: tuple[KernelTime, ...]
    between_ns: float


Write = Callable[[onnx.ModelProto, Path], None]


def time_models(
    models: Sequence[onnx.ModelProto | str | os.PathLike[str]],
    target: Target,
    feeds: Mapping[str, Datum],
    effort: Effort,
    *,
    profile: bool,
    write: Write = write_model,
) -> tuple[Timed, ...]:
    """Time models interleaved, in one child process, so that drift of the machine affects all
    alike. `write` saves a model in memory to a file.

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
        request = {
            "driver": target.runtime.driver,
            "provider": target.runtime.provider,
            "profile": profile,
            "models": paths,
            **asdict(effort),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        _call(folder, target.name, effort)
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    if "error" in answer:
        raise ContractError(
            f"target {target.name!r} does not run the model: {spell_reason(answer['error'])}"
        )
    return tuple(
        Timed(
            tuple(timed["rounds_ns"]),
            tuple(map(_kernel, timed["kernels"])),
            float(timed["between_ns"]),
        )
        for timed in answer["models"]
    )


def spell_reason(said: str) -> str:
    """A runtime's error message, shortened, without source locations."""
    return _PLACE.sub("", said)[:_LONGEST_REASON]


def stage_model(
    model: onnx.ModelProto | str | os.PathLike[str],
    place: Path,
    feeds: Mapping[str, Datum],
    write: Write = write_model,
    structure: onnx.ModelProto | None = None,
) -> str:
    """Write a model and its feeds to the child's folder; returns the model's path. A path stays as
    it is. `structure` is the model without weights, if already loaded.
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
    """The feeds of a model's inputs, in their types. Raises InputError: they do not fit."""
    initial = frozenset(stored_names(model.graph))
    ports = [port for port in model.graph.input if port.name in feeds or port.name not in initial]
    input_names = {port.name for port in ports}
    return fit_feeds(
        {name: feed for name, feed in feeds.items() if name in input_names}, ports, initial
    )


def child_environment() -> dict[str, str]:
    """The environment of a child process that imports this very package."""
    source = str(Path(__file__).parents[3])  # the folder that contains the package
    python_path = os.environ.get("PYTHONPATH")
    paths = source if not python_path else os.pathsep.join((source, python_path))
    return {**os.environ, "PYTHONPATH": paths}


def spell_last_line(errors: bytes) -> str:
    """The last line of what a process wrote to stderr, behind a colon; empty if there is none."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return f": {spell_reason(lines[-1])}" if lines else ""


def _call(folder: Path, target: str, effort: Effort) -> None:
    command = [sys.executable, "-m", "mezzo.onnx.profile.worker", str(folder)]
    try:
        done = subprocess.run(
            command, env=child_environment(), cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=effort.limit_s * 2, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ContractError(
            f"target {target!r}: timing did not end within {effort.limit_s * 2:.0f} s; use a"
            f" smaller batch of data, or leave out {option('measure')}"
        ) from None
    if not (folder / "answer.json").exists():
        raise ContractError(
            f"target {target!r}: the runtime crashed (exit code {done.returncode}) on a"
            f" model{spell_last_line(done.stderr)}; leave out {option('measure')}"
        )


def _kernel(row: Mapping[str, Any]) -> KernelTime:
    return KernelTime(
        names=tuple(row["names"]),
        op=row["op"],
        makes=tuple(row["makes"]),
        feeds=tuple(row["feeds"]),
        time_ns=float(row["time_ns"]),
        spread_ns=float(row["spread_ns"]),
        calls=float(row["calls"]),
    )
