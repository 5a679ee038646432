"""The column `mezzo` of the INT8 tables: how its command line is called, and what it says. Not a script of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path

import numpy as np

LEVELS = ("int8", "int8,bf16")
TARGETS = ("openvino-cpu", "onnxruntime-cpu")
CALIBRATORS = ("none", "minmax", "entropy", "percentile", "mse")
PLAIN = "plain"  # in a calibrator's place: the default one, and nothing corrected, which is the sooner made
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


def spell_tuned(to: str, target: str) -> str:
    """What a user types for an error budget."""
    return " ".join(["mezzo", *_tuning("MODEL", "OUT", "DATA", to, target, "ERROR")])


def _tuning(model: str, out: str, data: str, to: str, target: str, error: str) -> list[str]:
    return ["tune", model, out, "--to", to, "--data", data, "--target", target, "--max-error", error]


def _arguments(model: str, out: str, data: str, to: str, target: str, calibrator: str | None) -> list[str]:
    """How mezzo is asked for INT8: with `_tuning`, the one place that knows."""
    needs = [] if calibrator == "none" else ["--data", data]  # ranges found while the model runs need no data
    how = [] if calibrator is None else ["--calibrator", calibrator]
    if calibrator == PLAIN:
        how = ["--correct", "none"]
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
    with _stored(batches) as data:
        _run(_arguments(str(model), str(out), data, to, target, calibrator), out)


def tune(
    model: Path, out: Path, batches: Sequence[dict[str, np.ndarray]], *, to: str, target: str, max_error: float
) -> None:
    """Tune through the command line, until the error is within a budget.

    Raises:
        NotYetError: as above, or no plan keeps the budget.
    """
    with _stored(batches) as data:
        _run(_tuning(str(model), str(out), data, to, target, f"{max_error:.6g}"), out)


@contextmanager
def _stored(batches: Sequence[dict[str, np.ndarray]]) -> Iterator[str]:
    """A folder of the batches, a file each."""
    with tempfile.TemporaryDirectory() as folder:
        for number, batch in enumerate(batches):
            np.savez(Path(folder, f"{number:04}.npz"), **batch)  # type: ignore[arg-type]  # arrays by name
        yield folder


def _run(arguments: Sequence[str], out: Path) -> None:
    program = [sys.executable, "-m", "mezzo"] if util.find_spec("mezzo") else ["mezzo"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode == _REFUSED or not out.exists():
        said = re.sub(r"\s+", " ", done.stderr or done.stdout).strip()
        raise NotYetError(said)
    done.check_returncode()
