"""Steps of the opset keep every answer: the stepped model gives the same bytes on ONNX Runtime."""

import numpy as np
import onnx
import onnx.parser
import pytest

from mezzo.frontends.onnx.migrations import MIGRATIONS
from mezzo.frontends.onnx.opset import default_opset, reachable_opset, set_opset
from mezzo.frontends.onnx.run import native_session

_NORM = "<float[3] s = {1,2,3}, float[3] b = {0,1,2}, float[3] m = {1,1,0}, float[3] v = {1,2,4}>"

# One body per case: operator, opset it starts from, opset it has to reach, and the graph. x is f32[2,3,4].
_CASES = {
    "batch_norm_7": (7, 22, _NORM, "y = BatchNormalization<spatial=1>(x, s, b, m, v)"),
    "batch_norm_9": (9, 22, _NORM, "y = BatchNormalization(x, s, b, m, v)"),
    "dropout_7": (7, 22, "", "y = Dropout<ratio=0.7>(x)"),
    "softmax_of_the_last_axis": (11, 22, "", "y = Softmax<axis=2>(x)"),
    "softmax_of_minus_one": (11, 22, "", "y = LogSoftmax<axis=-1>(x)"),
    "squeeze_and_unsqueeze": (11, 22, "", "a = Unsqueeze<axes=[0,4]>(x)\n y = Squeeze<axes=[4]>(a)"),
    "squeeze_of_all": (11, 22, "", "a = Unsqueeze<axes=[0]>(x)\n y = Squeeze(a)"),
    "split_with_sizes": (11, 22, "", "a, c = Split<axis=2, split=[1,3]>(x)\n y = Concat<axis=2>(c, a)"),
    "split_in_equal_parts": (11, 22, "", "a, c = Split<axis=2>(x)\n y = Add(c, a)"),
    "reduce_sum": (11, 22, "", "y = ReduceSum<axes=[1], keepdims=0>(x)"),
    "reduce_sum_of_all": (11, 22, "", "y = ReduceSum(x)"),
    "reduce_mean": (13, 22, "", "y = ReduceMean<axes=[-1], keepdims=1>(x)"),
    "reduce_l2": (13, 22, "", "y = ReduceL2<axes=[0,2]>(x)"),
    "two_of_a_kind": (13, 22, "", "a = ReduceMax<axes=[1]>(x)\n y = ReduceMin<axes=[2]>(a)"),
}


def _model(opset: int, weights: str, body: str) -> onnx.ModelProto:
    text = f'<ir_version: 7, opset_import: ["" : {opset}]>\ng (float[2,3,4] x) => (float y)\n{weights}\n{{\n {body}\n}}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("name", sorted(_CASES))
def test_a_step_keeps_every_answer(name: str) -> None:
    since, until, weights, body = _CASES[name]
    model = _model(since, weights, body)
    assert reachable_opset(model, until) == until
    stepped = onnx.ModelProto()
    stepped.CopyFrom(model)
    set_opset(stepped, until)
    assert default_opset(stepped) == until
    onnx.checker.check_model(stepped, full_check=True)
    x = np.random.default_rng(7).normal(size=(2, 3, 4)).astype(np.float32)
    before, after = (native_session(m).run({"x": x})["y"] for m in (model, stepped))
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("since", "body"),
    [
        (11, "y = Softmax<axis=1>(x)"),  # flattens two axes before 13
        (7, "y, k = Dropout<ratio=0.7>(x)\n z = Cast<to=7>(k)"),  # somebody may read the mask
    ],
)
def test_a_step_that_would_change_an_answer_is_not_taken(since: int, body: str) -> None:
    assert reachable_opset(_model(since, "", body), 22) < 13


def test_every_row_is_in_order_and_names_a_version_of_its_operator() -> None:
    for op, rows in MIGRATIONS.items():
        versions = [row.version for row in rows]
        assert versions == sorted(set(versions)), op
        assert all(onnx.defs.get_schema(op, version).since_version == version for version in versions), op
