"""Products that find the range of their data as they run: what files say, what is fused, what emulation answers."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest
from integer_kernels import Style, dynamic_product
from onnx.reference import ReferenceEvaluator
from quantized_cases import make_sparse, open_model

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.options.request import Request
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import DType
from mezzo.onnx.profile.variants import label_of
from mezzo.planner.choices.quantized_parameters import quantized_ports
from mezzo.planner.options import read_options
from mezzo.quantize.arithmetic.arithmetic import quantize
from mezzo.quantize.calibration import without_data

TARGET = "onnxruntime-cpu"
# A kernel that adds to a product as it scales it rounds once where the file rounds twice.
_FUSED = 2 * float(np.finfo(np.float32).eps)
_FORMS = {
    "plain": ("MatMul(x, w)", (3, 5), 2),
    "batch": ("MatMul(x, w)", (2, 3, 5), 2),
    "weights of rank 3": ("MatMul(x, w)", (2, 3, 5), 3),
    "a vector of weights": ("MatMul(x, w)", (3, 5), 1),
    "Gemm": ("Gemm(x, w, b)", (3, 5), 2),
    "Gemm without a bias": ("Gemm(x, w)", (3, 5), 2),
    "Gemm turned": ("Gemm<transB=1>(x, w, b)", (3, 5), 2),
}
by_form = pytest.mark.parametrize("form", _FORMS)
by_seed = pytest.mark.parametrize("seed", range(4))


class Case(NamedTuple):
    """A model of one product, what it is fed, and the arrays in it."""

    model: onnx.ModelProto
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    is_turned: bool


def case_of(form: str, seed: int) -> Case:
    text, shape, rank = _FORMS[form]
    rng = np.random.default_rng(seed)
    inner, columns = shape[-1], int(rng.integers(2, 9))
    is_turned = "transB" in text
    sizes = {1: (inner,), 2: (columns, inner) if is_turned else (inner, columns), 3: (shape[0], inner, columns)}
    w = rng.standard_normal(sizes[rank]).astype(np.float32)
    b = rng.standard_normal(columns).astype(np.float32) if "b)" in text else None
    declared, made = ",".join(map(str, shape)), ",".join("NMK"[: len(shape) - (rank == 1)])
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 17]>\ng (float[{declared}] x) => (float[{made}] y) {{ [a] y = {text} }}'
    )
    for name, array in (("w", w), *([] if b is None else [("b", b)])):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    x = (rng.standard_normal(shape) * rng.uniform(0.1, 30) + rng.uniform(-3, 3)).astype(np.float32)
    return Case(model, x, w, b, is_turned)


def convert(model: onnx.ModelProto, **options: str) -> mezzo.Converted:
    return mezzo.convert(model, to=options.pop("to", "int8"), target=TARGET, calibrator="none", **options)


def wanted(case: Case, result: mezzo.Converted) -> np.ndarray:
    """What numpy makes of it by the parameters of the plan."""
    how = dict(result.plan.quantized)["w"]
    integers = quantize(case.w, how)
    integers = integers.T if case.is_turned else integers
    made = dynamic_product(case.x, integers, np.array(how.scales) if how.axis is not None else how.scales[0], STYLE)
    return made if case.b is None else made + case.b


STYLE = Style.REFERENCE


@by_form
@by_seed
def test_file_answers_as_its_kernels_in_numpy_by_the_reference(form: str, seed: int) -> None:
    case = case_of(form, seed)
    result = convert(case.model)
    assert result.plan.dynamic == ("a",)
    (got,) = ReferenceEvaluator(result.model).run(None, {"x": case.x})
    np.testing.assert_array_equal(got, wanted(case, result), err_msg=f"seed {seed}")


@by_form
@by_seed
def test_emulation_gives_the_same_bits(form: str, seed: int) -> None:
    case = case_of(form, seed)
    result = convert(case.model)
    got = emulate(case.model, {"x": case.x}, {"a"})["y"]
    np.testing.assert_array_equal(got, wanted(case, result), err_msg=f"seed {seed}")


def emulate(model: onnx.ModelProto, feeds: dict[str, np.ndarray], quantized: set[str]) -> dict[str, np.ndarray]:
    """The model with nodes in INT8, by switches."""
    opened, options = without_data(open_model(model), read_options(Request(to="int8", calibrator="none")))
    reading, judged = judge_model(opened, options)
    nodes = {node.id: DType.QUANTIZED8 for node in reading.graph.nodes if node.name in quantized}
    ports = quantized_ports(judged.problem)
    emulator = lab_of(opened).emulator(opened.read(DType.QUANTIZED8), [DType.QUANTIZED8], quantized=ports)
    return emulator.run(feeds, nodes)


@by_form
def test_onnxruntime_runs_it_as_one_kernel(form: str, tmp_path: Path) -> None:
    case = case_of(form, 5)
    result = convert(case.model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = f"{tmp_path}/run.onnx", 4
    session = onnxruntime.InferenceSession(
        result.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (got,) = session.run(None, {"x": case.x})
    assert [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node] == [
        "DynamicQuantizeMatMul"
    ]
    right = wanted(case, result)
    assert np.abs(got - right).max() <= _FUSED * np.abs(right).max()


def test_what_reads_the_same_floats_shares_their_integers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[4,6] x) => (float[4,3] y, float[4,3] z)
        { [a] h = MatMul(x, w) [c] y = Add(h, b) [d] k = MatMul(x, v) [e] z = Add(k, b) }""")
    for name, shape in (("w", (6, 3)), ("v", (6, 3)), ("b", (3,))):
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    result = convert(model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = f"{tmp_path}/run.onnx", 4
    onnxruntime.InferenceSession(result.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    run = sorted(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)
    assert run == ["DynamicQuantizeLinear", "MatMulIntegerToFloat", "MatMulIntegerToFloat"]


def test_saved_plan_holds_them_and_is_replayed_without_data(tmp_path: Path) -> None:
    case = case_of("Gemm turned", 2)
    result = convert(case.model)
    mezzo.save_plan(result.plan, tmp_path / "plan.json")
    again = mezzo.convert(case.model, plan=tmp_path / "plan.json")
    assert mezzo.load_plan(tmp_path / "plan.json").dynamic == ("a",)
    assert again.model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)
    planned = mezzo.plan(case.model, to="int8", target=TARGET, calibrator="none")
    third = mezzo.convert(case.model, plan=planned)
    assert third.model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ('["b"]', "dynamic names 'b', and no node is called so"),
        ('"a"', "dynamic is 'a', wanted a list of the names of nodes"),
        ("[]", "node 'a' (MatMul) runs in int8, but has to stay f32"),
    ],
)
def test_plan_that_names_others_is_refused(names: str, message: str, tmp_path: Path) -> None:
    case, path = case_of("plain", 2), tmp_path / "plan.json"
    mezzo.save_plan(convert(case.model).plan, path)
    text = path.read_text()
    start, end = text.index('"dynamic": ') + len('"dynamic": '), text.index("]", text.index('"dynamic": ')) + 1
    path.write_text(text[:start] + names + text[end:])
    with pytest.raises(mezzo.InputError) as told:
        mezzo.convert(case.model, plan=path)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


