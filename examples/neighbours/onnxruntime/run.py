"""Run the FP16 and BF16 demo model in plain ONNX Runtime on the CPU.

Run: python examples/neighbours/onnxruntime/run.py
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime

import mezzo

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import DIGITS, OUT, Judge, Row, digits, make_judge, print_rows

HEAVY = ("Conv", "FusedConv", "Gemm", "FusedMatMul", "MatMul")


def run(typed: Path) -> tuple[np.ndarray, Counter[str]]:
    """The model's answer, and how many heavy operators ran in which type, by ONNX Runtime's own profile.

    Inputs and outputs are FP32, as in the original.
    """
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(typed.with_suffix(".profile"))
    session = onnxruntime.InferenceSession(typed, options, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], digits())
    profile = Path(session.end_profiling())
    events = json.loads(profile.read_text(encoding="utf-8"))
    profile.unlink()
    heavy = [event["args"] for event in events if event.get("args", {}).get("op_name") in HEAVY]
    return logits, Counter(next(iter(about["input_type_shape"][0])) for about in heavy)


def compare(out: Path) -> tuple[Judge, tuple[Row, ...], str]:
    """Run both formats; the last is what ONNX Runtime says to the BF16 one."""
    fp16, bf16 = out / "digits.fp16.onnx", out / "digits.bf16.onnx"
    mezzo.convert(DIGITS, fp16, to="fp16")
    mezzo.convert(DIGITS, bf16, to="bf16")
    judge = make_judge(DIGITS, fp16, digits())
    answer, types = run(fp16)
    spelled = ", ".join(f"{count} heavy operators {name}" for name, count in sorted(types.items()))
    try:
        run(bf16)
        said = "loads"
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        said = str(error)
    return judge, (judge.judge("FP16", answer, spelled),), said


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    judge, rows, said = compare(OUT)
    print_rows(judge, rows)
    print(f"BF16: {said}")


if __name__ == "__main__":
    main()
