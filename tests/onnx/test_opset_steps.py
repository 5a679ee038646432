"""Steps of the opset keep every answer: the raised model gives what the model gave, in any scope, of any rank."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
import onnx.parser
import onnx.version_converter
import pytest
from onnx import TensorProto, helper
from opset_cases import CASES, Case
from sweeps import swept

import mezzo
from mezzo.common.errors import ContractError
from mezzo.common.machine import find_machine
from mezzo.onnx.edit.opset import default_opset, reach, set_opset
from mezzo.onnx.opset_steps.table import STEPS
from mezzo.onnx.opset_steps.upgrade import keeps_meaning
from mezzo.onnx.run.session import native_session
from mezzo.report.records.headlines import head_plan

# The newest opset that ONNX Runtime 1.31 and 1.32 load.
_NEWEST = 25
# Other kernels and other operators add in another order: some roundings of the output's largest number.
_TOLERANCE = 16 * np.finfo(np.float32).eps


# What takes numbers or ranks that a function, or a rank that nobody knows, hides.
_TAKES_KNOWN = frozenset({"tile_of_one_axis"})


def _model(case: Case, dims: str) -> onnx.ModelProto:
    """The case's model; `dims` are those that `x` declares, in brackets, nothing for an unknown rank."""
    text = f'<ir_version: 8, opset_import: ["" : {case.since}]>\ng (float{dims} x) => (float y)\n{case.weights}\n'
    model = onnx.parser.parse_model(f"{text}{{\n {case.body}\n}}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _known(case: Case) -> onnx.ModelProto:
    return _model(case, f"[{','.join(map(str, case.shape))}]")


def _symbolic(case: Case) -> onnx.ModelProto:
    return _model(case, f"[{','.join('NCHW'[: len(case.shape)])}]")


def _of_unknown_rank(case: Case) -> onnx.ModelProto:
    """The case on what a Reshape to a shape of any length makes."""
    model = _model(case, "[A]")
    model.graph.input[0].name = "flat"
    model.graph.input.append(helper.make_tensor_value_info("sizes", TensorProto.INT64, ["R"]))
    model.graph.node.insert(0, helper.make_node("Reshape", ["flat", "sizes"], ["x"]))
    return model


def _in_a_branch(case: Case) -> onnx.ModelProto:
    """The case as both branches of an If, whose x is the graph's: the same names stand in both."""
    model = _known(case)
    graph = model.graph
    branch = helper.make_graph(list(graph.node), "branch", [], list(graph.output), list(graph.initializer))
    test = helper.make_node("Constant", [], ["test"], value=helper.make_tensor("v", TensorProto.BOOL, [], [True]))
    choice = helper.make_node("If", ["test"], ["result"], "choice", then_branch=branch, else_branch=branch)
    del graph.node[:], graph.output[:], graph.initializer[:]
    graph.node.extend([test, choice])
    graph.output.append(helper.make_tensor_value_info("result", TensorProto.FLOAT, None))
    return model


def _in_a_function(case: Case) -> onnx.ModelProto:
    """The case as a function of x and its weights."""
    model = _known(case)
    graph = model.graph
    inputs = ["x", *(tensor.name for tensor in graph.initializer)]
    imports = [helper.make_opsetid("", case.since)]
    function = helper.make_function("local", "Body", inputs, ["y"], list(graph.node), imports)
    del graph.node[:]
    graph.node.append(helper.make_node("Body", inputs, ["y"], "call", domain="local"))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    return model


def _draw(case: Case) -> np.ndarray:
    return np.random.default_rng(7).normal(size=case.shape).astype(np.float32)


def _answer(model: onnx.ModelProto, case: Case) -> np.ndarray:
    x = _draw(case)
    feeds = {"x": x, "flat": x.reshape(-1), "sizes": np.array(case.shape, np.int64)}
    answers = native_session(model).run({port.name: feeds[port.name] for port in model.graph.input})
    return np.asarray(answers[model.graph.output[0].name])


def _assert_alike(after: np.ndarray, before: np.ndarray, case: Case) -> None:
    if case.is_exact:
        np.testing.assert_array_equal(after, before)
    else:
        np.testing.assert_allclose(after, before, rtol=0, atol=_TOLERANCE * max(1.0, float(np.abs(before).max())))


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("spell", [_known, _symbolic, _of_unknown_rank, _in_a_branch, _in_a_function])
def test_a_step_keeps_every_answer(name: str, spell: Callable[[Case], onnx.ModelProto]) -> None:
    case = CASES[name]
    if spell is _of_unknown_rank and case.since < 5:
        pytest.skip("Reshape takes its shape as an operand from opset 5 on")
    model = spell(case)
    before = _answer(model, case) if case.meaning is None else case.meaning(_draw(case))
    answer = model.graph.output[0]
    answer.CopyFrom(helper.make_tensor_value_info(answer.name, TensorProto.FLOAT, [None] * before.ndim))
    reached, upgraded = reach(model, _NEWEST)
    if reached < _NEWEST and name in _TAKES_KNOWN and spell in (_of_unknown_rank, _in_a_function):
        pytest.skip(f"takes what is not known here: {upgraded.obstacles[0].because}")
    assert not upgraded.obstacles
    assert default_opset(upgraded.model) == _NEWEST
    onnx.checker.check_model(upgraded.model, full_check=True)
    _assert_alike(_answer(upgraded.model, case), before, case)


def _converted(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The same by ONNX's own converter; None where it has no adapter, or makes no valid model."""
    try:
        converted = onnx.version_converter.convert_version(model, _NEWEST)
        onnx.checker.check_model(converted, full_check=True)
    except Exception:  # noqa: BLE001  it says so in many ways
        return None
    return converted


# What the converter of onnx 1.23 gets wrong, by the specification and by ONNX Runtime.
_LEFT_AS_HALF_PIXELS = "it leaves out that coordinates were asymmetric before opset 11"
_ONNX_IS_WRONG = {
    "hardmax_of_several": "it takes Hardmax over one axis, and has an adapter for Softmax and LogSoftmax alone",
    "resize_linear": _LEFT_AS_HALF_PIXELS,
    "resize_linear_smaller": _LEFT_AS_HALF_PIXELS,
    "resize_smaller": _LEFT_AS_HALF_PIXELS,
    "sub_at_two_axes": "it puts the axis of 1 between those of the second operand",
    "upsample_linear_of_7": _LEFT_AS_HALF_PIXELS,
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_step_gives_what_the_converter_of_onnx_gives(name: str) -> None:
    case = CASES[name]
    model = onnx.shape_inference.infer_shapes(_known(case))
    converted = _converted(model)
    if converted is None:
        pytest.skip("ONNX has no conversion for it")
    try:
        theirs = _answer(converted, case)
    except ContractError:
        pytest.skip("no engine runs what ONNX makes of it")
    ours = _answer(reach(model, _NEWEST)[1].model, case)
    if name in _ONNX_IS_WRONG:
        assert not np.allclose(ours, theirs), "ONNX is right by now: strike it off"
    else:
        _assert_alike(ours, theirs, case)


def _history(op: str) -> list[onnx.defs.OpSchema]:
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
    return sorted(schemas, key=lambda schema: schema.since_version)


def test_every_version_of_every_operator_can_be_left() -> None:
    ops = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    steps = [(op, schema.since_version) for op in sorted(ops) for schema in _history(op)[1:]]
    missing = [step for step in steps if step[1] not in STEPS.get(step[0], ()) and not keeps_meaning(*step)]
    assert missing == []


def test_every_row_is_of_a_version_of_its_operator() -> None:
    on_trial = {9, 10}  # of operators that ONNX took back, or brought back as others
    for op, rows in STEPS.items():
        versions = {schema.since_version for schema in _history(op)}
        assert set(rows) <= (versions or on_trial), op
        assert list(rows) == sorted(rows), op
    assert list(STEPS) == sorted(STEPS)


@pytest.mark.parametrize(
    ("since", "body", "blocked"),
    [
        (7, "y, k = Dropout<ratio=0.7>(x)\n z = Identity(k)", ("Dropout", 10)),  # somebody reads the mask
        (9, "y, m = BatchNormalization(x, c, c, c, c)", ("BatchNormalization", 14)),
        (6, "y = Dropout<is_test=0>(x)", ("Dropout", 7)),
        (8, "y = ATen(x)", ("ATen", 10)),
        (
            11,
            'y = Resize<mode="linear", coordinate_transformation_mode="tf_half_pixel_for_nn">(x, c, c)',
            ("Resize", 13),
        ),
    ],
)
def test_a_step_that_would_change_an_answer_is_not_taken(since: int, body: str, blocked: tuple[str, int]) -> None:
    model = _known(Case(since, body, weights="<float[3] c = {1,2,3}>"))
    before = model.SerializeToString(deterministic=True)
    upgraded = reach(model, _NEWEST)[1]
    assert [(obstacle.op, obstacle.version) for obstacle in upgraded.obstacles] == [blocked]
    assert default_opset(upgraded.model) == blocked[1] - 1
    assert model.SerializeToString(deterministic=True) == before


# Operators of opset 9 that keep [2, 3, 4, 6], in what their steps rewrite.
_LINKS = (
    "{y} = Softmax<axis={axis}>({x})",
    "{y} = LogSoftmax<axis={axis}>({x})",
    "{y} = Clip<min=-0.75, max=0.5>({x})",
    "{y}p = Pad<pads=[0,0,1,2,0,0,0,1], value=0.5>({x})\n {y} = Slice<starts=[1,2], ends=[5,-1], axes=[2,3]>({y}p)",
    '{y}u = Upsample<mode="nearest">({x}, up)\n {y} = AveragePool<kernel_shape=[2,2], strides=[2,2]>({y}u)',
    "{y}r = ReduceSum<axes=[{axis}]>({x})\n {y} = Add({x}, {y}r)",
    "{y}r = ReduceMax<axes=[{axis}], keepdims=0>({x})\n {y}q = Unsqueeze<axes=[{axis}]>({y}r)\n {y} = Sub({x}, {y}q)",
    "{y}a, {y}b = Split<axis=3>({x})\n {y} = Concat<axis=3>({y}b, {y}a)",
    "{y}q = Unsqueeze<axes=[{axis}]>({x})\n {y} = Squeeze<axes=[{axis}]>({y}q)",
    "{y}v, {y}i = TopK<axis=3, k=6>({x})\n {y} = Identity({y}v)",
    "{y}k = Dropout({x})\n {y} = Erf({y}k)",
    "{y} = Scatter<axis=3>({x}, places, numbers)",
)


def _chain(seed: int) -> onnx.ModelProto:
    """Six links, one behind the other; every second seed behind a Reshape that hides the rank."""
    random = np.random.default_rng(seed)
    names = ["x", *(f"v{index}" for index in range(5)), "y"]
    links = [
        _LINKS[random.integers(len(_LINKS))].format(x=before, y=after, axis=random.integers(4))
        for before, after in pairwise(names)
    ]
    weights = "<float[4] up = {1,1,2,2}, int64[1,2,1,2] places = {0,2,1,0}, float[1,2,1,2] numbers = {9,8,7,6}>"
    case = Case(9, "\n ".join(links), _CHAINED.shape, weights)
    return _of_unknown_rank(case) if seed % 2 else _known(case)


_CHAINED = Case(9, "", (2, 3, 4, 6), is_exact=False)


@pytest.mark.parametrize("until", [13, 18, _NEWEST])
@pytest.mark.parametrize("seed", range(swept(16)))
def test_chains_of_old_operators_keep_their_answers(seed: int, until: int) -> None:
    model = _chain(seed)
    reached, upgraded = reach(model, until)
    assert reached == until, f"seed {seed}: {upgraded.obstacles}"
    _assert_alike(_answer(upgraded.model, _CHAINED), _answer(model, _CHAINED), _CHAINED)


def test_raising_by_steps_is_raising_at_once() -> None:
    model = _chain(4)
    at_once = reach(model, _NEWEST)[1].model
    by_steps = reach(reach(model, 12)[1].model, _NEWEST)[1].model
    assert [node.op_type for node in at_once.graph.node] == [node.op_type for node in by_steps.graph.node]
    assert reach(at_once, _NEWEST)[0] == _NEWEST


def test_the_first_screen_names_the_node_that_keeps_the_opset() -> None:
    body = "a = Relu(x)\n [drop] b, k = Dropout(a)\n y = Relu(b)\n m = Identity(k)"
    model = onnx.shape_inference.infer_shapes(_known(Case(11, body)))
    model.graph.output[0].type.tensor_type.shape.dim.extend(model.graph.input[0].type.tensor_type.shape.dim)
    planned = mezzo.plan(model, to="bf16", policy="aggressive", target="openvino-cpu")
    gains = " ".join(head_plan("m", planned, find_machine()).gains)
    assert (
        "opset 13 is out of reach, which keeps 3 nodes out of bf16: node 'drop' (Dropout) cannot go to opset 12"
        in gains
    )
    assert "export the model at opset 13 or newer" in gains


def test_a_model_that_rises_names_no_node() -> None:
    model = onnx.shape_inference.infer_shapes(_known(CASES["softmax_of_minus_two"]))
    assert mezzo.plan(model, to="bf16", target="openvino-cpu").obstacle is None


def test_shapes_that_a_file_states_are_not_believed() -> None:
    case = CASES["softmax_of_no_axis"]
    model = _known(case)
    model.graph.node.insert(0, helper.make_node("Identity", ["x"], ["i"]))
    model.graph.node[1].input[0] = "i"
    model.graph.value_info.append(helper.make_tensor_value_info("i", TensorProto.FLOAT, [7, 120]))
    _assert_alike(_answer(reach(model, _NEWEST)[1].model, case), _answer(_known(case), case), case)


def test_a_stated_shape_that_a_newer_opset_refutes_is_mended() -> None:
    body = "[c] f = Conv(x, w)\n s = Shape(f)\n a = Gather<axis=0>(s, z)\n b = Concat<axis=0>(a, r)\n y = Reshape(f, b)"
    weights = "<float[3,3,1,1] w = {1,2,3,4,5,6,7,8,9}, int64[1] z = {0}, int64[2] r = {3,-1}>"
    model = _known(Case(12, body, weights=weights))
    stated = model.graph.output[0]
    stated.CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "length"]))
    onnx.checker.check_model(model, full_check=True)
    converted = mezzo.convert(model, to="bf16", policy="aggressive", target="openvino-cpu")
    assert converted.plan.version == 22
    assert len(converted.model.graph.output[0].type.tensor_type.shape.dim) == 3
    assert "the shape that output 'y' states is wrong, and replaced: opset 22 shows it" in converted.plan.notes


def test_set_opset_changes_the_model_in_place() -> None:
    model = _chain(4)
    set_opset(model, 18)
    assert default_opset(model) == 18


def test_shapes_of_constants_that_a_file_states_are_believed() -> None:
    """Without them onnx takes the axes of a Slice for others, and what is mended is wrong."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2,4,12,8] x) => (float[2,4,12,4] y)
        <int64[1] zero = {0}, int64[1] four = {4}, int64[1] three = {3}, int64[1] one = {1}, float[2,4,12,4] s>
        { s = Slice(x, zero, four, three, one)  y = Neg(s) }"""
    )
    model.graph.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1])
        for name in ("zero", "four", "three", "one")
    )
    assert not set_opset(model, 23)
    (stated,) = [info for info in model.graph.value_info if info.name == "s"]
    assert [dim.dim_value for dim in stated.type.tensor_type.shape.dim] == [2, 4, 12, 4]
