"""What estimates know of shapes and of whole numbers made of them is what a runtime computes."""

import numpy as np
import onnx
import onnx.parser
import pytest

from mezzo.analysis.estimates import LAWS, estimate
from mezzo.analysis.estimates.forward import ForwardResult
from mezzo.analysis.estimates.inputs import LARGEST_INTEGER
from mezzo.analysis.estimates.loops import OPEN_TRIPS, find_loops
from mezzo.analysis.estimates.moments import UNKNOWN
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import FORMATS, HIGH, DType, integer_span
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.session import native_session
from mezzo.planner.planner import rows_of

_HEAD = (
    '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3,4,8] x) => (float[N] y) <int64[1] one = {1}, '
    "int64[1] two = {2}, int64[1] open = {-1}, int64[1] last = {3}, int64 zero = {0}, int64 step = {2}, "
    "int64[4] twice = {1,2,1,1}> {"
)
# Each makes a value z of which the sizes, or the whole numbers, were computed.
BODIES = (
    "z = Shape(x)",
    "z = Shape <start = 1, end = -1> (x)",
    "z = Size(x)",
    "s = Shape(x)  z = Gather(s, last)",
    "s = Shape(x)  z = Gather(s, zero)",
    "s = Shape(x)  z = Slice(s, one, last)",
    "s = Shape(x)  z = ReduceProd <keepdims = 0> (s)",
    "s = Shape(x)  z = ReduceMax <keepdims = 1> (s)",
    "s = Shape(x)  t = Neg(s)  z = Div(t, last)",
    "s = Shape(x)  t = Sub(s, last)  z = Max(t, one)",
    "s = Shape(x)  t = Mul(s, s)  z = Add(t, two)",
    "s = Shape(x)  c = Equal(s, last)  z = Where(c, two, s)",
    "s = Shape <start = 3> (x)  t = Squeeze(s)  z = Range(zero, t, step)",
    "a = Shape <end = 1> (x)  z = Concat <axis = 0> (a, two, open)",
    "a = Shape <end = 1> (x)  s = Concat <axis = 0> (a, last, open)  z = Reshape(x, s)",
    "a = Shape <end = 1> (x)  s = Concat <axis = 0> (a, one, two, open)  r = Reshape(x, s)  z = Transpose(r)",
    "a = Shape <start = 2, end = 3> (x)  s = Concat <axis = 0> (a, two)  f = ConstantOfShape(s)  z = Unsqueeze(f, two)",
    "a = Shape(x)  r = ReduceSum(x)  z = Expand(r, a)",
    "a = Shape(x)  s = Mul(a, twice)  f = ConstantOfShape(s)  z = Tile(f, twice)",
    "s = Shape <start = 1> (x)  f = ConstantOfShape(s)  g = Slice(f, one, two, one)  z = Concat <axis = 1> (g, f)",
    "a = Shape(x)  f = ConstantOfShape(a)  t = Transpose <perm = [0,1,3,2]> (x)  z = MatMul(f, t)",
    "a = Shape(x)  f = ConstantOfShape(a)  m = ReduceMean <keepdims = 0> (f, two)  z = Add(m, m)",
    "a = Shape(x)  f = ConstantOfShape(a)  m = Flatten <axis = 2> (f)  z = Gather <axis = 1> (m, twice)",
)


def walked(model: onnx.ModelProto) -> EstimatedGraph:
    graph = open_model(model).read(DType.FLOAT16).graph
    size = len(graph.values)
    site = EstimatedGraph(
        graph=graph,
        rows=rows_of(graph),
        estimates=[UNKNOWN] * size,
        origin=list(range(size)),
        kept=list(range(size)),
        tolerance=1e-3,
    )
    ForwardResult(site=site, laws=LAWS, given={}, loops=find_loops(site)).walk()
    return site


def named(site: EstimatedGraph, name: str) -> int:
    return next(number for number, value in enumerate(site.graph.values) if value.name == name)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_counted_is_what_a_runtime_computes(body: str) -> None:
    model = onnx.parser.parse_model(f"{_HEAD} {body}  end = Cast <to = 1> (z)  y = Reshape(end, open) }}")
    site = walked(model)
    z = named(site, "z")
    del model.graph.output[:]
    kind = onnx.TensorProto.FLOAT if site.graph.values[z].dtype is HIGH else onnx.TensorProto.INT64
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", kind, None))
    answer = native_session(model).run({"x": np.zeros((2, 3, 4, 8), np.float32)})["z"]
    assert site.shape(z) == answer.shape, body
    if kind == onnx.TensorProto.INT64:
        assert site.entries(z) == tuple(answer.reshape(-1).tolist()), body


