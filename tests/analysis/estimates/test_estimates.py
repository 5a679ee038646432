"""Estimates against data, against each other, and against models that mean harm."""

import math
import random
import re

import numpy as np
import onnx
import onnx.parser
import pytest
from random_models import random_model
from sweeps import swept

import mezzo
from mezzo.analysis.estimates import LAWS, Estimates, estimate
from mezzo.analysis.estimates.backward import rounded
from mezzo.analysis.estimates.moments import LOST, rms
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.graph import Graph
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.session import native_session
from mezzo.planner.planner import rows_of
from mezzo.tables.facts import Transfer
from mezzo.tables.ops import dialects, op_facts

_SEEDS = range(swept(40))
# A law may take dependent numbers for independent ones; what it says of size is then off, but by no more than this on
# the functions below, whose operands are independent or nearly so.
_FACTOR = 2.0


def estimates_of(
    model: onnx.ModelProto, low: DType = DType.FLOAT16, **given: tuple[float, float]
) -> tuple[Graph, Estimates]:
    graph = open_model(model).read(low).graph
    return graph, estimate(graph, rows_of(graph), FORMATS[low], given)


def parse(body: str, inputs: str = "float[256,64] x", opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}) => (float y) <int64[1] last = {{-1}}, '
        f"float two = {{2}}, float half = {{0.5}}, float hundred = {{100}}, float eps = {{1e-5}}> {{ {body} }}"
    )


def rms_of(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def is_flat(seed: int) -> bool:
    """Whether a random model has no bodies: these capture names, which the test of names does not rename."""
    model = random_model(random.Random(seed), 10)
    return not any(a.type == onnx.AttributeProto.GRAPH for node in model.graph.node for a in node.attribute)


FUNCTIONS = (
    "y = Relu(x)",
    "y = Sigmoid(x)",
    "y = Tanh(x)",
    "y = Exp(x)",
    "y = Softplus(x)",
    "y = Erf(x)",
    "y = Abs(x)",
    "y = Mul(x, x)",
    "y = Pow(x, two)",
    "y = Mul(x, hundred)",
    "y = Add(x, hundred)",
    "y = Softmax<axis = -1>(x)",
    "y = LogSoftmax<axis = -1>(x)",
    "y = ReduceMean(x, last)",
    "y = ReduceSum(x, last)",
    "y = ReduceSumSquare(x, last)",
    "y = ReduceL2(x, last)",
    "y = ReduceL1(x, last)",
    "y = ReduceLogSumExp(x, last)",
    "y = Clip(x, half, two)",
    "y = Max(x, half)",
    "y = Min(x, half)",
    "y = Sin(x)",
    "y = Cos(x)",
    "y = Neg(x)",
    "a = Abs(x)  b = Add(a, half)  y = Log(b)",
    "a = Abs(x)  b = Add(a, half)  y = Sqrt(b)",
    "a = Abs(x)  b = Add(a, half)  y = Div(x, b)",
    "a = Abs(x)  b = Add(a, half)  y = Reciprocal(b)",
    "m = ReduceMean(x, last)  y = Sub(x, m)",
    "m = ReduceMax(x, last)  y = Sub(x, m)",
    "a = Mul(x, hundred)  b = Add(a, x)  y = Sub(b, a)",
    "e = Exp(x)  s = ReduceSum(e, last)  y = Div(e, s)",
    "c = Greater(x, half)  y = Where(c, x, half)",
)


@pytest.mark.parametrize("body", FUNCTIONS)
def test_estimate_is_near_what_unit_normal_data_gives(body: str) -> None:
    model = parse(body)
    x = np.random.default_rng(3).standard_normal((256, 64)).astype(np.float32)
    y = native_session(model).run({"x": x})["y"]
    graph, found = estimates_of(model)
    held = found.moments[next(n for n, value in enumerate(graph.values) if value.name == "y")]
    assert rms(held) / _FACTOR <= rms_of(y) <= rms(held) * _FACTOR, f"{body}: estimated {held}, measured {rms_of(y)}"
    outside = np.mean((y < held.low - 1e-6) | (y > held.high + 1e-6))
    assert outside < 5e-3, f"{body}: {outside:.2%} of the numbers lie outside {held}"  # four sigma; 256 sums at least


@pytest.mark.parametrize("low", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("seed", _SEEDS)
def test_estimates_of_random_models_are_consistent(seed: int, low: DType) -> None:
    graph, found = estimates_of(random_model(random.Random(seed), 12), low)
    assert len(found.moments) == len(graph.values)
    for held in found.moments:
        assert held.low <= held.mean <= held.high and held.std >= 0.0 and math.isfinite(held.std), (
            f"seed {seed}: {held}"
        )
    for entry in found.coarse:
        assert entry.error > 0.0 and not found.moments[entry.value].flags & LOST, f"seed {seed}: {entry}"
    assert estimate(graph, rows_of(graph), FORMATS[low], {}) == found, f"seed {seed}: not deterministic"


def test_sums_of_squares_among_products_with_itself_are_within_the_estimate() -> None:
    model = parse("t = Transpose<perm = [1, 0]>(x)  y = MatMul(t, x)")
    x = np.random.default_rng(4).standard_normal((256, 64)).astype(np.float32)
    graph, found = estimates_of(model)
    held = found.moments[next(n for n, value in enumerate(graph.values) if value.name == "y")]
    assert held.high >= float((x.T @ x).max())


@pytest.mark.parametrize("seed", [seed for seed in range(swept(40)) if is_flat(seed)])
def test_estimates_do_not_hang_on_names(seed: int) -> None:
    model = random_model(random.Random(seed), 10)
    names = {value.name for value in model.graph.value_info} | {o for node in model.graph.node for o in node.output}
    inner = sorted(names - {port.name for port in (*model.graph.output, *model.graph.input)}, key=len, reverse=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    renamed = {name: f"v{number}_" for number, name in enumerate(inner)}
    for node in copy.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for info in copy.graph.value_info:
        info.name = renamed.get(info.name, info.name)
    assert estimates_of(copy)[1].moments == estimates_of(model)[1].moments, f"seed {seed}"


def test_every_transfer_has_a_law_and_every_law_a_transfer() -> None:
    assert LAWS.keys() == set(Transfer)


def test_what_is_not_followed_computes_nothing_common() -> None:
    """An operator of the ONNX domain that has floats on both sides is followed, but for the ones listed here."""
    rows = op_facts("onnx").values()
    found = {row.op for row in rows if row.transfer is None}
    assert found >= {"DFT", "STFT", "Det", "If", "Loop", "Scan"}
    assert not found & {"MatMul", "Conv", "Gemm", "Softmax", "Add", "ReduceSum", "LayerNormalization", "Gather"}
    assert set(dialects()) >= {"onnx", "com.microsoft"}


HOSTILE = (
    "y = ReduceSum<keepdims = 1>(x)",
    "z = Mul(x, huge)  w = Mul(z, huge)  y = Exp(w)",
    "z = Div(x, zero)  y = Log(z)",
    "z = Sub(x, x)  w = Div(x, z)  y = Sqrt(w)",
    "z = Pow(zero, x)  w = Pow(x, huge)  y = Pow(z, w)",
    "z = Clip(x, huge, zero)  y = Mul(z, z)",
    "z = Mul(x, nan)  y = ReduceMax<keepdims = 0>(z)",
)


@pytest.mark.parametrize("body", HOSTILE)
@pytest.mark.parametrize("shape", ["0", "1", "9223372036854775807,9223372036854775807", "N,N,N"])
def test_no_numbers_and_no_shapes_break_the_estimates(body: str, shape: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{shape}] x) => (float y) '
        f"<float huge = {{3e38}}, float zero = {{0}}, float nan = {{0}}> {{ {body} }}"
    )
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(np.array(np.nan, np.float32), "nan"))
    for low in (DType.FLOAT16, DType.BFLOAT16):
        graph, found = estimates_of(model, low)
        assert len(found.moments) == len(graph.values)


@pytest.mark.parametrize(
    "body", ["b = Transpose<perm = [2, 7, 1]>(a)", "b = ReduceSum<axes = [9]>(a)", "b = MatMul(a, a)"]
)
def test_ranks_that_contradict_each_other_leave_a_shape_open(body: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 11, "local" : 1]> g (float[4] x) => (float y) { y = local.part(x) } '
        f'<domain: "local", opset_import: ["" : 11]> part (a) => (c) {{ {body}  c = Relu(b) }}'
    )
    graph, found = estimates_of(model)
    assert len(found.moments) == len(graph.values)


@pytest.mark.parametrize("trips", [-(2**63), -1, 0, 1, 2**62])
def test_no_trip_count_breaks_the_estimates(trips: int) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) <int64 n = {1}, bool go = {1}> {'
        " y = Loop(n, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {"
        " d = Identity(c)  t = Add(s, s) }> }"
    )
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(trips, np.int64), "n"))
    graph, found = estimates_of(model)
    assert len(found.moments) == len(graph.values)


def test_an_assumption_changes_the_plan_and_stands_in_its_notes() -> None:
    model = parse("a = MatMul(x, w)  y = Mul(a, hundred)", "float[4,4] x, float[4,4] w")
    plain, told = mezzo.plan(model), mezzo.plan(model, assume={"x": "0..60000"})
    assert any("'x' unit scale (-4 to 4)" in note for note in plain.notes)
    assert any("'x' as asked (0 to 6e+04)" in note for note in told.notes)
    low = {name: [n.name for n in made.nodes if n.kind == "op" and str(n.precision.compute) == "f16"]
           for name, made in (("plain", plain), ("told", told))}  # fmt: skip
    assert len(low["plain"]) == 2 and not low["told"]


@pytest.mark.parametrize(
    ("assume", "message"),
    [
        ({"z": "0..1"}, "'z' is no input of the model; choose one of x"),
        ({"x": "1..0"}, "write the ends of what it holds as LO..HI"),
        ({"x": "0,1"}, "write the ends of what it holds as LO..HI"),
        ({"x": "0..inf"}, "write the ends of what it holds as LO..HI"),
    ],
)
def test_what_is_assumed_is_checked(assume: dict[str, str], message: str) -> None:
    with pytest.raises(mezzo.InputError, match=re.escape(message)):
        mezzo.plan(parse("y = Relu(x)"), assume=assume)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_rounding_of_numbers_is_that_of_the_format(dtype: DType) -> None:
    import ml_dtypes

    kind = np.float16 if dtype is DType.FLOAT16 else ml_dtypes.bfloat16
    numbers = [0.0, 1e-9, -3e-8, 6e-5, 1 / 3, -2.5, 2049.0, 65504.0, 65519.9, 65520.0, -1e5, 3.3e38, 1 - 1e-7]
    with np.errstate(over="ignore"):
        wanted = [float(np.float64(number).astype(kind)) for number in numbers]
    assert [rounded(number, FORMATS[dtype]) for number in numbers] == wanted