def test_data_only_judges(tmp_path: Path) -> None:
    case = case_of("Gemm", 3)
    result = mezzo.convert(case.model, to="int8", target=TARGET, calibrator="none", data=[{"x": case.x}])
    assert result.model.SerializeToString(deterministic=True) == convert(case.model).model.SerializeToString(
        deterministic=True
    )
    assert not [note for note in result.plan.notes if note.startswith("scales are from")]
    late = "products that find the range of what they read as the model runs: 1; a range is that of the whole tensor"
    assert [note for note in result.plan.notes if note.startswith(late)]
    assert "the range of what it reads is found as it runs" in result.plan.by_name["a"].because


def test_weight_that_others_read_as_floats_keeps_them() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[3,4] x) => (float[3,2] y, float[4,2] z, float[3,2] q)
        <float[4,2] w = {1,2,3,4,5,6,7,8}, float[4,2] v = {1,2,3,4,5,6,7,8}>
        { [a] y = MatMul(x, w) [s] z = Sin(w) [b] q = MatMul(x, v) }""")
    held = {tensor.name: tensor.data_type for tensor in convert(model).model.graph.initializer}
    assert held["w"] == onnx.TensorProto.FLOAT and held["w_quantized"] == onnx.TensorProto.INT8


def test_sparse_weight_is_made_of_integers_as_the_model_runs() -> None:
    case = case_of("plain", 6)
    make_sparse(case.model.graph, "w")
    result = convert(case.model)
    assert result.plan.dynamic == ("a",)
    session = onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    right = wanted(case, result)
    assert np.abs(session.run(None, {"x": case.x})[0] - right).max() <= _FUSED * np.abs(right).max()
    np.testing.assert_array_equal(emulate(case.model, {"x": case.x}, {"a"})["y"], right)


@pytest.mark.parametrize("numbers", [np.zeros((3, 5), np.float32), np.full((3, 5), 2.5, np.float32)])
def test_data_of_one_number_is_held(numbers: np.ndarray) -> None:
    """Zeros span nothing; what is constant spans from zero to it, and is held exactly."""
    case = case_of("plain", 7)._replace(x=numbers)
    result = convert(case.model)
    session = onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": numbers})
    right = wanted(case, result)
    assert np.isfinite(got).all() and np.abs(got - right).max() <= _FUSED * np.abs(right).max()


def test_without_data_nothing_but_such_products_is_quantized() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,4,8,8] x) => (float[1,2] y)
        <float[4,4,1,1] k = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4,2] w = {1,2,3,4,5,6,7,8}>
        { [conv] c = Conv(x, k) [pool] p = GlobalAveragePool(c) [flat] f = Flatten(p) [a] y = MatMul(f, w) }""")
    for mode in ("smart", "full"):
        result = convert(model, quantize_mode=mode)
        low = [row.name for row in result.plan.nodes if row.precision.compute is DType.QUANTIZED8]
        assert low == ["a"] == [*result.plan.dynamic]