LOOP = (
    '<ir_version: 10, opset_import: ["" : 21]> g (int64 trips, bool goes, float[4] start) => (float[4] y, {told} all) '
    "<int64 seven = {{7}}> {{ y, all = Loop ({trips}, goes, start) <body = b (int64 i, bool c, float[4] s) => "
    "(bool d, float[4] t, float[4] u) {{ d = Identity(c)  t = Add(s, s)  u = Identity(t) }}> }}"
)


@pytest.mark.parametrize(
    ("trips", "told", "expected"),
    [
        ("trips", "float[N,4]", OPEN_TRIPS),
        ("seven", "float[N,4]", 7),
        ("trips", "float[5,4]", 5),
        ("seven", "float[5,4]", 5),
    ],
)
def test_trips_of_a_loop_are_known_by_its_count_and_its_results(trips: str, told: str, expected: int) -> None:
    site = walked(onnx.parser.parse_model(LOOP.format(trips=trips, told=told)))
    loops = find_loops(site)
    (tie,) = loops.ties.values()
    assert loops.trips(site, tie) == expected


@pytest.mark.parametrize("trips", [1, 2, 4, 9])
def test_state_that_grows_is_followed_over_all_trips_of_a_short_loop(trips: int) -> None:
    """Doubled each trip, exactly: what a loop returns is what its last trip makes."""
    site = walked(onnx.parser.parse_model(LOOP.format(trips="seven", told=f"float[{min(trips, 7)},4]")))
    assert site.estimates[named(site, "y")].std == pytest.approx(2.0 ** min(trips, 7), rel=1e-6)  # sums in FP64
    assert site.estimates[named(site, "t")].std == pytest.approx(2.0 ** min(trips, 7), rel=1e-6)


def test_state_past_belief_over_an_open_length_is_taken_to_add_up() -> None:
    site = walked(onnx.parser.parse_model(LOOP.format(trips="trips", told="float[N,4]")))
    assert 10.0 < site.estimates[named(site, "y")].std < 1e3  # about the root of 10,000 trips


PICKED = (
    ("t = Concat <axis = 0> (s, x)", True),
    ("t = Max(s, x)", True),
    ("r = Relu(x)  k = Greater(s, r)  t = Where(k, s, r)", True),
    ("t = Add(s, x)", False),
    ("n = Add(s, x)  t = Concat <axis = 0> (s, n)", False),
    ("k = Greater(s, x)  n = Mul(s, x)  t = Where(k, s, n)", False),
)


@pytest.mark.parametrize(("body", "is_exact"), PICKED)
def test_errors_add_up_over_trips_only_where_a_trip_computes_on_the_state(body: str, is_exact: bool) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64 trips, bool goes, float[4] start, float[4] x) '
        f"=> (float[N] y) {{ y = Loop (trips, goes, start) "
        "<body = b (int64 i, bool c, float[n] s) => (bool d, float[m] t) "
        f"{{ d = Identity(goes)  {body} }}> }}"
    )
    graph = open_model(model).read(DType.FLOAT16).graph
    found = estimate(graph, rows_of(graph), FORMATS[DType.FLOAT16], {})
    assert (not found.coarse) == is_exact, found.coarse


@pytest.mark.parametrize("dtype", [t for t in DType if integer_span(t) is not None], ids=str)
def test_integer_input_holds_no_more_than_its_type(dtype: DType) -> None:
    span = integer_span(dtype)
    assert span is not None
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Cast", ["q"], ["y"], to=onnx.TensorProto.FLOAT)],
            "g",
            [onnx.helper.make_tensor_value_info("q", onnx.TensorProto.DataType.Value(dtype.name), [4])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 25)],
    )
    held = walked(model).estimates[0]
    assert span[0] <= held.low and held.high <= min(span[1], max(LARGEST_INTEGER, 0.0))
    if span[1] <= LARGEST_INTEGER:
        assert (held.low, held.high) == span
