"""Nothing is sent: libraries that mezzo loads open no connection, and keep nothing that they would send later."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

_SMALL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"
_COMMANDS = (
    ("compare", "digits.onnx", "digits.onnx", "--data", "x.npz"),
    ("bench", "digits.onnx", "digits.onnx", "--runs", "2"),
    ("doctor",),
)
_STRACE = shutil.which("strace")


def _may_trace() -> bool:
    """Whether this system lets a process trace its children: containers often refuse it."""
    return _STRACE is not None and subprocess.run([_STRACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_data: object) -> Mapping[str, str]:
    """The environment of a user who set nothing, with a home and a temporary folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(_SMALL, "digits.onnx")
    assert callable(save_data)
    save_data("x.npz")
    places = {"HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp", "XDG_CACHE_HOME": tmp_path / "home" / "cache"}
    for place in places.values():
        place.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    return {**kept, **{name: str(place) for name, place in places.items()}}


def _left(environment: Mapping[str, str]) -> list[str]:
    """Files in home and temporary folder."""
    folders = (Path(environment["HOME"]), Path(environment["TMPDIR"]))
    return [str(path) for folder in folders for path in folder.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_commands_leave_no_file_in_home_or_temporary_folder(words: tuple[str, ...], private: Mapping[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", "mezzo", *words], env=private, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert _left(private) == []


@pytest.mark.skipif(not _may_trace(), reason="needs strace, and leave to trace a process")
@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_commands_open_no_connection(words: tuple[str, ...], private: Mapping[str, str], tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    tracing = [str(_STRACE), "-f", "-qq", "-e", "trace=%network", "-o", str(trace)]
    done = subprocess.run(
        [*tracing, sys.executable, "-m", "mezzo", *words], env=private, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not re.findall(r".*\b(?:AF_INET|AF_INET6|AF_PACKET)\b.*", trace.read_text())


def test_library_that_was_imported_before_is_told_nothing_of_models(private: Mapping[str, str]) -> None:
    code = (
        "import onnxruntime, mezzo, sys\n"
        "mezzo.compare('digits.onnx', 'digits.onnx', data='x.npz')\n"
        "from mezzo.onnx.run.runtime_libraries import load_onnxruntime\n"
        "assert load_onnxruntime() is onnxruntime\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=private, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    kept = b"".join(Path(name).read_bytes() for name in _left(private))
    assert b"digits" not in kept and b"SessionCreation" not in kept
