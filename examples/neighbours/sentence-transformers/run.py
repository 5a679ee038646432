"""Embed sentences with model_fp16.onnx. Run: python examples/neighbours/sentence-transformers/run.py FOLDER"""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from sentence_transformers import SentenceTransformer

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import Judge, Row, print_rows
from texts import TEXTS, judge_sentences


def run(folder: Path, file_name: str = "onnx/model_fp16.onnx") -> tuple[Path, np.ndarray]:
    """The file that was taken, and one embedding per sentence. A folder without modules.json is pooled by the mean."""
    model = SentenceTransformer(
        str(folder),
        backend="onnx",
        device="cpu",
        local_files_only=True,
        model_kwargs={"file_name": file_name, "provider": "CPUExecutionProvider"},
    )
    return Path(model[0].auto_model.path), model.encode(list(TEXTS))


def compare(folder: Path) -> tuple[Judge, tuple[Row, ...]]:
    judge = judge_sentences(folder)
    path, answer = run(folder)
    return judge, (judge.judge(f"sentence-transformers, {path.name}", answer, "as ONNX Runtime"),)


if __name__ == "__main__":
    print_rows(*compare(Path(sys.argv[1])))
