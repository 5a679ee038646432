"""What the judge's tests share: ten-line models, and the oracle of one rounding by numpy or ml_dtypes."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser

from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine

LOW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
ELEMENT = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
EACH_LOW = pytest.mark.parametrize("low", list(LOW))
# Every number of each format, with its infinities, subnormals and NaNs.
ALL = {low: np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32) for low, dtype in LOW.items()}


def read(text: str, opset: int = 21) -> onnx.ModelProto:
    domains = f'"": {opset}, "own": 1, "ai.onnx.preview.training": 1'
    return parser.parse_model(f"<ir_version: 10, opset_import: [{domains}]>\n{text}")


def rounded(values: object, low: str) -> np.ndarray:
    """Values rounded once to `low`, in FP32 arrays as the judge gives them."""
    return np.asarray(values).astype(LOW[low]).astype(np.float32)


def judge(model: onnx.ModelProto, engine: Engine | None = Engine.ONNXRUNTIME, **feeds: object) -> np.ndarray:
    """The first output under true rounding. A given engine must do it alone, so no test passes by falling back."""
    return np.asarray(next(iter(emulated_session(model, engine).run(feeds).values())))


def assert_same_bits(result: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, signs of zeros included; of NaNs only the place, for their payload is the engine's."""
    assert result.dtype == expected.dtype == np.float32
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(result), is_nan)
    differing = (result.view(np.uint32) != expected.view(np.uint32)) & ~is_nan
    assert not differing.any(), (result[differing][:5], expected[differing][:5])