@pytest.mark.parametrize("target", ["openvino-cpu", "tensorrt"])
def test_target_that_finds_no_ranges_is_refused_in_one_line(target: str) -> None:
    with pytest.raises(mezzo.InputError) as told:
        mezzo.convert(case_of("plain", 1).model, to="int8", target=target, calibrator="none")
    assert str(told.value) == (
        f'calibrator="none" lets ranges be found at run time, and the table of target {target!r} names no kernel that '
        "does so in int8; choose onnxruntime-cpu with target, or give data and another calibrator"
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [("none=3", "calibrator 'none' takes no setting, and '3' was given; write none"), ("nome", "did you mean 'none'?")],
)
def test_word_that_asks_for_no_such_thing_is_named(word: str, message: str) -> None:
    with pytest.raises(mezzo.InputError, match=r"^calibrator") as told:
        mezzo.convert(case_of("plain", 1).model, to="int8", target=TARGET, calibrator=word)
    assert message in str(told.value)


def test_float_formats_have_no_use_for_it() -> None:
    case = case_of("plain", 1)
    assert not mezzo.convert(case.model, to="fp16", calibrator="none").plan.dynamic


_BRANCHES = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[3,5] x, bool c) => (float[3,4] y, float[3,4] z) {
    [told] z = MatMul(x, w)
    [choice] y = If (c) <
        then_branch = yes () => (float[3,4] a) { [inside] h = MatMul(x, w) [turn] a = Neg(h) },
        else_branch = no () => (float[3,4] n) { [other] n = MatMul(x, w) }> }"""


def test_with_data_what_none_told_finds_its_range_beside_what_is_told(tmp_path: Path) -> None:
    """Values of bodies are not watched; one weight is stored once for both kinds of readers."""
    rng = np.random.default_rng(4)
    model = onnx.parser.parse_model(_BRANCHES.replace("h = MatMul(x, w)", "s = Sin(x) [late] h = MatMul(s, w)"))
    w = rng.standard_normal((5, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    x = rng.standard_normal((3, 5)).astype(np.float32)
    feeds = {"x": x, "c": np.array(True)}
    result = mezzo.convert(model, to="int8", target=TARGET, data=[feeds], include=["told", "choice/*"])
    assert "choice/then/late" in result.plan.dynamic and "told" not in result.plan.dynamic
    assert result.plan.by_name["told"].precision.compute is DType.QUANTIZED8
    stored = [tensor.name for tensor in result.model.graph.initializer if tensor.data_type == onnx.TensorProto.INT8]
    assert [name for name in stored if name.startswith("w_quantized")] == ["w_quantized"]
    session = onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, z = session.run(["y", "z"], feeds)
    for got, right in ((y, -np.sin(x) @ w), (z, x @ w)):
        # Eight bits of both operands: their steps add up over five products to a few hundredths of the largest.
        assert np.abs(got - right).max() <= 0.05 * np.abs(right).max()
    mezzo.save_plan(result.plan, tmp_path / "plan.json")
    again = mezzo.convert(model, plan=tmp_path / "plan.json")
    assert again.model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)


def test_products_in_a_loop_find_ranges_in_each_turn() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[2,4] x, int64 n, bool c) => (float[2,4] y) {
        [turns] y = Loop (n, c, x) <body = turn (int64 i, bool go, float[2,4] s) => (bool on, float[2,4] t)
            { on = Identity(go) [inside] t = MatMul(s, w) }> }""")
    rng = np.random.default_rng(8)
    w = rng.standard_normal((4, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    inside = "turns/body/inside"
    result = mezzo.convert(model, to="int8", target=TARGET, calibrator="none", include=[inside])
    assert result.plan.dynamic == (inside,)
    x = rng.standard_normal((2, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(result.model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"x": x, "n": np.array(3), "c": np.array(True)})
    how = dict(result.plan.quantized)["w"]
    right = x
    for _ in range(3):
        right = dynamic_product(right, quantize(w, how), how.scales, STYLE)
    np.testing.assert_allclose(got, right, rtol=0, atol=3 * _FUSED * np.abs(right).max())


def test_what_a_product_is_written_in_is_timed_as_the_product() -> None:
    case = case_of("Gemm turned", 1)
    opened, options = without_data(open_model(case.model), read_options(Request(to="int8", calibrator="none")))
    edits = convert_model(opened, options, None)[0].plan.edits
    profiler = lab_of(opened).profiler
    assert profiler is not None
    reading = opened.read(DType.QUANTIZED8)
    labels = {label_of(node) for node in profiler.variant(reading, edits).graph.node}
    assert labels == {str(reading.graph.by_name["a"])}


def test_weight_that_others_read_in_fp16_is_stored_so_and_as_integers() -> None:
    """Nobody reads its FP32 numbers, so it keeps its name in FP16."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
        g (float[64,64] x) => (float[64,64] y, float[64,64] z)
        { [a] y = MatMul(x, w) [b] s = Sin(x) [c] t = Mul(s, w) [d] z = Sin(t) }""")
    w = np.random.default_rng(8).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    result = mezzo.convert(model, to="int8,fp16", target=TARGET, calibrator="none", include=["b", "c", "d"])
    held = {tensor.name: tensor.data_type for tensor in result.model.graph.initializer}
    kinds = onnx.TensorProto
    assert held == {"w": kinds.FLOAT16, "w_quantized": kinds.INT8, "w_scale": kinds.FLOAT}
