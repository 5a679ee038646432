"""A part that is far smaller than what shares its scale keeps its numbers, joined, moved or cut out."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import mezzo

# Convolutions of one map, "f": boxes up to some hundred, and scores below one; and both by one convolution.
HEAD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,6,6] x) => (%s)
<float[8,3,3,3] w1, float[4,8,1,1] wb, float[6,8,1,1] ws, float[10,8,1,1] wa, int64[2] parts = {4, 6}, int64[1] a = {4},
 int64[1] b = {10}, int64[1] c = {1}, int64[6] rows = {4,5,6,7,8,9}, int64[3] flat = {0, 10, 36}, float[5,10,1,1] w2>
{
    [first] h = Conv<pads=[1,1,1,1]>(x, w1)
    [relu] f = Relu(h)
    [box] cb = Conv(f, wb)
    [boxrelu] rb = Relu(cb)
    [score] cs = Conv(f, ws)
    [prob] ps = Sigmoid(cs)
    [both] all = Conv(f, wa)
    %s
}
"""
JOINED = "float[N,10,6,6] y, float[N,5,6,6] z", "[join] y = Concat<axis=1>(rb, ps) [next] z = Conv(y, w2)"
MOVED = (
    "float[N,36,10] y, float[N,5,6,6] z",
    "[join] j = Concat<axis=1>(rb, ps) [next] z = Conv(j, w2) [shape] r = Reshape(j, flat) "
    "[turn] y = Transpose<perm=[0,2,1]>(r)",
)
CUT = "float[N,4,6,6] y0, float[N,6,6,6] y", "[cut] y0, y = Split<axis=1>(all, parts)"
SLICED = "float[N,6,6,6] y", "[cut] y = Slice(all, a, b, c)"
TURNED = "float[N,6,6,6] y", "[turn] t = Transpose<perm=[0,1,3,2]>(all) [cut] y = Gather<axis=1>(t, rows)"
Scores = Callable[[np.ndarray], np.ndarray]
PLACES: dict[str, tuple[tuple[str, str], Scores]] = {
    "joined": (JOINED, lambda y: y[:, 4:]),
    "joined and moved": (MOVED, lambda y: y[:, :, 4:]),
    "cut": (CUT, lambda y: y),
    "sliced": (SLICED, lambda y: y),
    "moved and gathered": (TURNED, lambda y: y),
}


def network(place: str, size: float) -> onnx.ModelProto:
    """A network whose boxes are as large as asked."""
    outputs, nodes = PLACES[place][0]
    model: onnx.ModelProto = onnx.parser.parse_model(HEAD % (outputs, nodes))
    rng = np.random.default_rng(4)
    for port in model.graph.value_info:  # weights of which the text gives no numbers
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        numbers = rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        if port.name in ("wa", "wb"):
            numbers[:4] *= size
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers.astype(np.float32), port.name))
    del model.graph.value_info[:]
    return model


def answer(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], feeds)[0])


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("place", PLACES)
def test_scores_beside_boxes_keep_their_numbers(place: str, target: str) -> None:
    model, rng = network(place, 500.0), np.random.default_rng(5)
    data = [{"x": rng.standard_normal((4, 3, 6, 6)).astype(np.float32)} for _ in range(6)]
    result = mezzo.convert(model, to="int8", target=target, quantize_mode="full", data=data, check=False)
    scores = PLACES[place][1]
    wanted, made = (scores(answer(one, data[0])) for one in (model, result.model))
    # Two products in 8 bits err by a hundredth each, and a scale of 255 steps for both would leave less than one.
    assert np.linalg.norm(made - wanted) < 0.1 * np.linalg.norm(wanted)
    assert any(node.op_type == "DequantizeLinear" for node in result.model.graph.node), "products are quantized"


def test_parts_of_like_size_share_a_scale() -> None:
    model, rng = network("joined", 1.0), np.random.default_rng(5)
    data = [{"x": rng.standard_normal((4, 3, 6, 6)).astype(np.float32)} for _ in range(6)]
    result = mezzo.convert(model, to="int8", target="onnxruntime-cpu", quantize_mode="full", data=data, check=False)
    assert result.plan.by_name["join"].precision.compute.value == "int8"


def test_the_part_is_named_with_what_would_be_left_of_it() -> None:
    model, rng = network("joined", 500.0), np.random.default_rng(5)
    data = [{"x": rng.standard_normal((4, 3, 6, 6)).astype(np.float32)} for _ in range(6)]
    result = mezzo.convert(model, to="int8", target="onnxruntime-cpu", quantize_mode="full", data=data, check=False)
    line = result.plan.by_name["join"]
    assert line.rule == "coarse-part" and line.because.startswith("'ps' reaches ") and line.because.endswith(" of 255")
