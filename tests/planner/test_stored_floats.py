"""Weights stored in a low float and cast to FP32: which, why, and the same answers as with rounded weights."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from onnx import numpy_helper
from random_models import models, random_feeds
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.io.planfile import load_plan
from mezzo.planner.choices import stored_floats

# A weight of each kind that a plan meets.
_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (int64[n] ids, float[n, 64] x) => (float[n, 64] y, float[n, 64] z, float[64, 64] shown)
<float[64, 64] table, float[64, 64] shared, float[64] bias, float[64, 64] large, float[64, 64] faint,
 float[64, 64] counts, float[64, 64] shown, float[64, 64] kept>
{
    [lookup] rows = Gather (table, ids)
    [first]  a = Gemm (rows, shared, bias)
    [second] b = MatMul (x, shared)
    [large]  c = MatMul (x, large)
    [faint]  d = MatMul (x, faint)
    [counts] e = MatMul (x, counts)
    [shown]  f = MatMul (x, shown)
    [kept]   h = MatMul (x, kept)
    [sum]    y = Sum (a, b, c, d)
    [more]   z = Sum (e, f, h)
}
"""
_SCALES = {"large": 1e6, "faint": 1e-7}


def _model(text: str = _TEXT) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    draw = np.random.default_rng(0)
    for info in model.graph.value_info:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        numbers = draw.standard_normal(dims).astype(np.float32) * _SCALES.get(info.name, 0.1)
        if info.name == "counts":
            numbers = np.arange(numbers.size, dtype=np.float32).reshape(dims)
        model.graph.initializer.append(numpy_helper.from_array(numbers.astype(np.float32), info.name))
    del model.graph.value_info[:]
    return model


def _reasons(plan: Plan) -> list[str]:
    return [f"{weight.value}: {weight.stored_as}, {weight.rule}: {weight.because}" for weight in plan.weights]


def test_weights_that_a_low_float_would_harm_stay_and_say_why() -> None:
    reasons = _reasons(mezzo.plan(_model(), to="fp16w", exclude=["kept"]))
    assert reasons == [
        "table: fp16w, low-float: its numbers lie in the range of f16, and a Cast gives its readers f32",
        "shared: fp16w, low-float: its numbers lie in the range of f16, and a Cast gives its readers f32",
        "bias: floats, too-small: with fewer than 4096 elements it is not worth a Cast",
        'large: floats, out-of-range: it reaches 3.946e+06, past f16\'s 65504; to="bf16w" holds it',
        "faint: floats, underflow: its numbers are about 9.9e-08, below f16's smallest normal number 6.1e-05;"
        ' to="bf16w" holds it',
        "counts: floats, whole-numbers: it holds whole numbers to 4095, and f16 only to 2048",
        "shown: floats, other-reader: 'output shown' reads it as more than an operand in f32",
        "kept: floats, excluded: 'kept' reads it, which exclude or keep_region leaves as it is",
    ]


def test_bf16_holds_what_fp16_cannot() -> None:
    plan = mezzo.plan(_model(), to="bf16w")
    assert [name for name, _ in plan.stored_floats] == [
        "weight table", "weight shared", "weight large", "weight faint", "weight kept",
    ]  # fmt: skip


def test_shared_weight_is_stored_once_with_one_cast() -> None:
    result = mezzo.convert(_model(), to="fp16w").model
    casts = [(node.input[0], node.output[0]) for node in result.graph.node if node.op_type == "Cast"]
    assert casts == [("table", "table_f32"), ("shared", "shared_f32"), ("kept", "kept_f32")]
    stored = {tensor.name: tensor.data_type for tensor in result.graph.initializer}
    assert [name for name, dtype in stored.items() if dtype == onnx.TensorProto.FLOAT16] == ["table", "shared", "kept"]
    assert len(stored) == 8
    onnx.checker.check_model(result, full_check=True)


def test_weight_that_a_caller_may_replace_stays() -> None:
    model = _model()
    model.graph.input.append(onnx.helper.make_tensor_value_info("shared", onnx.TensorProto.FLOAT, [64, 64]))
    assert "weight shared" not in dict(mezzo.plan(model, to="fp16w").stored_floats)


def test_plan_of_low_floats_is_saved_and_replayed(tmp_path: Path) -> None:
    model, path = _model(), tmp_path / "plan.json"
    plan = mezzo.plan(model, to="fp16w")
    plan.save(path)
    assert load_plan(path).stored_floats == plan.stored_floats
    direct, replayed = mezzo.convert(model, to="fp16w"), mezzo.convert(model, plan=path)
    assert direct.model.graph == replayed.model.graph
    changed = path.read_text().replace('"weight kept": "f16"', '"weight kept": "f8"')
    path.write_text(changed)
    with pytest.raises(InputError, match=r"weight 'weight kept' is stored in 'f8', wanted f16 or bf16"):
        mezzo.convert(model, plan=path)
    path.write_text(changed.replace('"weight kept": "f8"', '"weight gone": "f16"'))
    with pytest.raises(InputError, match=r"the plan stores 'weight gone' in f16, and it is no weight in f32"):
        mezzo.convert(model, plan=path)
    path.write_text(changed.replace('"weight kept": "f8"', '"weight shown": "f16"'))
    with pytest.raises(InputError, match=r"stores 'weight shown' in f16, and what reads it is more than operators"):
        mezzo.convert(model, plan=path)


