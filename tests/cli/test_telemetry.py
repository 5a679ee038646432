"""Nothing is sent: libraries that mezzo loads open no connection, and keep nothing that they would send later."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

_DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
_COMMANDS = (
    ("compare", "digits.onnx", "digits.onnx", "--data", "x.npz"),
    ("bench", "digits.onnx", "--runs", "2"),
    ("doctor",),
)
# The processes of a command, and of their system calls those alone that concern networks.
_STRACE = (shutil.which("strace") or "strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=%network")


def _may_trace() -> bool:
    """Whether this system lets a process trace its children: containers often refuse it."""
    is_there = shutil.which("strace") is not None
    return is_there and subprocess.run([*_STRACE, "true"], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True, slots=True)
class _Done:
    """What a command left: files, and the calls that concern networks; None where it was not traced."""

    code: int
    errors: bytes
    left: list[str]
    trace: str | None


def _lay_out(folder: Path) -> Mapping[str, str]:
    """A model, data, and the environment of a user who set nothing, with a home and a temporary folder of its own."""
    shutil.copy(_DIGITS / "digits.onnx", folder)
    with np.load(_DIGITS / "heldout.npz") as held:
        np.savez(folder / "x.npz", image=held["image"][:48])
    places = {"HOME": folder / "home", "TMPDIR": folder / "tmp", "XDG_CACHE_HOME": folder / "home" / "cache"}
    for place in places.values():
        place.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    return {**kept, **{name: str(place) for name, place in places.items()}}


def _left(environment: Mapping[str, str]) -> list[str]:
    """Files in home and temporary folder."""
    folders = (Path(environment["HOME"]), Path(environment["TMPDIR"]))
    return [str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir()]


@pytest.fixture(scope="module", params=_COMMANDS, ids=" ".join)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Done:
    """One command, run once for all that is asked of it."""
    folder = tmp_path_factory.mktemp("telemetry")
    environment, trace = _lay_out(folder), folder / "trace"
    tracing = [*_STRACE, "-o", str(trace)] if _may_trace() else []
    words = [*tracing, sys.executable, "-m", "mezzo", *request.param]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    return _Done(ran.returncode, ran.stderr, _left(environment), trace.read_text() if tracing else None)


def test_commands_leave_no_file_in_home_or_temporary_folder(done: _Done) -> None:
    assert done.code == 0, done.errors
    assert done.left == []


def test_commands_open_no_connection(done: _Done) -> None:
    if done.trace is None:
        pytest.skip("needs strace, and leave to trace a process")
    assert done.code == 0, done.errors
    assert not re.findall(r".*\b(?:AF_INET|AF_INET6|AF_PACKET)\b.*", done.trace)


def test_library_that_was_imported_before_is_told_nothing_of_models(tmp_path: Path) -> None:
    code = (
        "import onnxruntime, mezzo, sys\n"
        "mezzo.compare('digits.onnx', 'digits.onnx', data='x.npz')\n"
        "from mezzo.onnx.run.runtime_libraries import load_onnxruntime\n"
        "assert load_onnxruntime() is onnxruntime\n"
    )
    private = _lay_out(tmp_path)
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, env=private, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    kept = b"".join(Path(name).read_bytes() for name in _left(private))
    assert b"digits" not in kept and b"SessionCreation" not in kept
