"""Ranges equal what numpy finds in the values themselves, wherever they stand: exactly unless said otherwise."""

import numpy as np
import onnx
import onnx.parser
import pytest

from mezzo.api.ranges import ranges
from mezzo.common.errors import ContractError
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import Ranges, ValueRange
from mezzo.onnx.measure import instruments


def one(result: Ranges, value: str) -> ValueRange:
    return next(held for held in result.values if held.value == value)


def check(held: ValueRange, *arrays: np.ndarray) -> None:
    """The range is exactly that of the arrays, which one batch or many showed."""
    numbers = np.concatenate([array.ravel() for array in arrays])
    finite = numbers[np.isfinite(numbers)]
    assert (held.minimum, held.maximum) == (finite.min(), finite.max()), held.value
    assert held.count == numbers.size
    assert held.has_nan == np.isnan(numbers).any()
    assert held.has_infinity == np.isinf(numbers).any()


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


_BRANCHES = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x, bool which) => (float[N, 4] y) {
    y = If (which) <then_branch = yes () => (float[N, 4] a) { a = Add(x, x) },
                    else_branch = no () => (float[N, 4] b) { c = Neg(x)  b = Mul(c, c) }> }"""


def test_a_branch_is_measured_when_it_runs() -> None:
    x = [np.float32([[1, -2, 3, -4]]), np.float32([[5, 6, 7, 8]])]
    result = ranges(parse(_BRANCHES), [{"x": x[0], "which": True}, {"x": x[1], "which": False}])
    check(one(result, "a"), x[0] + x[0])
    check(one(result, "c"), -x[1])
    check(one(result, "b"), x[1] * x[1])
    check(one(result, "y"), x[0] + x[0], x[1] * x[1])
    assert one(result, "a").largest_at == "batch 0"


def test_a_branch_that_never_ran_holds_nothing() -> None:
    held = one(ranges(parse(_BRANCHES), [{"x": np.ones((2, 4), np.float32), "which": True}]), "c")
    assert (held.count, held.sampled, held.minimum, held.maximum, held.quantiles) == (0, 0, 0.0, 0.0, ())


_LOOPS = """<ir_version: 8, opset_import: ["": %d]> g (float[4] x, int64 n, int64 m) => (float[4] y, float[K, 4] z) {
    go = Constant <value = bool {1}> ()
    y, z = Loop (n, go, x) <body = outer (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] w) {
        d = Identity(c)
        t = Loop (m, c, s) <body = inner (int64 j, bool e, float[4] p) => (bool f, float[4] q) {
            f = Identity(e)  q = Add(p, x) }>
        w = Neg(t) }> }"""


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
@pytest.mark.parametrize(("outer", "inner"), [(3, 2), (0, 2), (2, 0), (5, 40)])
def test_loops_in_loops_are_measured_over_all_iterations(opset: int, outer: int, inner: int) -> None:
    x = np.float32([1, -2, 4, 0.5])
    result = ranges(parse(_LOOPS % opset), [{"x": x, "n": outer, "m": inner}])
    inside = [x * np.float32(k) for k in range(2, outer * inner + 2)]
    if not inside:
        assert one(result, "q").count == 0
    else:
        check(one(result, "q"), *inside)
        wanted = np.median(np.abs(np.concatenate(inside)))
        # 64 of up to 800 numbers are sampled in each of the loops: the median stays between the quartiles.
        low, high = np.quantile(np.abs(np.concatenate(inside)), [0.25, 0.75])
        assert low <= dict(one(result, "q").quantiles)[0.5] <= max(high, wanted * 1.125)
    if outer:
        check(one(result, "w"), *(-x * np.float32(inner * k + 1) for k in range(1, outer + 1)))


def test_a_scan_is_measured_slice_by_slice_and_keeps_its_directions() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[T, 3] x) => (float[3] s, float[T, 3] y) {
        zero = Constant <value = float[3] {0, 0, 0}> ()
        s, y = Scan (zero, x) <num_scan_inputs = 1, scan_output_directions = [1], scan_output_axes = [0],
            body = step (float[3] c, float[3] v) => (float[3] d, float[3] o) { d = Add(c, v)  o = Exp(v) }> }""")
    x = np.float32([[1, 2, 3], [-4, 5, 6], [0.5, 0, -9]])
    result = ranges(model, [{"x": x}])
    check(one(result, "d"), np.cumsum(x, 0))
    check(one(result, "v"), x)
    check(one(result, "s"), x.sum(0))
    assert one(result, "y").count == one(result, "o").count == 9
    assert one(result, "y").maximum == one(result, "o").maximum
    assert result.skipped == ()


