"""An FP16 or BF16 file goes back to FP32: exactly, whole, and fit to be planned anew."""

import random
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from onnx import TensorProto, helper, numpy_helper
from random_models import random_feeds, random_model, seeds
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError

LOW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
NOTHING_LOW = "has no FP16 or BF16, so"


def law(examples: int) -> settings:
    """The same examples on every run. A failure prints its seed."""
    return settings(
        max_examples=swept(examples), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        owner = waiting.pop()
        yield owner
        attributes = [attribute for node in owner.node for attribute in node.attribute]
        waiting += [attribute.g for attribute in attributes if attribute.type == onnx.AttributeProto.GRAPH]


def low_parts(model: onnx.ModelProto) -> list[str]:
    """What of a model is in FP16 or BF16: weights, constants, requested and declared types."""
    parts = []
    for owner in graphs(model):
        for node in owner.node:
            tensors = [a.t for a in node.attribute if a.type == onnx.AttributeProto.TENSOR]
            is_cast = any(a.name in ("to", "dtype") and a.i in LOW for a in node.attribute)
            if is_cast or any(tensor.data_type in LOW for tensor in tensors):
                parts.append(f"{node.op_type} {node.output[0]}")
        ports = [*owner.value_info]
        if isinstance(owner, onnx.GraphProto):
            parts += [tensor.name for tensor in owner.initializer if tensor.data_type in LOW]
            ports += [*owner.input, *owner.output]
        parts += [port.name for port in ports if port.type.tensor_type.elem_type in LOW]
    return parts


def on_grid(model: onnx.ModelProto) -> None:
    """Round all FP32 constants of a model to FP16's numbers, in place."""

    def round_tensor(tensor: onnx.TensorProto) -> None:
        if tensor.data_type == TensorProto.FLOAT:
            numbers = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(numbers, tensor.name))

    for owner in graphs(model):
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    round_tensor(attribute.t)
                elif attribute.name == "value_float":
                    attribute.f = float(np.float16(attribute.f))
                elif attribute.name == "value_floats":
                    attribute.floats[:] = np.array(attribute.floats, np.float16).tolist()
        if isinstance(owner, onnx.GraphProto):
            for tensor in owner.initializer:
                round_tensor(tensor)


def answers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds)
    return results


def low_model(model: onnx.ModelProto, to: str = "fp16") -> onnx.ModelProto:
    return mezzo.convert(
        model, to=to, policy="aggressive", target="any", io="low", opset="keep", fuse="none", check=False
    ).model


def widened(low: onnx.ModelProto) -> onnx.ModelProto | None:
    """A random model in FP32; None if it has quantized operators, or nothing low."""
    if any(node.op_type.endswith("QuantizeLinear") for owner in graphs(low) for node in owner.node):
        return None
    if low_parts(low):
        return mezzo.convert(low, to="fp32").model
    with pytest.raises(InputError, match=NOTHING_LOW):
        mezzo.convert(low, to="fp32")
    return None


@law(60)
@given(seed=seeds())
def test_nothing_low_is_left_of_any_model(seed: tuple[int, int]) -> None:
    model = random_model(random.Random(seed[0]), seed[1])
    low = low_model(model, "bf16" if seed[0] % 3 == 0 else "fp16")
    back = widened(low)
    if back is None:
        return
    assert low_parts(back) == []
    onnx.checker.check_model(back, full_check=True)
    assert [port.name for port in back.graph.output] == [port.name for port in low.graph.output]


@law(60)
@given(seed=seeds())
def test_answers_are_those_of_the_fp32_model_with_weights_that_fp16_holds(seed: tuple[int, int]) -> None:
    model = random_model(random.Random(seed[0]), seed[1], is_tame=True)
    on_grid(model)
    back = widened(low_model(model))
    if back is None:
        return
    feeds = random_feeds(model, random.Random(seed[0]))
    for left, right in zip(answers(model, feeds), answers(back, feeds), strict=True):
        np.testing.assert_array_equal(left, right)  # bit for bit: the same operators on the same numbers


def overflowing(largest: float = 400.0) -> onnx.ModelProto:
    """An FP16 file with a norm written out, whose square passes 65504 on ordinary data: zeros in place of answers."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float16[N,4] x) => (float16[N,2] y)
        <float16[4,2] w, float16[N,2] h>
        { [mm] h = MatMul(x, w)
          [square] q = Mul(h, h)
          [mean] m = ReduceMean<axes=[-1]>(q)
          [root] s = Sqrt(m)
          [norm] y = Div(h, s) }""")
    numbers = np.array([[largest, 1], [2, 3], [4, 5], [6, 7]], np.float16)
    model.graph.initializer.append(numpy_helper.from_array(numbers, "w"))
    return model


