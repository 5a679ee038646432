"""What a caller feeds a session is checked before any engine sees it, and what comes back has the declared types."""

import re
from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import pytest
from judge_models import EACH_LOW, LOW, read
from onnx import helper, numpy_helper

from mezzo.common.errors import ContractError, InputError
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine, Session, native_session

EACH_SESSION = pytest.mark.parametrize("load", [native_session, emulated_session])
PORTS = """g (float16[N,2] x, int64 k, uint8[2] u, bool b, string[N] t, seq(float16[2]) s, optional(float[1]) o)
    => (float16[N,2] y) { y = Identity(x) }"""
FEEDS = {
    "x": np.ones((1, 2), np.float32), "k": 1, "u": [1, 2], "b": True, "t": ["a"], "s": [[1.0, 2.0]], "o": None,
}  # fmt: skip
WRONG = [
    ("x", np.ones(2), "found f64[2], wanted f16[N,2]; feed an array of 2 dimensions"),
    ("x", np.ones((4, 3)), "found f64[4,3], wanted f16[N,2]; feed an array whose dimension 1 is 2 long"),
    ("x", None, "found None, wanted f16[N,2]; feed an array; only an optional input may be empty"),
    ("x", [[1.0, None]], "found object[1,2], wanted f16[N,2]; feed an array of float16"),
    ("x", np.array([["1", "2"]]), "found str[1,2], wanted f16[N,2]; feed an array of float16"),
    ("x", np.ones((1, 2), np.complex64), "found c64[1,2], wanted f16[N,2]; feed an array of float16"),
    ("x", np.zeros((1, 2), "M8[s]"), "found datetime64[s][1,2], wanted f16[N,2]; feed an array of float16"),
    ("k", 1.0, "found f64[], wanted i64[]; feed an array of int64"),
    ("k", "1", "found str[], wanted i64[]; feed an array of int64"),
    ("k", 2**63, "found 9223372036854775808, wanted i64[]; feed numbers from "
     "-9223372036854775808 to 9223372036854775807"),
    ("u", [0, 256], "found 256, wanted u8[2]; feed numbers from 0 to 255"),
    ("u", [-1, 0], "found -1, wanted u8[2]; feed numbers from 0 to 255"),
    ("u", np.array([-1, 0]).astype(ml_dtypes.int4), "found -1, wanted u8[2]; feed numbers from 0 to 255"),
    ("b", 1, "found i64[], wanted bool[]; feed an array of bool"),
    ("t", [1.0], "found f64[1], wanted str[N]; feed an array of str"),
    ("t", np.array(["a", 1], object), "found object[2], wanted str[N]; feed an array of str"),
    ("s", np.ones((1, 2)), "found f64[1,2], wanted list of f16[2]; feed a list, empty or not"),
    ("s", {"a": 1}, "found a dict, wanted list of f16[2]; feed a list, empty or not"),
    ("o", "1", "found str[], wanted f32[1]; feed an array of float32"),
]  # fmt: skip


def refusal(session: Session, feeds: dict[str, object]) -> str:
    """The message with which a session refuses feeds. It must not have gone to another engine for an answer."""
    with pytest.raises(InputError) as caught:
        session.run(feeds)
    assert (session.engine, session.fallback) == (Engine.ONNXRUNTIME, None)
    return str(caught.value)


@EACH_SESSION
def test_every_wrong_feed_is_told_in_one_line(load: Callable[[onnx.ModelProto], Session]) -> None:
    session = load(read(PORTS))
    for name, feed, message in WRONG:
        assert refusal(session, FEEDS | {name: feed}) == f"input {name!r}: {message}"


@EACH_SESSION
def test_elements_of_lists_are_named_by_their_position(load: Callable[[onnx.ModelProto], Session]) -> None:
    message = refusal(load(read(PORTS)), FEEDS | {"s": [[1.0, 2.0], [1.0]]})
    assert message == "input 's', element 1: found f64[1], wanted f16[2]; feed an array whose dimension 0 is 2 long"


@EACH_SESSION
def test_ragged_lists_are_no_arrays(load: Callable[[onnx.ModelProto], Session]) -> None:
    message = refusal(load(read(PORTS)), FEEDS | {"x": [[1.0, 2.0], [3.0]]})
    assert message.startswith("input 'x': found no array (")  # numpy says why
    assert message.endswith("), wanted f16[N,2]; feed an array")


@EACH_SESSION
def test_right_feeds_of_every_type_run_where_they_should(load: Callable[[onnx.ModelProto], Session]) -> None:
    session = load(read(PORTS))
    many = {"x": np.ones((3, 2), np.float64), "u": np.array([0, 255]), "s": [], "o": np.float32([1]), "t": ["a", "b"]}
    for feeds in (FEEDS, FEEDS | many, FEEDS | {"x": np.ones((0, 2)), "t": np.array([b"a"])}):
        assert session.run(feeds)["y"].shape == np.shape(feeds["x"])
    assert (session.engine, session.fallback) == (Engine.ONNXRUNTIME, None)