@pytest.mark.parametrize("length", [0, 1, 3])
def test_the_body_of_a_sequence_map_is_measured(length: int) -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (seq(float[4]) x, float[4] w) => (seq(float[4]) y) {
        y = SequenceMap (x) <body = each (float[4] a) => (float[4] b) { c = Mul(a, w)  b = Neg(c) }> }""")
    x = [np.float32([k, -2, 3, 4]) for k in range(length)]
    w = np.float32([2, 3, 5, 7])
    result = ranges(model, [{"x": x, "w": w}])
    if length:
        check(one(result, "c"), *(a * w for a in x))
        check(one(result, "b"), *(-(a * w) for a in x))
    else:
        assert one(result, "c").count == 0
    assert result.skipped == ("input 'x': is no plain tensor",)


def test_calls_of_a_function_are_measured_one_by_one() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[4] x) => (float[4] y) {
        h = own.twice(x)  y = own.twice(h) }
        <opset_import: ["": 17], domain: "own"> twice (a) => (b) { c = Add(a, a)  b = Identity(c) }""")
    x = np.float32([1, 2, -3, 4])
    result = ranges(model, [{"x": x}])
    both = [held for held in result.values if held.value == "c"]
    check(both[0], 2 * x)
    check(both[1], 4 * x)
    assert both[0].node != both[1].node
    check(one(result, "h"), 2 * x)
    check(one(result, "y"), 4 * x)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 17, 18, 20, 21, 22])
def test_every_opset_is_measured(opset: int) -> None:
    version = 10 if opset > 20 else 8
    model = parse(f"""<ir_version: {version}, opset_import: ["": {opset}]> g (float[N, 100] x) => (float[N, 100] y) {{
        a = Add(x, x)  y = Sigmoid(a) }}""")
    x = np.linspace(-3, 5, 5000, dtype=np.float32).reshape(50, 100)
    result = ranges(model, [{"x": x}] * 2)
    check(one(result, "a"), x + x, x + x)


def test_infinities_and_nan_are_told_and_extremes_are_of_the_rest() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[N, 100] x) => (float[N, 100] y) {
        a = Mul(x, x)  y = Neg(a) }""")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((90, 100)).astype(np.float32) for _ in range(4)]
    arrays[1][3, 4] = np.inf
    arrays[2][5, 6] = np.nan
    arrays[3][:] = -np.inf
    with np.errstate(all="ignore"):
        result = ranges(model, [{"x": array} for array in arrays])
        for name, made in (("x", arrays), ("a", [a * a for a in arrays]), ("y", [-(a * a) for a in arrays])):
            check(one(result, name), *made)


def test_nothing_but_nan_has_no_extremes() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }')
    held = one(ranges(model, [{"x": np.full(9000, np.nan, np.float32)}]), "y")
    assert (held.minimum, held.maximum, held.has_nan, held.has_infinity, held.sampled) == (0.0, 0.0, True, False, 0)


@pytest.mark.parametrize("shapes", [[(0, 100)], [(90, 100), (0, 100), (80, 100)], [(0, 100), (90, 100)]])
def test_empty_tensors_are_measured_with_the_others(shapes: list[tuple[int, int]]) -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[N, 100] x, int64 n) => (float[N, 100] y) {
        go = Constant <value = bool {1}> ()
        s = Loop (n, go, x) <body = b (int64 i, bool c, float[M, 100] p) => (bool d, float[M, 100] q) {
            d = Identity(c)  q = Exp(p) }>
        y = Neg(s) }""")
    arrays = [np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    result = ranges(model, [{"x": array, "n": 2} for array in arrays])
    if not any(array.size for array in arrays):
        assert result.unknown == ("the data holds no sample",) and not result.values
        return
    assert one(result, "y").count == sum(array.size for array in arrays)
    assert one(result, "q").count == 2 * one(result, "y").count
    check(one(result, "x"), *arrays)


def test_one_symbol_may_stand_for_two_lengths() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[N] x, float[N] w) => (float[M] y) {
        a = Neg(x)  b = Neg(w)  y = Concat <axis = 0> (a, b) }""")
    x, w = np.arange(5000, dtype=np.float32), np.arange(9000, dtype=np.float32)
    result = ranges(model, [{"x": x, "w": w}, {"x": w, "w": x}])
    check(one(result, "a"), -x, -w)
    check(one(result, "y"), -x, -w, -w, -x)


def test_what_a_model_declares_of_its_values_may_be_wrong() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[7] y)
        <float[3] a> { a = Neg(x)  y = Exp(a) }""")
    x = np.linspace(-1, 1, 9000, dtype=np.float32)
    check(one(ranges(model, [{"x": x}]), "a"), -x)


