"""How OpenVINO's CPU answers where several read a quantized convolution: squeeze and excitation, a gate, a residual."""

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo

openvino = pytest.importorskip("openvino", reason="openvino is not installed")

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,8,h,w] x) => (float[n,16,h,w] y) {
    [conv] c = Conv(x, BIAS)
    [pool] p = GlobalAveragePool(c)
    [gate] g = HardSigmoid(p)
    [mul]  m = Mul(c, g)
    [sum]  y = Add(c, m)
}"""


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    core = openvino.Core()
    settings = {"EXECUTION_MODE_HINT": "ACCURACY"}
    return np.asarray(core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings)([x])[0])


@pytest.mark.parametrize("operands", ["w", "w, b"])
def test_lengths_that_are_open_and_no_bias_or_zeros_are_computed_in_int8_and_right(operands: str) -> None:
    """A bias of zeros is dropped there, and without one the pool got integers without their scale: off by .999."""
    model, rng = onnx.parser.parse_model(MODEL.replace("BIAS", operands)), np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 8, 1, 1)), "b": np.zeros(16)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(weights[name].astype(np.float32), name) for name in operands.split(", ")
    )
    data = [{"x": rng.normal(size=(1, 8, 8, 8)).astype(np.float32)} for _ in range(8)]
    converted = mezzo.convert(model, to="int8", target="openvino-cpu", data=data, correct="none", check=False)
    assert str(converted.plan.by_name["conv"].precision.compute) == "int8"
    exact, found = (answer(one, data[0]["x"]) for one in (model, converted.model))
    # A step of 8 bits is a 255th of the range, here some four standard deviations to each side.
    assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < 8 / 255
