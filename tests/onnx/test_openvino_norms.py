"""Norms by a reciprocal, which OpenVINO's CPU finds in BF16 where they are written as quotients alone."""

import numpy as np
import onnx.parser
import pytest

import mezzo
from mezzo.common.machine import find_machine

openvino = pytest.importorskip("openvino", reason="openvino is not installed")

_ROWS, _WIDTH = 16, 64
_NORMS = {
    "RMS by Reciprocal": "p = Pow(h, two) m = ReduceMean(p, last) a = Add(m, eps) r = Sqrt(a) i = Reciprocal(r) "
    "n = Mul(h, i)",
    "RMS by 1 / root": "p = Mul(h, h) m = ReduceMean(p, last) a = Add(m, eps) r = Sqrt(a) i = Div(one, r) "
    "n = Mul(i, h)",
    "MVN by Reciprocal": "u = ReduceMean(h, last) c = Sub(h, u) p = Pow(c, two) m = ReduceMean(p, last) "
    "a = Add(m, eps) r = Sqrt(a) i = Reciprocal(r) n = Mul(c, i)",
}


def kernels(fuse: str, norm: str) -> set[str]:
    gain, zeros = ",".join(["1.5"] * _WIDTH), ",".join(["0"] * _WIDTH**2)
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float[{_ROWS},{_WIDTH}] x) => (float[{_ROWS},{_WIDTH}] y) '
        f"<float[{_WIDTH}] gain = {{{gain}}}, float two = {{2}}, float one = {{1}}, float eps = {{1e-5}}, "
        f"int64[1] last = {{-1}}, float[{_WIDTH},{_WIDTH}] w = {{{zeros}}}> "
        f"{{ h = MatMul(x, w) {norm} s = Mul(n, gain) y = MatMul(s, w) }}"
    )
    weight = np.random.default_rng(0).normal(size=(_WIDTH, _WIDTH)).astype(np.float32)
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    result = mezzo.convert(model, to="bf16", target="openvino-cpu", policy="aggressive", fuse=fuse, check=False).model
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(result.SerializeToString()), "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}
    )
    return {str(op.get_rt_info()["layerType"].astype(str)) for op in compiled.get_runtime_model().get_ops()}


@pytest.mark.skipif(find_machine().has("avx512_bf16") is not True, reason="needs a CPU that computes in BF16")
@pytest.mark.parametrize("spelling", _NORMS)
def test_a_norm_by_a_reciprocal_is_one_kernel_where_it_is_written_as_a_quotient(spelling: str) -> None:
    kernel = spelling.partition(" ")[0]
    assert kernel in kernels("standard", _NORMS[spelling])
    assert kernel not in kernels("none", _NORMS[spelling])  # else the target's row is to be taken back
