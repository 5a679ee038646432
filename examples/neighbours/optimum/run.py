"""Load model_fp16.onnx with Optimum from a local folder. Run: python examples/neighbours/optimum/run.py FOLDER"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from optimum.onnxruntime import ORTModelForFeatureExtraction
from transformers import AutoTokenizer

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import Judge, Row, print_rows
from texts import TEXTS, judge_tokens


def run(folder: Path, file_name: str = "model_fp16.onnx") -> tuple[Path, np.ndarray]:
    """The file that Optimum took, and the last hidden state.

    `subfolder` and `file_name` are apart: file_name="onnx/model_fp16.onnx" is not found.
    """
    model = ORTModelForFeatureExtraction.from_pretrained(folder, subfolder="onnx", file_name=file_name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    answer = model(**tokenizer(list(TEXTS), padding=True, return_tensors="np"))
    return Path(model.path), answer.last_hidden_state


def compare(folder: Path) -> tuple[Judge, tuple[Row, ...]]:
    judge = judge_tokens(folder)
    path, answer = run(folder)
    return judge, (judge.judge(f"Optimum, {path.name}", answer, "as ONNX Runtime"),)


if __name__ == "__main__":
    print_rows(*compare(Path(sys.argv[1])))
