"""Fill SITE/models with the demo model for the web and with inputs for it. Run: python prepare.py SITE"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import mezzo

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
from judging import DIGITS, digits


def prepare(site: Path) -> Path:
    """Convert the demo model, write the inputs that page.js reads, and return the folder of both."""
    models = site / "models"
    models.mkdir(parents=True, exist_ok=True)
    mezzo.convert(DIGITS, models / "digits.fp16.onnx", to="fp16", target="onnxruntime-web")
    write_inputs(models / "digits.json", digits())
    return models


def write_inputs(path: Path, feeds: Mapping[str, np.ndarray]) -> None:
    described = {
        name: {"type": str(array.dtype), "dims": array.shape, "data": array.ravel().tolist()}
        for name, array in feeds.items()
    }
    path.write_text(json.dumps(described), encoding="utf-8")


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
