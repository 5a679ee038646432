"""What ranges forbid: the producer of a value in trouble and those who would read it low, and nobody else."""

from collections.abc import Mapping

import onnx.parser
import pytest
from held_values import held, held_masked

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.graph import Graph
from mezzo.numerics.measures import ValueRange
from mezzo.numerics.ranges.protection import protections
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x, float[4,4] b) => (float[4,4] y) {
    [first]  h = Relu(x)
    [second] k = Mul(h, b)
    [third]  n = MatMul(k, b)
    [fourth] y = Neg(n)
}"""


def graph_of(text: str) -> Graph:
    return open_model(onnx.parser.parse_model(text)).read(DType.FLOAT16).graph


def protected(text: str, *ranges: ValueRange, low: DType = DType.FLOAT16, headroom: float = 1.0) -> dict[str, str]:
    graph = graph_of(text)
    found = protections(graph, rows_of(graph), FORMATS[low], ranges, headroom)
    return {finding.node: finding.rule for finding in found}


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (65519.0, {}),  # rounds to 65504
        (65520.0, {"second": "data-overflow", "third": "data-overflow"}),  # rounds to infinity
    ],
)
def test_overflow_protects_producer_and_readers(largest: float, expected: Mapping[str, str]) -> None:
    assert protected(_CHAIN, held("second", "k", largest)) == expected


def test_headroom_protects_what_is_near_the_limit() -> None:
    assert protected(_CHAIN, held("second", "k", 33000.0)) == {}
    assert set(protected(_CHAIN, held("second", "k", 33000.0), headroom=2.0)) == {"second", "third"}


def test_an_input_in_trouble_protects_its_readers() -> None:
    assert protected(_CHAIN, held("input b", "b", 1e6)) == {"second": "data-overflow", "third": "data-overflow"}


def test_bf16_holds_what_fp16_does_not() -> None:
    assert protected(_CHAIN, held("second", "k", 1e30), low=DType.BFLOAT16) == {}


def test_the_reason_names_value_range_and_data() -> None:
    graph = graph_of(_CHAIN)
    found = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], [held("second", "k", 81234.0)])
    assert [(finding.node, finding.cause) for finding in found] == [("second", None), ("third", "second")]
    assert found[0].because == "'k' holds -1 to 8.123e+04 in calib.npz: reaches f16's limit of 65504"


def test_a_value_that_is_lost_among_subnormals_protects_its_group() -> None:
    assert protected(_CHAIN, held("third", "n", 1e-7, rounding=0.4)) == {
        "third": "data-vanishes",
        "fourth": "data-vanishes",
    }


_ROOT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x, float[4,4] v) => (float[4,4] y, float[4,4] z) {
    [sum]   s = Add(x, v)
    [root]  r = Sqrt(s)
    [ratio] y = Div(r, x)
    [neg]   z = Neg(s)
}"""


def test_a_few_vanishing_numbers_matter_where_the_reader_is_steep() -> None:
    """Sqrt of what became zero divides by zero later; a number that vanishes before Neg is lost and harms nobody."""
    trouble = held("sum", "s", 10.0, vanishing=0.01)
    assert set(protected(_ROOT, trouble)) == {"sum", "root", "neg"}
    assert protected(_CHAIN, held("third", "n", 10.0, vanishing=0.01)) == {}


def test_a_vanishing_numerator_harms_nobody() -> None:
    assert protected(_ROOT, held("root", "r", 10.0, vanishing=0.01)) == {}


_SOFTMAX = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x, float[4,4] w) => (float[4,4] y, float[4,4] z) {
    [product] l = MatMul(x, w)
    [softmax] y = Softmax(l)
    [other]   z = Neg(l)
}"""


def test_large_logits_protect_the_product_and_the_softmax() -> None:
    assert protected(_SOFTMAX, held("product", "l", 600.0)) == {"product": "data-logits", "softmax": "data-logits"}
    assert protected(_SOFTMAX, held("product", "l", 50.0)) == {}


def test_a_mask_is_no_large_logit() -> None:
    """Masked logits lie far below zero; those that count are near the maximum."""
    masked = held("product", "l", 5.0, smallest=-10000.0, count=9, median=4.0)
    assert protected(_SOFTMAX, masked) == {}


_MASKED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y) <float[2,2] mask = {0, -1e9, 0, 0}> {
    [add]     l = Add(x, mask)
    [softmax] y = Softmax(l)
}"""


def test_a_mask_that_is_stored_within_bounds_is_no_overflow() -> None:
    graph = graph_of(_MASKED)
    mask = next(iter(graph.constants))
    masked = held_masked("add", "l")
    rows, low = rows_of(graph), FORMATS[DType.FLOAT16]
    assert {f.node for f in protections(graph, rows, low, [masked])} == {"add", "softmax"}
    assert protections(graph, rows, low, [masked], limited=[mask]) == ()


_FACTOR_OF_A_MASK = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x, float[2,2] m) => (float[2,2] y) <float far = {-1e9}> {
    [mask]    a = Mul(m, far)
    [add]     l = Add(x, a)
    [softmax] y = Softmax(l)
}"""


@pytest.mark.parametrize(("largest", "expected"), [(1.0, set[str]()), (2.0, {"mask", "add", "softmax"})])
def test_a_mask_times_at_most_1_is_no_overflow(largest: float, expected: set[str]) -> None:
    """The stored mask times 2 may pass the range, which the data, seen before it was stored, do not show."""
    graph = graph_of(_FACTOR_OF_A_MASK)
    mask = next(iter(graph.constants))
    measured = [held("input m", "m", largest, smallest=0.0), held_masked("mask", "a"), held_masked("add", "l")]
    findings = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], measured, limited=[mask])
    assert {finding.node for finding in findings} == expected


_LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x, int64 n, bool go) => (float[4,4] y) {
    [loop] y = Loop(n, go, x) <body = b (int64 i, bool c, float[4,4] s) => (bool d, float[4,4] t) {
        [keep] d = Identity(c)
        [grow] t = Add(s, s)
    }>
}"""


def test_loop_state_is_protected_with_what_makes_it() -> None:
    graph = graph_of(_LOOP)
    grow = next(node.name for node in graph.nodes if node.op == "Add")
    found = protections(graph, rows_of(graph), FORMATS[DType.FLOAT16], [held(grow, "t", 1e6)])
    kinds = {graph.nodes[graph.by_name[finding.node]].kind.value for finding in found}
    assert {finding.node for finding in found} >= {grow}
    assert kinds == {"op", "tie"}


def test_ranges_of_another_model_protect_nobody() -> None:
    assert protected(_CHAIN, held("elsewhere", "k", 1e9)) == {}
