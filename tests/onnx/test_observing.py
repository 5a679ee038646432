"""What inputs hold when they are watched: what is fed, or what they hold where nothing is."""

import numpy as np
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind

_DEFAULT = np.array([[1.0, -2.0, 3.0, 0.5]], np.float32)


def summing() -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 17]> g (float[N,4] x, float[1,4] d) => (float[N,4] y) '
        "{ s = Add(x, d)  y = MatMul(s, w) }"
    )
    for name, array in (("w", np.eye(4, dtype=np.float32)), ("d", _DEFAULT)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("fed", [None, np.full((1, 4), 7, np.float32)], ids=["by default", "fed"])
def test_an_input_shows_what_it_is_fed_and_else_its_default(fed: np.ndarray | None) -> None:
    model = open_source(summing(), False, None)
    reading = model.read(DType.FLOAT16)
    graph = reading.graph
    values = [value for node in graph.nodes if node.kind is Kind.INPUT for value in node.outputs if value is not None]
    feeds = {"x": np.ones((2, 4), np.float32)} | ({} if fed is None else {"d": fed})
    shown = {graph.values[one.value].name: one.numbers for one in lab_of(model).observer(reading, values)(feeds)}
    assert shown.keys() == {"x", "d"}
    np.testing.assert_array_equal(shown["x"], feeds["x"])
    np.testing.assert_array_equal(shown["d"], _DEFAULT if fed is None else fed)


def test_a_model_is_quantized_on_data_that_leaves_an_input_to_its_default() -> None:
    rng = np.random.default_rng(0)
    data = [{"x": rng.normal(size=(8, 4)).astype(np.float32)} for _ in range(4)]
    converted = mezzo.convert(summing(), to="int8", target="openvino-cpu", data=data, quantize_mode="full")
    assert converted.summary.low_nodes > 0
