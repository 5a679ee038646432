"""What a model with weights in blocks tells of how it was made: it is kept, or not believed."""

import json

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.api.convert import describe_origin
from mezzo.conversion.recall import read_record
from mezzo.onnx.opening import open_model

_KEY = "mezzo.provenance"
_MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (int64[n] ids, float[n,256] given) => (float[n,256] y)
    { [rows] r = Gather(table, ids)  [first] h = MatMul(r, w1)  [act] a = Relu(h)  [last] l = Gemm<transB = 1>(a, w2)
      [sum] y = Add(l, given) }"""
_CASES = [(target, to) for target in ("onnx", "onnxruntime-cpu") for to in ("int4", "int8w", "int4,fp16")]
_ROUNDED = [*_CASES, ("openvino-cpu", "int4"), ("openvino-cpu", "int4,bf16"), ("tensorrt", "int4,fp16")]


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(_MODEL)
    rng = np.random.default_rng(0)
    for name, shape in (("table", (100, 256)), ("w1", (256, 256)), ("w2", (256, 256))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return model


def _convert(model: onnx.ModelProto, target: str, to: str) -> onnx.ModelProto:
    result = mezzo.convert(model, to=to, target=target, check=False).model
    assert isinstance(result, onnx.ModelProto)
    return result


@pytest.mark.parametrize(("target", "to"), _ROUNDED)
def test_weights_in_blocks_are_rounded_once(target: str, to: str) -> None:
    once = _convert(_model(), target, to)
    assert _convert(once, target, to).SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize(("target", "to"), _CASES)
def test_a_result_tells_its_options_and_counts_its_weights(target: str, to: str) -> None:
    lines = describe_origin(_convert(_model(), target, to))
    word = to.partition(",")[0]
    assert lines[0].endswith(f"to {to}, policy balanced, strategy mincut, target {target}, weights 3 in {word}")
    assert lines[1:] == (("5 operators run in f16, 0 do not",) if "fp16" in to else ())


@pytest.mark.parametrize(("target", "to"), _CASES)
@pytest.mark.parametrize("low", ["f32", "f16", "bf16", "int8", "i64", "u4"])
def test_a_false_format_is_not_believed(target: str, to: str, low: str) -> None:
    model = _convert(_model(), target, to)
    entry = next(entry for entry in model.metadata_props if entry.key == _KEY)
    told = json.loads(entry.value)
    is_true = told["low"] == low
    entry.value = json.dumps({**told, "low": low})
    recalled, fault = read_record(open_model(model))
    assert (recalled is None) is (fault is not None)
    assert recalled is not None if is_true else True
    again = mezzo.convert(model, to=to, target=target, check=False)
    assert [node.op_type for node in again.model.graph.node] == [node.op_type for node in model.graph.node]


def test_another_storage_is_decided_anew() -> None:
    plan = mezzo.plan(_convert(_model(), "onnx", "int4,fp16"), to="int8w,fp16", target="onnx")
    assert any("--to int8w,fp16 is other than the int4,fp16 that it was made for" in note for note in plan.notes)
