"""What a trained model's constants say of its values: statistics that were gathered, and biases of convolutions."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mezzo.analysis.estimates import estimate
from mezzo.analysis.estimates.moments import rms
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

SIDE, WIDTH = 8, 16


def _size(op: str, bias: np.ndarray, statistics: list[np.ndarray]) -> dict[str, float]:
    """Sizes of what a product with weights of 10 makes, and of what a batch normalization makes of that."""
    random = np.random.default_rng(0)
    shape = (WIDTH, WIDTH, 3, 3) if op == "Conv" else (WIDTH, WIDTH)
    arrays = {"w": 10.0 * random.standard_normal(shape), "b": bias}
    arrays |= dict(zip("gsmv", statistics, strict=False))
    nodes = [helper.make_node(op, ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    if statistics:
        nodes[1] = helper.make_node("BatchNormalization", ["h", *"gsmv"], ["y"])
    ends = [1, WIDTH, SIDE, SIDE] if op == "Conv" else [SIDE, WIDTH]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ends)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    read = open_model(model).read(DType.FLOAT16).graph
    held = estimate(read, rows_of(read), FORMATS[DType.FLOAT16], {}).moments
    return {value.name: rms(held[number]) for number, value in enumerate(read.values)}


def _trained(scale: float) -> np.ndarray:
    return scale * np.random.default_rng(1).standard_normal(WIDTH)


@pytest.mark.parametrize("scale", [0.1, 4.0])
def test_convolution_is_no_larger_than_its_bias_explains(scale: float) -> None:
    """White noise gives 10 * sqrt(144) = 120: 32 is believed without evidence, and 16 times the bias."""
    size = _size("Conv", _trained(scale), [])["h"]
    bias = float(np.sqrt(np.mean(_trained(scale) ** 2)))
    assert size == pytest.approx(max(32.0, 16.0 * bias), rel=0.05)


@pytest.mark.parametrize(("op", "bias"), [("Conv", np.zeros(WIDTH)), ("Gemm", _trained(0.1))])
def test_without_a_trained_bias_of_a_convolution_nothing_is_corrected(op: str, bias: np.ndarray) -> None:
    assert _size(op, bias, [])["h"] == pytest.approx(10.0 * np.sqrt(144.0 if op == "Conv" else 16.0), rel=0.1)


def test_gathered_variance_says_how_large_the_input_is() -> None:
    ones = np.ones(WIDTH)
    variance = np.random.default_rng(2).uniform(1.0, 9.0, WIDTH)
    gathered = _size("Conv", np.zeros(WIDTH), [2.0 * ones, 0.0 * ones, 0.0 * ones, variance])
    assert gathered["h"] == pytest.approx(np.sqrt(variance.mean()), rel=0.05)
    assert gathered["y"] == pytest.approx(2.0, rel=0.05)
    initial = _size("Conv", np.zeros(WIDTH), [2.0 * ones, 0.0 * ones, 0.0 * ones, ones])
    assert initial["h"] > 100.0  # what a model starts with was never gathered