def data() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)}


def test_a_broken_file_is_planned_anew_with_data() -> None:
    broken = overflowing()
    back = mezzo.convert(broken, to="fp32")
    exact = answers(back.model, data())[0]
    wrong = mezzo.emulate(broken, {"x": data()["x"].astype(np.float16)})["y"]
    assert (wrong == 0.0).any() and (exact != 0.0).all()
    anew = mezzo.convert(back.model, to="fp16", data=data())
    assert anew.measured is not None and anew.measured.ruling is not None and anew.measured.ruling.value == "same"


def test_a_file_that_overflows_itself_is_no_judge_of_what_is_made_of_it() -> None:
    converted = mezzo.convert(overflowing(), to="fp16", data={"x": data()["x"].astype(np.float16)})
    assert "the file itself overflows: 8.827e+05 at square" in repr(converted)
    assert 'to="fp32" widens it' in repr(converted)


@pytest.mark.parametrize(("to", "held", "other"), [("bf16", "f16", "fp16"), ("fp16", "bf16", "bf16")])
def test_a_low_file_goes_to_the_other_low_float_by_fp32(to: str, held: str, other: str) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 22]>
        g (float[N,4] x) => (float[N,4] y, float[N,4] z)
        <float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4,4] v = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,100000}>
        { [first] y = MatMul(x, w) [second] z = MatMul(y, v) }""")
    low = mezzo.convert(model, to=other, target="any", policy="aggressive", exclude=["second"], out_of_range="clamp")
    alone = mezzo.convert(model, to=other, target="any", policy="aggressive", out_of_range="clamp")
    direct = mezzo.convert(alone.model, to=to)
    first = (
        f'the model came with 2 nodes in {held} and none in f32; convert it with to="fp32" first, or export it in f32'
    )
    assert first in repr(direct)
    back = mezzo.convert(low.model, to="fp32").model
    there = mezzo.convert(back, to=to, target="any", policy="aggressive")
    levels = {node.name: str(node.precision.output) for node in there.plan.nodes if node.kind == "op"}
    # FP16 has no 100000, so what reads it stays.
    wanted = {"bf16": {"first": "bf16", "second": "bf16"}, "fp16": {"first": "f16", "second": "f32"}}
    assert levels == wanted[to]


def test_what_an_earlier_conversion_has_recorded_is_forgotten(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,4] x) => (float[N,4] y) { [square] q = Mul(x, x) [sm] y = Softmax<axis=-1>(q) }""")
    mezzo.convert(model, tmp_path / "low.onnx", to="fp16", policy="aggressive", io="low")
    mezzo.convert(tmp_path / "low.onnx", tmp_path / "back.onnx", to="fp32")
    assert not onnx.load(tmp_path / "back.onnx").metadata_props
    anew = mezzo.convert(tmp_path / "back.onnx", to="fp16", policy="conservative")
    assert not [note for note in anew.plan.notes if "decided" in note or "heeded" in note]


def test_inputs_and_outputs_become_fp32_unless_they_are_kept() -> None:
    def ports(**options: object) -> list[int]:
        model = mezzo.convert(overflowing(), to="fp32", **options).model  # type: ignore[arg-type]  # some io
        assert not [part for part in low_parts(model) if part not in ("x", "y", "Cast y")]
        return [port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output)]

    low, high = TensorProto.FLOAT16, TensorProto.FLOAT
    assert ports() == [high, high]
    assert ports(io="keep") == [low, low]
    assert ports(io="follow") == [low, high]
    assert ports(io={"x": "fp16", "y": "fp32"}) == [low, high]
    assert ports(io={"y": "fp16"}) == [high, low]