@EACH_SESSION
def test_missing_and_unknown_feeds_are_named_with_all_inputs(load: Callable[[onnx.ModelProto], Session]) -> None:
    model = read("g (float16[1] x, float16[1] k, float16[1] w) => (float16[1] y) { a = Add(x, k)  y = Add(a, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.float16([3]), "w"))
    session = load(model)
    inputs = "feed the model's inputs: 'x', 'k', 'w' (optional)"
    one = [1.0]
    assert refusal(session, {"x": one}) == f"feeds: found nothing for 'k'; {inputs}"
    unknown = f"feeds: found 'y', which the model does not have; {inputs}"
    assert refusal(session, {"x": one, "k": one, "y": one}) == unknown
    both = f"feeds: found nothing for 'k' and 'K', which the model does not have; {inputs}"
    assert refusal(session, {"x": one, "K": one}) == both
    assert session.run({"x": one, "k": one})["y"] == 5
    assert session.run({"x": one, "k": one, "w": one})["y"] == 3


@EACH_SESSION
def test_a_model_without_inputs_takes_no_feeds(load: Callable[[onnx.ModelProto], Session]) -> None:
    session = load(read("g () => (float y) { y = Constant<value_float: float = 2.0>() }"))
    message = "feeds: found 'x', which the model does not have; feed the model's inputs: it has none"
    assert refusal(session, {"x": 1.0}) == message
    assert session.run({})["y"] == 2


def test_a_sparse_initializer_is_a_default_for_an_input() -> None:
    model = read("g (float[2] w, float[2] x) => (float[2] y) { y = Add(w, x) }")
    values, places = numpy_helper.from_array(np.float32([3]), "w"), numpy_helper.from_array(np.int64([1]))
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2]))
    with pytest.raises(InputError, match=r"'w' \(optional\), 'x'$"):
        native_session(model).run({})
    assert native_session(model).run({"x": [1.0, 1.0]})["y"].tolist() == [1, 4]


def test_a_scalar_in_bf16_stays_a_scalar() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (bfloat16 x) => (bfloat16 y) { y = Identity(x) }'
    )
    answer = native_session(model).run({"x": np.float32(2)})["y"]
    assert (answer.shape, float(answer)) == ((), 2.0)


def test_lengths_that_exporters_did_not_know_are_free() -> None:
    model = read("g (float[N] x, float y) => (float[N] z) { z = Add(x, y) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    model.graph.input[1].type.tensor_type.ClearField("shape")
    assert native_session(model).run({"x": [1.0, 2.0], "y": [1.0]})["z"].tolist() == [2, 3]


@EACH_LOW
def test_results_of_the_reference_have_the_declared_types(low: str) -> None:
    model = read(f"""g (float r, int64 t, {low}[1] x, {low}[1] d, {low}[1] v) => ({low}[1] y, {low}[1] w) {{
        y, w = ai.onnx.preview.training.Momentum<alpha=0.5, beta=1.0, mode="standard", norm_coefficient=0.0>(
            r, t, x, d, v) }}""")
    session = native_session(model)
    results = session.run({"r": 0.5, "t": 1, "x": [1.0], "d": [2.0], "v": [4.0]})
    assert session.engine is Engine.REFERENCE
    assert {name: (result.dtype, result.tolist()) for name, result in results.items()} == {
        "y": (LOW[low], [-1.0]), "w": (LOW[low], [4.0])
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "named"),
    [("{ y = own.Unheard(x) }", "unheard"), ("<int64[1] shape = {7}> { y = Reshape(x, shape) }", "reshape")],
    ids=["load", "run"],
)
def test_failing_in_both_engines_tells_both_reasons(text: str, named: str) -> None:
    with pytest.raises(ContractError) as caught:
        native_session(read(f"g (float[N] x) => (float[M] y) {text}")).run({"x": [1.0, 2.0]})
    told = re.fullmatch(
        r"the model works neither in onnxruntime \((.+)\) nor in onnx\.reference \((.+)\)", str(caught.value)
    )
    assert told is not None
    assert all(named in reason.lower() for reason in told.groups())


def test_failing_in_the_wanted_engine_tells_its_reason() -> None:
    model = read("g (float[N] x) => (float[M] y) <int64[1] shape = {7}> { y = Reshape(x, shape) }")
    with pytest.raises(ContractError, match=r"^the model does not run in onnxruntime: \[ONNXRuntimeError\] .*Reshape"):
        native_session(model, Engine.ONNXRUNTIME).run({"x": [1.0, 2.0]})


@EACH_SESSION
def test_a_last_piece_that_is_too_short_is_told_what_divides(load: Callable[[onnx.ModelProto], Session]) -> None:
    session = load(read("g (float[4,2] x) => (float[4,2] y) { y = Relu(x) }"))
    assert refusal(session, {"x": np.ones((2, 2), np.float32)}) == (
        "input 'x': found f32[2,2], wanted f32[4,2]; feed an array whose dimension 0 is 4 long; "
        "where that is the batch, as many samples as 4 divides"
    )
