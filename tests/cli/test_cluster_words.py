"""What is asked of a cluster that cannot be, in one line; with none asked for nothing of Ray is loaded."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_lines import Run

from mezzo.clusters import opening


@pytest.fixture
def here(folder: Path) -> Path:
    np.savez("calib.npz", x=np.ones((4, 4), np.float32))
    return folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--workers", "2"), "--workers is 2 without --cluster; say where they are: --cluster local"),
        (("--cluster", "nearby"), "--cluster is 'nearby'; choose one of local, auto, ray://HOST:PORT"),
        (("--cluster", "ray://"), "--cluster is 'ray://'; choose one of local, auto, ray://HOST:PORT"),
        (("--cluster", "local", "--workers", "0"), "--workers is 0; give 1 or more"),
    ],
)
@pytest.mark.parametrize("verb", ["ranges", "tune"])
def test_a_cluster_that_cannot_be_is_one_line(here: Path, run: Run, verb: str, words: tuple, line: str) -> None:
    more = ("out.onnx", "--max-error", "1e-3") if verb == "tune" else ()
    ran = run(verb, "small.onnx", *more, "--data", "calib.npz", *words)
    assert (ran.code, ran.err) == (2, f"mezzo: {line}\n")
    assert not Path("out.onnx").exists()


def test_a_cluster_without_data_has_nothing_to_do(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_version", lambda name: "2.60.0")
    ran = run("convert", "small.onnx", "out.onnx", "--cluster", "local")
    line = "--cluster is 'local', and without --data there is nothing to spread; give some, or leave it out"
    assert (ran.code, ran.err) == (2, f"mezzo: {line}\n")


def test_without_ray_the_line_says_how_to_get_it(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_version", lambda name: None)
    ran = run("ranges", "small.onnx", "--data", "calib.npz", "--cluster", "local")
    assert ran.code == 2
    assert ran.err.startswith("mezzo: --cluster local: ray is not installed; pip install ")
    assert ran.err.endswith("; or leave it out\n") and ran.err.count("\n") == 1


def test_nothing_of_ray_is_loaded_unless_asked_for(here: Path) -> None:
    code = (
        "import sys, mezzo; mezzo.ranges('small.onnx', 'calib.npz'); mezzo.cluster; "
        "print(*(name for name in sys.modules if name.partition('.')[0] == 'ray'))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == []
