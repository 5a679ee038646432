"""Ctrl-C at any moment: one line, exit code 130, and nothing half-written."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
import pytest
from command_lines import Run

from mezzo.api.folders.staging import FolderStaging
from mezzo.cli import main
from mezzo.cli.interrupts import Interrupts
from mezzo.common.staging import Staging

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
    pytest.mark.usefixtures("unignored"),
]

_TOLD = "mezzo: interrupted\n"
# From the start of the command to what most of them take, in seconds. Where a delay falls differs from run to run; what
# has to hold does not.
_DELAYS_S = (0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.2, 1.6, 2.2, 3.0)
_COMMANDS = (
    ("convert", "small.onnx", "out.onnx", "--save-plan", "plan.json", "--report", "report.html"),
    ("convert", "small.onnx", "out.onnx", "--data", "x.npz", "--to", "fp16", "--resume", "state.json"),
    ("tune", "small.onnx", "out.onnx", "--data", "x.npz", "--max-error", "1e-4", "--resume", "state.json"),
    ("convert", "models", "out"),
    ("compare", "small.onnx", "layernorm.onnx", "--data", "x.npz"),
    ("doctor",),
)
_KEPT = "mezzo: what was run is kept in 'state.json'; the same command goes on from there\n"
_STATES = {"state.json", "state.json.ranges.npz", "state.json.calibration.npz"}
_WHOLE = {"out.onnx", "plan.json", "report.html", "out", *_STATES}
# Says 'ready' in the first call that `main` makes: what comes earlier is Python's own start.
_START = """
import sys
import mezzo.cli
begin = mezzo.cli._open_closed_streams
mezzo.cli._open_closed_streams = lambda: (begin(), print('ready', flush=True))
sys.exit(mezzo.cli.main())
"""


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """A command's modules are there before one is interrupted in this process: of a half import nobody recovers."""
    with pytest.raises(SystemExit), redirect_stdout(StringIO()):
        sys.exit(main(["convert", "--help"]))


@pytest.fixture
def filled(folder: Path) -> Path:
    """The folder of models with data, and a folder of models."""
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    (folder / "models").mkdir()
    onnx.save(onnx.load("small.onnx"), folder / "models" / "small.onnx")
    return folder


def _begin(words: tuple[str, ...]) -> "subprocess.Popen[str]":
    """A process of its own, in a group of its own, as in a terminal; it has begun when this returns."""
    child = subprocess.Popen(
        [sys.executable, "-c", _START, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        process_group=0,
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize("trial", range(len(_DELAYS_S)))
def test_interrupted_process_says_one_line_and_leaves_nothing(filled: Path, trial: int) -> None:
    words, delay_s = _COMMANDS[trial % len(_COMMANDS)], _DELAYS_S[trial]
    before = {path.name for path in filled.iterdir()}
    child = _begin(words)
    time.sleep(delay_s)
    for _ in range(1 + trial % 2):  # every other time twice in a row
        os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=120)
    assert child.returncode in ((130,) if delay_s < 0.1 else (0, 1, 3, 130)), err
    left = {path.name for path in filled.iterdir()} - before
    kept = _KEPT if left & _STATES else ""
    told = {kept + _TOLD, _TOLD} if "out.onnx" in left else {kept + _TOLD}  # a result that is written is all there is
    assert err in (told if child.returncode == 130 else {""})
    assert left <= _WHOLE and (not left or delay_s), left
    for name in left & {"out.onnx"}:
        onnx.checker.check_model(onnx.load(name), full_check=True)


def _interrupting(count: int) -> Callable[[FrameType, str, object], None]:
    """A profile function that sends Ctrl-C at the given call of a Python function."""
    left = [count]

    def at_call(frame: FrameType, event: str, given: object) -> None:
        if event == "call":
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    return at_call


@pytest.fixture
def profiled() -> Iterator[None]:
    before = sys.getprofile()
    yield
    sys.setprofile(before)


@pytest.mark.parametrize("words", [words for words in _COMMANDS if words[0] == "convert"], ids=" ".join)
@pytest.mark.parametrize("call", [3 * 2**power for power in range(4, 17, 2)])
def test_interrupt_at_a_call_leaves_nothing(
    run: Run, filled: Path, profiled: None, words: tuple[str, ...], call: int
) -> None:
    before = {path.name for path in filled.iterdir()}
    sys.setprofile(_interrupting(call))
    try:
        ran = run(*words)
    finally:
        sys.setprofile(None)
    left = {path.name for path in filled.iterdir()} - before
    assert left <= _WHOLE, left
    kept = _KEPT if left & _STATES else ""
    # A result that is written is all there is. 3: ones show nothing.
    told = {kept + _TOLD, _TOLD} if "out.onnx" in left else {kept + _TOLD}
    assert (ran.code, ran.err) in {(0, ""), (3, ""), *((130, text) for text in told)}, (ran, left)
    if ran.code == 130 and "out.onnx" in left:
        onnx.checker.check_model(onnx.load("out.onnx"), full_check=True)


def test_interrupt_between_two_files_leaves_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / name).write_text("old")
    moves = iter((os.replace, os.replace))

    def move(source: Path, destination: Path) -> None:
        step = next(moves, None)
        if step is None:
            monkeypatch.undo()
            raise KeyboardInterrupt
        step(source, destination)

    monkeypatch.setattr(os, "replace", move)
    with pytest.raises(KeyboardInterrupt), Staging() as staging:
        _write_both(staging, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old"}


def _write_both(staging: Staging, folder: Path) -> None:
    for name in "ab":
        with staging.create(folder / name) as sink:
            sink.write(b"new")
    staging.commit()


def test_interrupted_folder_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    rename, count = os.rename, [0]

    def move(source: Path, destination: Path) -> None:
        count[0] += 1
        if count[0] == 2:
            monkeypatch.undo()
            raise KeyboardInterrupt
        rename(source, destination)

    monkeypatch.setattr(os, "rename", move)
    with pytest.raises(KeyboardInterrupt), FolderStaging(tmp_path) as staging:
        _write_one(staging)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old"}


def _write_one(staging: FolderStaging) -> None:
    staging.place("a").write_text("new")
    staging.commit()


def test_second_interrupt_does_not_stop_the_cleaning_up() -> None:
    steps = []
    with Interrupts(ends_process=False) as interrupts:
        try:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
                steps.append("cleaned")
        except KeyboardInterrupt:
            steps.append("told")
    assert steps == ["cleaned", "told"] and interrupts.was_raised


def test_interrupt_in_a_finalizer_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), Interrupts(ends_process=False):
        _drop_and_wait(Interrupted())
    assert capfd.readouterr().err == ""


def _drop_and_wait(held: object) -> None:
    del held
    for _ in range(1000):
        time.sleep(0.01)


def test_what_an_interrupt_makes_of_an_import_is_an_interrupt(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("numpy failed to import", name="numpy") from error

    monkeypatch.setattr("mezzo.api.convert.convert", fail)
    ran = run("convert", "small.onnx", "out.onnx")
    assert (ran.code, ran.err) == (130, _TOLD)


def test_handlers_are_as_before(run: Run, folder: Path) -> None:
    hook = sys.unraisablehook
    run("show", "small.onnx")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and sys.unraisablehook is hook


def test_process_that_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts(ends_process=True):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_set_no_handlers() -> None:
    found: list[object] = []

    def look() -> None:
        with Interrupts(ends_process=True):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