def test_result_converts_to_itself_and_says_what_made_it() -> None:
    result = mezzo.convert(_model(), to="fp16w").model
    again = mezzo.convert(result, to="fp16w").model
    assert again.graph == result.graph


@pytest.mark.parametrize("to", ["fp16w,fp16", "int8,fp16w", "int4,bf16w"])
def test_formats_of_stored_floats_are_asked_for_alone(to: str) -> None:
    with pytest.raises(InputError, match=r"bf16w|fp16w is combined with nothing"):
        mezzo.plan(_model(), to=to)


def test_opset_rises_to_the_first_that_casts_bf16() -> None:
    model = _model(_TEXT.replace('"" : 21', '"" : 11'))
    raised = mezzo.convert(model, to="bf16w")
    assert raised.model.opset_import[0].version == 13
    assert "the opset went from 11 to 13: only there the schema allows bf16w" in raised.summary.notes
    kept = mezzo.convert(model, to="bf16w", opset="keep")
    assert kept.plan.stored_floats == () and "the ONNX checker refuses any change" in kept.plan.nodes[-1].because
    assert mezzo.convert(model, to="fp16w").model.opset_import[0].version == 11


def test_a_search_has_nothing_to_choose() -> None:
    data = {"ids": np.arange(4), "x": np.zeros((4, 64), np.float32)}
    for search in (lambda: mezzo.tune(_model(), data=data, to="fp16w", max_error=1e-3),
                   lambda: mezzo.sensitivity(_model(), data, to="fp16w")):  # fmt: skip
        with pytest.raises(InputError, match="to is 'fp16w', which stores every weight that its range holds"):
            search()


@pytest.mark.parametrize("to", ["fp16w", "int4"])
def test_strategies_are_compared_where_they_place_casts(to: str) -> None:
    message = f"to is '{to}', which changes how weights are stored and places no casts; take 'mezzo.plan'"
    with pytest.raises(InputError, match=message):
        mezzo.compare_strategies(_model(), to=to)


def test_large_weights_are_rounded_as_they_are_written(tmp_path: Path) -> None:
    source, result = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(_model(), source, save_as_external_data=True, location="m.data", size_threshold=0)
    mezzo.convert(source, result, to="fp16w")
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(result).graph.initializer}
    given_weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in _model().graph.initializer}
    assert np.array_equal(stored["shared"], given_weights["shared"].astype(np.float16))
    assert np.array_equal(stored["large"], given_weights["large"])


# -- the law ----------------------------------------------------------------------------------------------------------


def _tensors(owner: onnx.GraphProto | onnx.FunctionProto, path: str = "") -> Iterator[tuple[str, onnx.TensorProto]]:
    """Initializers and Constants of a graph and its bodies, by path."""
    if isinstance(owner, onnx.GraphProto):
        yield from ((f"{path}/{tensor.name}", tensor) for tensor in owner.initializer)
    for node in owner.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g, f"{path}/{node.output[0]}/{attribute.name}")
            elif node.op_type == "Constant":
                if attribute.name.startswith("value_float"):
                    numbers = np.array(onnx.helper.get_attribute_value(attribute), np.float32)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(numbers)))
                yield f"{path}/{node.output[0]}", attribute.t


def _all_tensors(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    tensors = dict(_tensors(model.graph))
    for function in model.functions:
        tensors |= _tensors(function, function.name)
    return tensors


def _rounded(model: onnx.ModelProto, like: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """The model with the weights in FP32 that are FP16 in another, rounded to it; and their number."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    tensors, count = _all_tensors(result), 0
    for path, other in _all_tensors(like).items():
        tensor = tensors[path]
        if (tensor.data_type, other.data_type) == (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            rounded = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
            count += 1
    return result, count


def _answers(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    answers: list[np.ndarray] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    return answers


@settings(max_examples=swept(60), derandomize=True, deadline=None, database=None)
@given(model=models(is_tame=True))
def test_answers_are_those_of_the_fp32_model_with_rounded_weights(model: onnx.ModelProto) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_floats, "LEAST_ELEMENTS", 1)
        converted = mezzo.convert(model, to="fp16w", check=False)
    assume(len(converted.model.functions) == len(model.functions))  # a call with another plan has a copy
    reference, count = _rounded(model, converted.model)
    assert bool(count) == bool(converted.plan.stored_floats)
    feeds = random_feeds(model, random.Random(0))
    for answer, wanted in zip(_answers(converted.model, feeds), _answers(reference, feeds), strict=True):
        np.testing.assert_array_equal(answer, wanted)


def test_emulation_of_a_plan_rounds_its_weights() -> None:
    model = _model()
    plan = mezzo.plan(model, to="fp16w")
    draw = np.random.default_rng(1)
    feeds = {"ids": np.arange(5), "x": draw.standard_normal((5, 64)).astype(np.float32)}
    reference, count = _rounded(model, mezzo.convert(model, plan=plan, check=False).model)
    wanted = _answers(reference, feeds)
    assert count == 3
    emulated = mezzo.emulate(model, feeds, plan=plan)
    for name, want in zip(("y", "z"), wanted, strict=False):
        # Sums of 64 terms in FP32, in another order.
        np.testing.assert_allclose(emulated[name], want, rtol=1e-5)
