"""Judges a conversion of a case in the true precision, without mezzo.compare's own ideas of what matters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

import mezzo
from mezzo.formats.dtypes import HIGH
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session
from spellings.cases import SAMPLES, Case

Answers = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The worst relative L2 error over samples and outputs; `why` is empty if the answers are right."""

    error: float
    why: str = ""

    @property
    def is_right(self) -> bool:
        return not self.why


def reference(case: Case) -> Answers:
    """What FP32 computes, sample by sample."""
    session = native_session(case.model)
    return [session.run(case.feeds(sample)) for sample in range(SAMPLES)]


def judge(case: Case, expected: Answers, converted: onnx.ModelProto, to: str) -> Judgement:
    """Run a conversion in true precision beside what FP32 computes."""
    session = emulated_session(converted)
    answers = [session.run(case.feeds(sample)) for sample in range(SAMPLES)]
    return measure(expected, answers, case.tolerance(to))


def measure(expected: Answers, answers: Answers, tolerance: float) -> Judgement:
    worst, why = 0.0, ""
    for wanted, got in zip(expected, answers, strict=True):
        for name, want in wanted.items():
            error = distance(np.asarray(want, np.float64), np.asarray(got[name], np.float64))
            if error > worst:
                worst = error
            if error > tolerance:
                why = f"{name} is off by {error:.2%}" if np.isfinite(error) else f"{name} is not finite where FP32 is"
    return Judgement(worst, why)


def distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2 error where the reference is finite; infinite where only the reference is finite."""
    finite = np.isfinite(want)
    if want.shape != got.shape or not np.all(np.isfinite(got[finite])):
        return float("inf")
    size = float(np.linalg.norm(want[finite]))
    missed = float(np.linalg.norm(want[finite] - got[finite]))
    return missed / size if size else float(missed > 0)


def converted(case: Case, to: str, policy: str) -> onnx.ModelProto:
    """Convert without data."""
    return mezzo.convert(case.model, to=to, policy=policy).model


def naively_converted(case: Case, to: str) -> onnx.ModelProto:
    """Make everything low that has a low type."""
    return mezzo.convert(case.model, to=to, policy="aggressive", include=["*"]).model


def heavy_in_fp32(plan: mezzo.Plan, kinds: frozenset[str]) -> tuple[int, int]:
    """How many operators of these kinds a plan has, and how many of them it keeps in FP32."""
    heavy = [node for node in plan.nodes if node.op in kinds]
    return len(heavy), sum(node.precision.compute is HIGH for node in heavy)
