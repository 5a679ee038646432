"""What ranges lift: nodes all of whose values were measured and fit with headroom, and no others."""

from collections.abc import Sequence
from dataclasses import replace

import onnx.parser
import pytest
from held_values import held, held_masked

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.measures import ValueRange
from mezzo.numerics.ranges.range_evidence import can_tell, lifts
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x, float[4,4] b) => (float[4,4] y) {
    [first]  h = Relu(x)
    [second] k = Mul(h, b)
    [third]  y = Softmax(k)
}"""
# Here and below, 2 is the headroom, 8 that of powers, and 65520 rounds to infinity.
_FITS, _TOO_LARGE = 65520 / 2 - 1, 65520 / 2


_ALL = (
    held("input x", "x"), held("input b", "b"), held("first", "h"), held("second", "k"), held("third", "y", 1.0),
)  # fmt: skip


def lifted(text: str, ranges: Sequence[ValueRange], limited_constants: bool = False) -> set[str]:
    graph = open_model(onnx.parser.parse_model(text)).read(DType.FLOAT16).graph
    limited = tuple(graph.constants) if limited_constants else ()
    found = lifts(graph, rows_of(graph), FORMATS[DType.FLOAT16], ranges, 7, limited)
    return {name for name, evidence in found.items() if evidence.fits}


def test_nodes_whose_values_fit_are_lifted() -> None:
    assert lifted(_CHAIN, _ALL) == {"first", "second", "third"}


def test_the_text_names_the_largest_value_its_range_and_the_samples() -> None:
    graph = open_model(onnx.parser.parse_model(_CHAIN)).read(DType.FLOAT16).graph
    ranges = (*_ALL[:3], held("second", "k", 12.5), _ALL[4])
    found = lifts(graph, rows_of(graph), FORMATS[DType.FLOAT16], ranges, 7)
    assert found["third"].because == "'k' holds -1 to 12.5 in 7 samples"


@pytest.mark.parametrize(("second", "expected"), [(held("second", "k", 1e6), 3), (held("second", "k", count=0), 1)])
def test_nodes_that_were_exercised_have_evidence_even_where_they_do_not_fit(second: ValueRange, expected: int) -> None:
    graph = open_model(onnx.parser.parse_model(_CHAIN)).read(DType.FLOAT16).graph
    ranges = (*_ALL[:3], second, _ALL[4])
    assert len(lifts(graph, rows_of(graph), FORMATS[DType.FLOAT16], ranges, 7)) == expected


@pytest.mark.parametrize(
    "spoilt",
    [
        held("second", "k", count=0),  # a body that never ran
        held("second", "k", 0.0, smallest=0.0),  # nothing but zeros shows nothing
        held("second", "k", _TOO_LARGE),
        held("second", "k", rounding=17 * 2.0**-10),  # lost among subnormals
        replace(held("second", "k"), has_nan=True),
        replace(held("second", "k"), has_infinity=True),
    ],
)
def test_a_value_that_does_not_speak_for_its_nodes_lifts_neither_maker_nor_reader(spoilt: ValueRange) -> None:
    assert lifted(_CHAIN, (*_ALL[:3], spoilt, _ALL[4])) == {"first"}


def test_a_value_that_was_not_measured_lifts_nobody() -> None:
    assert lifted(_CHAIN, (*_ALL[:3], _ALL[4])) == {"first"}


def test_headroom_is_a_factor_of_two() -> None:
    assert lifted(_CHAIN, (*_ALL[:3], held("second", "k", _FITS), _ALL[4])) == {"first", "second", "third"}


@pytest.mark.parametrize(
    ("operator", "limit"),
    [
        ("Exp(x)", 65520**0.5),  # exponents twice as large give the square
        ("Mul(x, x)", 65520 / 8),
        ("ReduceSum<keepdims=0>(x)", 65520 / 8),
        ("ReduceL2<keepdims=0>(x)", (65520 / 8) ** 0.5),  # the squares are inside
        ("Neg(x)", 65520 / 2),
    ],
)
def test_what_grows_faster_needs_more_room(operator: str, limit: float) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,4] x) => (float[N,M] y) {{
        [node] y = {operator}
    }}"""
    for largest, expected in ((limit * 0.999, {"node"}), (limit, set[str]())):
        assert lifted(text, (held("input x", "x"), held("node", "y", largest))) == expected, largest


_CONSTANT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y) <float[2,2] c = {0, -1e9, 0, 0}> {
    [add]     l = Add(x, c)
    [softmax] y = Softmax(l)
}"""


def test_a_constant_past_the_range_lifts_nobody_who_reads_it() -> None:
    ranges = (held("input x", "x"), held("add", "l"), held("softmax", "y", 1.0))
    assert lifted(_CONSTANT, ranges) == {"softmax"}


def test_a_mask_that_is_stored_within_bounds_fits() -> None:
    ranges = (held("input x", "x"), held_masked("add", "l"), held("softmax", "y", 1.0))
    assert lifted(_CONSTANT, ranges) == set()
    assert lifted(_CONSTANT, ranges, limited_constants=True) == {"add", "softmax"}


def test_an_operand_that_keeps_fp32_does_not_count() -> None:
    """Resize reads its scales in FP32 whatever it runs in, and nobody has measured them."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,1,2,2] x, float[4] scales) => (float[1,1,4,4] y) {
        [resize] y = Resize(x, , scales)
    }"""
    assert lifted(text, (held("input x", "x"), held("resize", "y"))) == {"resize"}


def test_zeros_that_no_input_reaches_are_no_gap_in_the_data() -> None:
    """Exporters share equal biases through Identity, and those of a fresh layer are zero."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,4] x) => (float[4,4] y) <float[4] c = {0, 0, 0, 0}> {
        [bias] b = Identity(c)
        [add]  y = Add(x, b)
    }"""
    assert "add" in lifted(text, (held("input x", "x"), held("bias", "b", 0.0, smallest=0.0), held("add", "y")))


_ENDS = (held("input x", "x"), held("input b", "b"), held("third", "y"))


def speaks(*ranges: ValueRange) -> bool:
    graph = open_model(onnx.parser.parse_model(_CHAIN)).read(DType.FLOAT16).graph
    return can_tell(graph, ranges)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (_ENDS, True),
        (_ALL, True),
        ((), True),  # nothing speaks against it
        ((replace(_ENDS[0], has_nan=True), *_ENDS[1:]), False),
        ((*_ENDS[:2], replace(_ENDS[2], has_nan=True)), False),
        ((*_ENDS[:2], replace(_ENDS[2], minimum=2.0, maximum=2.0)), False),  # an output that never changes
        ((replace(_ENDS[0], minimum=2.0, maximum=2.0), *_ENDS[1:]), True),
        ((replace(_ALL[2], has_nan=True), *_ENDS), True),  # what lies between shows in the outputs
    ],
)
def test_answers_speak_for_a_plan_where_both_ends_are_numbers_and_outputs_change(
    ranges: Sequence[ValueRange], expected: bool
) -> None:
    assert speaks(*ranges) is expected


def test_of_values_that_are_equally_large_the_first_is_named() -> None:
    graph = open_model(onnx.parser.parse_model(_CHAIN)).read(DType.FLOAT16).graph
    found = lifts(graph, rows_of(graph), FORMATS[DType.FLOAT16], _ALL, 7)
    assert found["second"].because.startswith("'h' holds")
