"""The column `mezzo` of the INT8 tables: how its command line is called, and what it says. Not a script of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import util
from pathlib import Path

import numpy as np

LEVELS = ("int8", "int8,bf16")
TARGETS = ("openvino-cpu", "onnxruntime-cpu")
CALIBRATORS = ("none", "minmax", "entropy", "percentile", "mse")
NOT_YET = "not yet"
_REFUSED = 2


class NotYetError(Exception):
    """mezzo refuses what it is asked for: the message is its own."""


def name_of(to: str, target: str, calibrator: str | None) -> str:
    """The name of such a column, and of its files."""
    parts = ["mezzo", to.replace(",", "+"), target.removesuffix("-cpu"), *([] if calibrator is None else [calibrator])]
    return "-".join(parts)


def spell(to: str, target: str, calibrator: str | None) -> str:
    """What a user types."""
    return " ".join(["mezzo", *_arguments("MODEL", "OUT", "DATA", to, target, calibrator)])


def _arguments(model: str, out: str, data: str, to: str, target: str, calibrator: str | None) -> list[str]:
    """The one place that knows how mezzo is asked for INT8."""
    needs = [] if calibrator == "none" else ["--data", data]  # ranges found while the model runs need no data
    how = [] if calibrator is None else ["--calibrator", calibrator]
    return ["convert", model, out, "--to", to, *needs, "--target", target, *how]


def is_there() -> bool:
    """Whether mezzo can be called here."""
    return util.find_spec("mezzo") is not None or shutil.which("mezzo") is not None


def convert(
    model: Path,
    out: Path,
    batches: Sequence[dict[str, np.ndarray]],
    *,
    to: str,
    target: str,
    calibrator: str | None,
) -> None:
    """Convert through the command line.

    Raises:
        NotYetError: it refused, which is what it does before it knows the option or the level.
    """
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in enumerate(batches):
            np.savez(Path(folder, f"{number:04}.npz"), **batch)  # type: ignore[arg-type]  # arrays by name
        arguments = _arguments(str(model), str(out), folder, to, target, calibrator)
        program = [sys.executable, "-m", "mezzo"] if util.find_spec("mezzo") else ["mezzo"]
        done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == _REFUSED or not out.exists():
        said = re.sub(r"\s+", " ", done.stderr or done.stdout).strip()
        raise NotYetError(said)
    done.check_returncode()
