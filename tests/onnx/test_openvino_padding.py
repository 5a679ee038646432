"""How OpenVINO's CPU pools what a norm made, which a note of its target tells: to be taken back once it is mended."""

import numpy as np
import onnx.parser
import onnx.reference
import pytest

from mezzo.plugins.discovery import target

openvino = pytest.importorskip("openvino", reason="openvino is not installed")

HEAD = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
<float[2] scale = {2,3}, float[2] bias = {5,-4}, float[2] mean = {0,0}, float[2] variance = {1,1}, float step = {0.1},
 uint8 zero = {128}> {
"""
QUANTIZED = "q = QuantizeLinear(x, step, zero)  z = DequantizeLinear(q, step, zero)"
NORM = "n = BatchNormalization(x, scale, bias, mean, variance)"
POOL = "AveragePool<count_include_pad=1, kernel_shape=[3,3], pads=[1,1,1,1]>"


def error_of(*lines: str) -> float:
    """Relative L2 of what the pool makes, against the reference."""
    model = onnx.parser.parse_model(HEAD + "  ".join(lines) + "}")
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)
    (exact, _) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()), "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}
    )
    return float(np.linalg.norm(np.asarray(compiled([x])[0]) - exact) / np.linalg.norm(exact))


def test_a_norm_before_a_pool_that_counts_its_padding_answers_wrong_beside_a_quantize_alone() -> None:
    assert any("AveragePool that counts its padding" in note for note in target("openvino-cpu").notes)
    close = 1e-6  # sums of nine numbers in FP32
    assert error_of(QUANTIZED, NORM, f"y = {POOL}(n)") > 0.1
    assert error_of("z = Identity(x)", NORM, f"y = {POOL}(n)") < close
    assert error_of(QUANTIZED, NORM, "r = Relu(n)", f"y = {POOL}(r)") < close