def test_an_input_with_a_default_keeps_both_or_widens_both() -> None:
    model = (
        onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float16[2] x, float16[2] d) => (float16[2] y) <float16[2] d = {15360, 16384}> { y = Add(x, d) }""")
    )  # the bits of 1 and 2
    for io, low, dtype in (("keep", TensorProto.FLOAT16, np.float16), (None, TensorProto.FLOAT, np.float32)):
        back = mezzo.convert(model, to="fp32", io=io).model
        onnx.checker.check_model(back, full_check=True)
        assert [port.type.tensor_type.elem_type for port in (*back.graph.input, *back.graph.output)] == [low] * 3
        feeds = {"x": np.array([1, 2], dtype)}
        np.testing.assert_array_equal(answers(back, feeds)[0], answers(back, {**feeds, "d": feeds["x"]})[0])


def test_sequences_sparse_weights_and_weights_of_bodies_are_widened() -> None:
    low, port = TensorProto.FLOAT16, helper.make_tensor_value_info
    numbers = helper.make_tensor("", low, [1], np.array([2.0], np.float16).tobytes(), raw=True)
    sparse = helper.make_sparse_tensor(numbers, helper.make_tensor("", TensorProto.INT64, [1], [1]), [4])
    sparse.values.name = "thin"
    inner = numpy_helper.from_array(np.ones(4, np.float16), "inner")
    branches = [
        helper.make_graph([helper.make_node("Add", ["x", "inner"], [name])], name, [], [port(name, low, [4])], [inner])
        for name in ("one", "two")
    ]
    nodes = [
        helper.make_node("If", ["yes"], ["c"], "choose", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Add", ["c", "thin"], ["t"], "sum"),
        helper.make_node("SequenceEmpty", [], ["none"], "empty", dtype=low),
        helper.make_node("SequenceInsert", ["none", "t"], ["s"], "insert"),
    ]
    output = helper.make_tensor_sequence_value_info("s", low, None)
    graph = helper.make_graph(
        nodes, "g", [port("x", low, [4]), port("yes", TensorProto.BOOL, [])], [output], sparse_initializer=[sparse]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    back = mezzo.convert(model, to="fp32").model
    assert low_parts(back) == [] and str(output.type).replace("10", "1") == str(back.graph.output[0].type)
    ((answer,),) = answers(back, {"x": np.zeros(4, np.float32), "yes": np.asarray(True)})
    np.testing.assert_array_equal(answer, np.array([1, 3, 1, 1], np.float32))


def test_weights_that_fp16_has_damaged_are_named() -> None:
    notes = mezzo.convert(overflowing(np.inf), to="fp32").plan.notes
    assert "1 weight holds infinities, which stay: w; only an export in FP32 has the numbers" in notes
    notes = mezzo.convert(overflowing(65504.0), to="fp32").plan.notes
    assert "1 weight holds 65504, the largest f16, and may have been clamped to it: w" in notes
    assert not [note for note in mezzo.convert(overflowing(), to="fp32").plan.notes if "weight" in note]


def test_weights_in_files_are_widened_as_they_are_written(tmp_path: Path) -> None:
    numbers = (np.random.default_rng(1).standard_normal((256, 64))).astype(ml_dtypes.bfloat16)
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, (256, 64), numbers.tobytes(), raw=True)
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], "g", [port("x", TensorProto.BFLOAT16, ["N", 256])],
        [port("y", TensorProto.BFLOAT16, ["N", 64])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    mezzo.convert(tmp_path / "m.onnx", tmp_path / "back.onnx", to="fp32")
    back = onnx.load(tmp_path / "back.onnx")
    assert low_parts(back) == []
    np.testing.assert_array_equal(numpy_helper.to_array(back.graph.initializer[0]), numbers.astype(np.float32))


REFUSED = {
    "quantized": (
        "g (float16[4] x, float16 s) => (float16[4] y) { [q] i = QuantizeLinear(x, s) y = DequantizeLinear(i, s) }",
        "node 'q' (QuantizeLinear) is quantized",
    ),
    "custom": (
        "g (float16[4] x) => (float16[4] y) { [own] y = mine.Twice(x) }", "node 'own' (Twice) is of domain 'mine'",
    ),
    "a type that a call gives to a function": (
        'g (float[4] x) => (float16[4] y) { y = own.Narrow<kind = 10>(x) }'
        ' <domain: "own", opset_import: ["" : 19]> Narrow <kind> (v) => (r) { r = Cast<to: int = @kind>(v) }',
        "node 'Narrow:y/Cast:r' (Cast) still makes f16",
    ),
    "f32": ("g (float[4] x) => (float[4] y) { y = Relu(x) }", NOTHING_LOW),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_widened_is_refused_in_one_line(case: str) -> None:
    text, message = REFUSED[case]
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19, "mine" : 1, "own" : 1]> {text}')
    with pytest.raises(InputError) as caught:
        mezzo.convert(model, to="fp32")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"io": "low"}, 'io="low" asks for low inputs and outputs'),
        ({"io": {"z": "fp32"}}, "io 'z' is no input or output of the model"),
        ({"io": {"x": "bf16"}}, "io of 'x' is bf16: 'x' is f16"),
        ({"exclude": ["mm"]}, "exclude is given with"),
        ({"data": "random"}, "data is given with"),
    ],
)
def test_options_that_have_no_meaning_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        mezzo.convert(overflowing(), to="fp32", **options)  # type: ignore[arg-type]  # some of them
    assert message in str(caught.value) and "\n" not in str(caught.value)
