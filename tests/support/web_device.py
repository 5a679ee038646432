"""The device that `make device` sets up, or that MEZZO_WEBGPU names."""

import os
from pathlib import Path

import pytest

from mezzo.onnx.profile.webgpu import VARIABLE

FOLDER = Path(os.environ.get(VARIABLE) or Path(__file__).resolve().parents[2] / "out" / "device")
needs_device = pytest.mark.skipif(
    not (FOLDER / "node_modules" / "onnxruntime-web").exists(), reason="needs a WebGPU device: `make device`"
)
