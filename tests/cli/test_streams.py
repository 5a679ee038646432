"""Standard streams that are closed, full, or read by nobody: no traceback, and the command's own exit code."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from mezzo.common.errors import InputError, bound_line

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")

_MEZZO = f"{sys.executable} -m mezzo"


def _shell(line: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_neither_result_nor_exit_code(folder: Path, closed: str) -> None:
    done = _shell(f"{_MEZZO} convert small.onnx out.onnx --to fp16 {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    onnx.checker.check_model(onnx.load("out.onnx"), full_check=True)
    assert _shell(f"{_MEZZO} convert small.onnx again.onnx --to fp16").returncode == 0
    assert Path("out.onnx").read_bytes() == Path("again.onnx").read_bytes()  # nothing was printed into it


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_error_keeps_its_exit_code_where_nobody_can_read_it(folder: Path, closed: str) -> None:
    done = _shell(f"{_MEZZO} convert no.onnx out.onnx {closed}")
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_stdout_is_told_and_the_result_is_there(folder: Path) -> None:
    done = _shell(f"{_MEZZO} convert small.onnx out.onnx --to fp16 > /dev/full")
    assert done.returncode == 2
    assert done.stderr == (
        "mezzo: cannot print to stdout: No space left on device; files that were asked for are written\n"
    )
    assert Path("out.onnx").exists()


@pytest.mark.parametrize("word", ["x" * 10_000, "x y " * 5000])
def test_error_line_is_bounded_and_keeps_both_ends(folder: Path, word: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mezzo", "convert", "small.onnx", "out.onnx", "--to", word],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and len(done.stderr) < 2200
    assert "..." in done.stderr and done.stderr.startswith("mezzo: ")


def test_error_in_python_is_bounded_too() -> None:
    told = str(InputError(f"node {'n' * 10_000} is at fault; {'a b ' * 1000}; do this"))
    assert len(told) < 2100 and told.startswith("node nnn") and told.endswith("; do this")
    assert bound_line("as it is") == "as it is"
