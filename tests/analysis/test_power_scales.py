"""Which values have proportional power-of-two scales."""

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest
from scaled_models import scaled_graph, told_components

from mezzo.onnx.opening import open_model
from mezzo.tables.scaling import Term, read_scaling

_HEAD = '<ir_version: 10, opset_import: ["" : 23]>\n'
_CASES = {
    "weights part what they join": (
        """g (float[N,4] x) => (float[N,4] y) {
            h = MatMul(x, w)  a = Add(h, b)  r = Relu(a)  y = MatMul(r, w) }""",
        ["h:1 a:1 r:1", "y:1"],
    ),
    "a residual stream is one, a norm starts anew": (
        """g (float[N,4] x) => (float[N,4] y) {
            e = MatMul(x, w)  n = LayerNormalization(e, one, one)  f = MatMul(n, w)  s = Add(e, f)
            m = RMSNormalization(s, one)  y = MatMul(m, w) }""",
        ["e:1 f:1 s:1", "n:1", "m:1", "y:1"],
    ),
    "squares have twice the exponent, roots half": (
        """g (float[N,4] x) => (float[N,4] y) {
            h = MatMul(x, w)  s = Pow(h, two)  t = Mul(h, h)  q = Sqrt(s)  d = Div(h, q)  y = MatMul(d, w) }""",
        ["h:1 s:2 t:2 q:1", "y:1"],
    ),
    "an equation without a solution fixes its operator alone": (
        """g (float[N,4] x) => (float[N,4] y) {
            h = MatMul(x, w)  s = Mul(h, h)  t = Add(h, s)  y = MatMul(t, w) }""",
        ["h:1 s:2", "y:1"],
    ),
    "a gate is read as it is, the larger operand takes the scale": (
        """g (float[N,4] x) => (float[N,4] y) {
            u = MatMul(x, w)  v = MatMul(x, w)  p = Mul(u, v)  y = MatMul(p, w) }""",
        ["u:1", "v:1 p:1", "y:1"],
    ),
    "a branch and the other have one scale": (
        """g (bool c, float[N,4] x) => (float[N,4] y) {
            h = MatMul(x, w)
            i = If (c) <then_branch = t () => (float[N,4] a) { a = Neg(h) },
                        else_branch = e () => (float[N,4] b) { b = Relu(h) }>
            y = MatMul(i, w) }""",
        ["h:1 a:1 b:1 i:1", "y:1"],
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_components(name: str) -> None:
    text, expected = _CASES[name]
    model = onnx.parser.parse_model(_HEAD + text)
    for constant, shape in {"w": (4, 4), "b": (4,), "one": (4,), "two": ()}.items():
        array = np.full(shape, 2.0, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, constant))
    assert told_components(model, {"u": 1.0, "v": 9.0}) == expected


def test_exponents_that_no_operand_can_give_are_refused() -> None:
    model = open_model(onnx.parser.parse_model(_HEAD + "g (float[4] x) => (float[4] y) { h = Exp(x)  y = Neg(h) }"))
    with pytest.raises(ValueError, match="cannot be scaled"):
        scaled_graph(model).rescaling({1: 3})


@pytest.mark.parametrize("text", ["x, y", "x -> 3", "x -> x; epsilon", "x -> X", "x + y z -> x"])
def test_malformed_rows_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="scaling"):
        read_scaling(text)


def test_a_row_is_read() -> None:
    row = read_scaling("x, 2x-y, 0, _... -> #x; epsilon 2x; unless mode 1")
    assert row.operands == (Term({"x": 1}), Term({"x": 2, "y": -1}), Term({}), Term({}, is_any=True))
    assert row.operand(9).is_any and row.result(1) == Term({}) and row.results == (Term({"x": 1}, by_operand=True),)
    assert row.attributes == {"epsilon": Term({"x": 2})}
    assert row.applies({"mode": 0}) and not row.applies({"mode": 1})