def test_what_a_branch_declares_of_its_result_may_be_wrong() -> None:
    """Both branches say N, which the input also says; one of them gives twice as many."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[N] x, bool w) => (float[M] y) {
        h = If (w) <then_branch = one () => (float[N] a) { a = Neg(x) },
                    else_branch = two () => (float[N] b) { b = Concat <axis = 0> (x, x) }>
        k = Neg(x)  y = Exp(h) }""")
    x = np.linspace(-1, 1, 300, dtype=np.float32)
    result = ranges(model, [{"x": x, "w": False}, {"x": x, "w": True}])
    check(one(result, "h"), x, x, -x)
    check(one(result, "k"), -x, -x)


def test_batches_that_grow_stay_sampled() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Neg(x) }')
    arrays = [np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in (10, 1000, 100_000, 30)]
    held = one(ranges(model, [{"x": array} for array in arrays]), "y")
    check(held, *(-array for array in arrays))
    assert held.sampled < 6000


def test_low_types_are_measured_before_they_are_rounded() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float16[4] x) => (float16[4] y) { y = Mul(x, x) }""")
    held = one(ranges(model, [{"x": np.float16([300, 2, 3, 4])}]), "y")
    assert held.maximum == 90000.0
    assert held.formats[DType.FLOAT16].beyond == 0.25


def test_odd_names_are_kept() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y) { y = Neg(x) }')
    model.graph.node[0].output[0] = model.graph.output[0].name = "range_1 \n/ü:0"
    held = ranges(model, [{"x": np.float32([1, 2, 3, 4])}]).values[-1]
    assert held.value == "range_1 \n/ü:0"


def test_a_model_without_floats_has_no_ranges() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (int64[4] x) => (int64[4] y) { y = Neg(x) }')
    result = ranges(model, [{"x": np.arange(4)}])
    assert (result.values, result.skipped, result.data.batches) == ((), (), 1)


def test_doubles_are_named_as_not_measured() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (double[4] x) => (double[4] y) { y = Neg(x) }')
    assert ranges(model, [{"x": np.arange(4.0)}]).skipped == (
        "input 'x': is f64, and only f32, f16 and bf16 are measured",
        "value 'y': is f64, and only f32, f16 and bf16 are measured",
    )


def test_an_unknown_operator_is_refused_in_one_line() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "nobody.knows": 1]>
        g (float[4] x) => (float[4] y) { y = nobody.knows.Op(x) }""")
    with pytest.raises(ContractError, match="does not load in onnxruntime") as raised:
        ranges(model, [{"x": np.float32([1, 2, 3, 4])}])
    assert "\n" not in str(raised.value)


def test_what_comes_out_does_not_grow_with_the_tensors() -> None:
    model = parse('<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Exp(x) }')
    from mezzo.onnx.opening import open_model

    x = np.zeros(1_000_000, np.float32)
    measured = instruments.OnnxInstruments(open_model(model), {"x": x})
    assert len(measured.run({"x": x}, 0, 256).samples) == 2 * 256


def test_large_tensors_are_measured_by_rows() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[N, 3, 32, 32] x) => (float[N, 32, 32, 3] y) {
        a = Mul(x, x)  b = Relu(x)  y = Transpose <perm = [0, 2, 3, 1]> (a) }""")
    x = np.random.default_rng(0).standard_normal((200, 3, 32, 32)).astype(np.float32)
    odd = x.copy()
    odd[199, 2, 31, 31] = -np.inf
    result = ranges(model, [{"x": x}, {"x": odd}])
    check(one(result, "a"), x * x, odd * odd)
    check(one(result, "b"), np.maximum(x, 0), np.maximum(odd, 0))
    check(one(result, "y"), x * x, odd * odd)
    # 2,048 of 614,400 numbers in each batch: the share above the median is off by 1 %, and a bin is an eighth wide.
    assert dict(one(result, "a").quantiles)[0.5] == pytest.approx(np.median(x * x), rel=0.25)
