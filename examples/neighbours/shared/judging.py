"""What the examples share: the demo model converted, and answers of another program set beside two references."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import mezzo

ROOT = Path(__file__).resolve().parents[3]
OUT = ROOT / "out" / "neighbours"
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
HELD_OUT = ROOT / "examples" / "digits" / "heldout.npz"
SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Row:
    """One run of another program: its relative L2 error against two references, and what it computed in."""

    run: str
    against_fp32: float
    against_emulated: float
    computed_in: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Two references for the same feeds: the FP32 model, and the typed model rounded after every operator."""

    fp32: np.ndarray
    emulated: np.ndarray

    @property
    def expected(self) -> float:
        """The error that the typed model has by its types."""
        return relative_l2(self.emulated, self.fp32)

    def judge(self, run: str, answer: np.ndarray, computed_in: str) -> Row:
        return Row(run, relative_l2(answer, self.fp32), relative_l2(answer, self.emulated), computed_in)


def relative_l2(answer: np.ndarray, reference: np.ndarray) -> float:
    """The length of the difference over the length of the reference."""
    wide = np.asarray(reference, np.float64)
    return float(np.linalg.norm(np.asarray(answer, np.float64) - wide) / np.linalg.norm(wide))


def digits() -> dict[str, np.ndarray]:
    """A batch of images of the demo's held-out digits."""
    with np.load(HELD_OUT, allow_pickle=False) as file:
        return {"image": file["image"][:SAMPLES]}


def make_judge(original: Path, typed: Path, feeds: dict[str, np.ndarray]) -> Judge:
    """References of a model with one output."""
    session = onnxruntime.InferenceSession(original, providers=["CPUExecutionProvider"])
    (fp32,) = session.run(None, feeds)
    (emulated,) = mezzo.emulate(typed, feeds).values()
    return Judge(fp32, emulated)


def print_rows(judge: Judge, rows: Sequence[Row]) -> None:
    print(f"{'run':44} {'against FP32':>13} {'against emulation':>18}  computed in")
    print(f"{'emulated, rounded everywhere':44} {judge.expected:13.2e} {0:18.2e}  the types of the file")
    for row in rows:
        print(f"{row.run:44} {row.against_fp32:13.2e} {row.against_emulated:18.2e}  {row.computed_in}")


def relative(path: Path) -> str:
    """Spell a path from where the user stands."""
    return os.path.relpath(path)
