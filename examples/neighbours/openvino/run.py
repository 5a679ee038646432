"""Run the typed demo model in OpenVINO with both inference precisions.

Run: python examples/neighbours/openvino/run.py
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import openvino
import openvino.properties.hint as hints

import mezzo

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import DIGITS, OUT, Judge, Row, digits, make_judge, print_rows

# What a user can ask for. Without a hint OpenVINO takes the type it finds fastest on the CPU, whatever the file says.
HINTS = {
    "no hint": {},
    "inference_precision f32": {hints.inference_precision: openvino.Type.f32},
    "execution_mode ACCURACY": {hints.execution_mode: hints.ExecutionMode.ACCURACY},
}
HEAVY = ("Convolution", "FullyConnected", "MatMul")


def run(typed: Path, hint: str) -> tuple[np.ndarray, Counter[str]]:
    """The model's answer, and how many heavy layers ran in which precision."""
    compiled = openvino.Core().compile_model(typed, "CPU", HINTS[hint])
    answer = compiled(digits())[0]
    layers = [layer.get_rt_info() for layer in compiled.get_runtime_model().get_ordered_ops()]
    heavy = [about for about in layers if about["layerType"].astype(str) in HEAVY]
    return answer, Counter(about["runtimePrecision"].astype(str) for about in heavy)


def compare(out: Path, to: str) -> tuple[Judge, tuple[Row, ...]]:
    """Convert for OpenVINO and run with every hint."""
    typed = out / f"digits.openvino.{to}.onnx"
    mezzo.convert(DIGITS, typed, to=to, target="openvino-cpu")
    judge = make_judge(DIGITS, typed, digits())
    rows = []
    for hint in HINTS:
        answer, precisions = run(typed, hint)
        spelled = ", ".join(f"{count} heavy layers {name}" for name, count in sorted(precisions.items()))
        rows.append(judge.judge(f"{to.upper()}, {hint}", answer, spelled))
    return judge, tuple(rows)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for to in ("fp16", "bf16"):
        print_rows(*compare(OUT, to))
        print()


if __name__ == "__main__":
    main()
