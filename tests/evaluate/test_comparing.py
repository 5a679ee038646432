"""Two models on data: the same where they are, condemned where a precision ruins them, whatever they are named."""

import math
from itertools import count

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.api.compare import compare
from mezzo.common.errors import ContractError, InputError
from mezzo.numerics.measures import Ruling
from mezzo.onnx.measure import pairs

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
SCALE = """g (float[N,8] x) => (float[N,8] y) <float a = {900}, float b = {900}, float c = {0.00001}>
    { p = Mul(x, a)  q = Mul(p, b)  y = Mul(q, c) }"""
NORM = """g (float[N,64] x) => (float[N,64] y) <int64[1] axes = {-1}, float two = {2}, float eps = {EPS}> {
    m = ReduceMean(x, axes)  d = Sub(x, m)  s = Pow(d, two)  v = ReduceMean(s, axes)
    e = Add(v, eps)  r = Sqrt(e)  y = Div(d, r) }"""
MASK = """g (float[N,4,8] x, float[N,4,8] m) => (float[N,4,8] y) <float big = {-65504}, float one = {1}> {
    k = Sub(one, m)  b = Mul(k, big)  s = Add(x, b)  y = Softmax<axis=-1>(s) }"""
DENSE = """g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3.5}>
    { h = MatMul(x, w)  r = Relu(h)  y = Softmax<axis=-1>(r) }"""


def model(body, head=HEAD):
    return onnx.parser.parse_model(f"{head} {body}")


def random(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def naive(source, to="fp16"):
    return mezzo.convert(source, None, to=to, policy="aggressive", include=["*"], target="any").model


def mask_with_full_rows():
    mask = (np.random.default_rng(1).random((16, 4, 8)) > 0.3).astype(np.float32)
    mask[:, 1] = 0
    return mask


def constant_rows():
    return np.concatenate([random(12, 64), np.full((4, 64), 0.5, np.float32)])


TRAPS = {
    "overflow between": (SCALE, {"x": random(16, 8)}),
    "norm of 1e3": (NORM.replace("EPS", "1e-5"), {"x": random(16, 64, scale=1e3)}),
    "epsilon of 1e-12": (NORM.replace("EPS", "1e-12"), {"x": constant_rows()}),
    "masked rows": (MASK, {"x": random(16, 4, 8), "m": mask_with_full_rows()}),
}


@pytest.mark.parametrize("name", TRAPS)
def test_naive_conversions_are_condemned_in_the_true_precision(name):
    body, feeds = TRAPS[name]
    source = model(body)
    verdict = compare(source, naive(source), feeds).verdict
    assert not verdict.is_same, verdict
    assert "undecided" not in verdict.because
    assert compare(source, source, feeds).verdict.is_same


@pytest.mark.parametrize("name", ["overflow between", "norm of 1e3", "masked rows"])
def test_a_cpu_computes_fp16_in_fp32_and_sees_nothing(name):
    body, feeds = TRAPS[name]
    source = model(body)
    found = compare(source, naive(source), feeds, run="native")
    # Not a promise of ours: if a runtime starts to round, this says so and the page about comparing changes.
    assert found.verdict.is_same, found.verdict


@pytest.mark.parametrize("name", TRAPS)
def test_a_model_is_the_same_as_itself_in_every_precision(name):
    body, feeds = TRAPS[name]
    source = model(body)
    for typed in (source, naive(source), naive(source, "bf16")):
        found = compare(typed, typed, feeds, max_error=0.0)
        # A reference that is broken by its precision, as here, shows nothing, even of itself.
        (output,) = found.outputs
        assert found.verdict.ruling is (Ruling.SAME if output.unknown is None else Ruling.UNKNOWN)
        assert output.unknown is None or typed is not source
        assert (output.relative_l2.high, output.fault) == (0.0, None)
        assert all(layer.relative_l2.estimate == 0.0 and layer.fault is None for layer in found.layers)


def test_a_good_conversion_is_the_same_and_its_rounding_is_measured():
    source = model(DENSE)
    found = compare(source, mezzo.convert(source, None, target="any").model, {"x": random(40, 4)})
    assert found.verdict.is_same
    # One sum, one rounding of inputs and weights: some half units of FP16, and not nothing.
    assert 2.0**-14 < found.verdict.error.estimate < 2.0**-9
    assert (found.verdict.budget, found.verdict.budget_source) == (8 * 2.0**-10, "8 eps of f16")
    assert (found.data.batches, found.data.samples) == (1, 40)
    assert [output.name for output in found.outputs] == ["y"]
    assert [layer.name for layer in found.layers] == ["h", "r"]


def test_any_batches_give_the_same_comparison():
    source = model(DENSE)
    other = naive(source)
    x = random(40, 4)
    whole = compare(source, other, {"x": x})
    for batch_size in (1, 7, 39):
        split = compare(source, other, {"x": x}, batch_size=batch_size)
        # Roundings of FP64 sums over 40 samples; nothing else depends on the batch.
        assert math.isclose(whole.verdict.error.high, split.verdict.error.high, rel_tol=200 * 2.0**-52)
        assert whole.outputs[0].largest_ulp == split.outputs[0].largest_ulp
    assert split.data.batches == 2


def test_low_sums_are_emulated():
    source = model(DENSE)
    other, feeds = naive(source, "bf16"), {"x": random(40, 4)}
    plain, summed = (compare(source, other, feeds, accumulate=sums, tile=sums and 1) for sums in (None, "bf16"))
    assert summed.layers[0].relative_l2.estimate > plain.layers[0].relative_l2.estimate


RENAMED = """g (float16[B,4] input) => (float16[B,3] probabilities) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3.5}> {
    k = Cast<to=10>(w)  m = MatMul(input, k)  n = Relu(m)  probabilities = Softmax<axis=-1>(n) }"""


def test_other_names_are_matched_by_position_and_types_may_differ():
    found = compare(model(DENSE), model(RENAMED), {"x": random(20, 4)})
    assert found.verdict.is_same
    assert found.notes == (
        "input 'x' is 'input' in the model, matched by position",
        "output 'y' is 'probabilities' in the model, matched by position",
    )
    assert found.layers == ()


def test_fused_layers_and_other_opsets_compare():
    fused = model(
        """g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3.5}>
        { r = com.microsoft.FusedMatMul(x, w)  h = Relu(r)  y = Softmax<axis=-1>(h) }""",
        '<ir_version: 8, opset_import: ["" : 14, "com.microsoft" : 1]>',
    )
    assert compare(model(DENSE), fused, {"x": random(20, 4)}, layers=False).verdict.is_same


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (DENSE.replace("y", "z").replace("[N,3] z", "[N,5] z"),
         r"outputs differ: the reference gives 'y', which has no counterpart; the reference has 'y' \(f32\[N,3\]\) and "
         r"the model 'z' \(f32\[N,5\]\); compare models whose outputs match in name, or in number and shape"),
        ("g (float[N,4] x, float[N,3] b) => (float[N,3] y) { y = Identity(b) }", "inputs differ: the model needs 'b'"),
        ("g (int64[N] x) => (float[N] y) { y = Cast<to=1>(x) }",
         r"the model: input 'x': found f32\[5,4\], wanted i64\[N\]; feed an array of int64"),
    ],
)  # fmt: skip
def test_models_that_do_not_match_are_bad_input(body, message):
    with pytest.raises(InputError, match=message):
        compare(model(DENSE), model(body), {"x": random(5, 4)})


def test_inputs_that_were_optimised_away_and_further_outputs_are_noted():
    source = model("g (float[N,4] x, float[N] unused) => (float[N,4] y) { y = Relu(x) }")
    other = model("g (float[N,4] x) => (float[N,4] y, float[N,4] z) { y = Relu(x)  z = Neg(x) }")
    found = compare(source, other, {"x": random(5, 4), "unused": random(5)})
    assert found.notes == ("the model has no input 'unused'", "output 'z' is only in the model, not compared")
    assert found.verdict.is_same


def test_a_model_of_a_fixed_length_is_fed_that_much_at_a_time():
    fixed = model(DENSE.replace("[N,", "[2,"))
    x = {"x": random(6, 4)}
    for pair in ((model(DENSE), fixed), (fixed, model(DENSE))):
        found = compare(*pair, x)
        assert found.verdict.is_same and found.data.batches == 3


def test_shapes_that_differ_at_run_time_are_a_fault():
    one = model("g (float[N,4] x) => (float[A,B] y) { y = Relu(x) }")
    other = model("g (float[N,4] x) => (float[A,B] y) { y = Transpose(x) }")
    verdict = compare(one, other, {"x": random(5, 4)}, max_error=1e9).verdict
    assert verdict.because == "output 'y': shape [4, 5] where the reference has [5, 4]"


ARGMAX = "g (float[N,4] x) => (int64[N,1] y) { h = Mul(x, x)  y = ArgMax<axis=1>(h) }"


def test_integer_outputs_have_to_be_equal():
    source = model(ARGMAX)
    other = model(ARGMAX.replace("Mul(x, x)", "Neg(x)"))
    x = {"x": np.abs(random(10, 4))}
    assert compare(source, naive(source), x).verdict.is_same
    because = compare(source, other, x, max_error=1e9).verdict.because
    assert "10 of 10 labels are others, and of those that vary 99.9 % have to stay" in because


@pytest.mark.parametrize(("changed", "fault"), [(3, None), (40, "labels are others, and of those that vary 99 %")])
@pytest.mark.parametrize("mover", ["Identity(i)", "Cast<to = 6>(i)", "Transpose<perm = [1, 0]>(i)"])
def test_places_of_largest_numbers_are_labels_of_which_a_share_stays(
    changed: int, fault: str | None, mover: str
) -> None:
    """Rows whose two largest numbers FP16 makes one: the first of them is taken."""
    kind = "int32" if "Cast" in mover else "int64"
    source = model(f"g (float[N,4] x) => ({kind}[A,B] y) {{ h = Add(x, x) i = ArgMax<axis = 1>(h) y = {mover} }}")
    x = 1 + np.round(np.abs(random(1000, 4)), 1)
    x[:changed] = [1, 1, 1 + 2**-20, 1]
    comparison = compare(source, naive(source), {"x": x.astype(np.float32)})
    if fault is None:
        assert comparison.verdict.is_same and comparison.outputs[0].worry == f"{changed} of 1000 labels are others"
    else:
        assert comparison.outputs[0].fault is not None and fault in comparison.outputs[0].fault


def test_labels_that_hardly_vary_have_to_stay() -> None:
    """All rows but two choose the last class, and lose these two."""
    source = model("g (float[N,4] x) => (int64[N,1] y) { h = Add(x, x) y = ArgMax<axis = 1>(h) }")
    x = np.tile(np.array([1, 1, 1, 2], np.float32), (1000, 1))
    x[:2] = [1, 1, 1 + 2**-20, 1]
    because = compare(source, naive(source), {"x": x}).verdict.because
    assert "2 of 1000 labels are others" in because


def test_integers_that_are_no_places_have_to_be_equal() -> None:
    source = model("g (float[N,4] x) => (int64[N,4] y) { h = Add(x, x) y = Cast<to = 7>(h) }")
    x = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    x[0, 0] = 1025.5  # half of what FP16 doubles to an odd number
    assert "only equal ones are right" in compare(source, naive(source), {"x": x}).verdict.because


CONTROL = """g (float[N,4] x, bool c) => (float[N,4] y, seq(float[N,4]) s) {
    h = Mul(x, x)
    y = If (c) <then_branch = t () => (float[N,4] a) { a = Sqrt(h) },
                else_branch = e () => (float[N,4] b) { b = Neg(h) }>
    s = SequenceConstruct(h, y) }"""


def test_bodies_and_sequences_compare():
    source = model(CONTROL)
    feeds = [{"x": random(6, 4), "c": np.array(choice)} for choice in (True, False)]
    found = compare(source, source, feeds)
    assert found.verdict.is_same and [output.name for output in found.outputs] == ["y", "s"]
    low = compare(source, naive(source), feeds)
    assert low.verdict.is_same and low.outputs[1].relative_l2.estimate > 0


LOCAL = """<ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
    g (float[N,4] x) => (float[N,4] y) { h = mine.twice(x)  y = Relu(h) }
    <domain: "mine", opset_import: ["" : 18]> twice (a) => (b) { b = Add(a, a) }"""


def test_functions_are_looked_into():
    source = onnx.parser.parse_model(LOCAL)
    found = compare(source, naive(source), {"x": random(6, 4)})
    assert found.verdict.is_same and [layer.name for layer in found.layers] == ["h"]


def test_models_without_inputs_or_floats_compare():
    empty = model("g () => (int64[2] y) { y = Constant<value = int64[2] {1, 2}>() }")
    found = compare(empty, empty, [{}])
    assert found.verdict.is_same and (found.verdict.noise, found.layers) == (0.0, ())


def test_masks_of_minus_infinity_stand_in_both():
    source = model("""g (float[N,4] x) => (float[N,4] y) <float[4] m = {0, 0, -1, 0}, float zero = {0}>
        { b = Div(m, zero)  k = Less(m, zero)  y = Where(k, b, x) }""")
    assert compare(source, source, {"x": random(6, 4)}).verdict.is_same


def test_a_reference_that_is_hollow_is_told():
    source = model("g (float[N,4] x) => (float[N,4] y) { y = Log(x) }")
    found = compare(source, source, {"x": -np.abs(random(6, 4))})
    assert found.verdict.because == "output 'y' is nothing but NaN and infinities in the reference"


def test_without_a_sample_nothing_can_be_told_and_without_a_batch_the_data_is_at_fault():
    found = compare(model(DENSE), model(DENSE), {"x": np.zeros((0, 4), np.float32)})
    assert (found.verdict.ruling, found.outputs, found.data.samples) == (Ruling.UNKNOWN, (), 0)
    assert found.verdict.because == "the data holds no sample"
    with pytest.raises(InputError, match="batches: found no batch; give at least one"):
        compare(model(DENSE), model(DENSE), [])


def test_batches_without_a_sample_are_left_out():
    empty, full = {"x": np.zeros((0, 4), np.float32)}, {"x": random(6, 4)}
    found = compare(model(DENSE), naive(model(DENSE)), [empty, full, empty])
    assert found.outputs == compare(model(DENSE), naive(model(DENSE)), [full]).outputs
    assert found.verdict.is_same and found.notes == ("2 of 3 batches hold no sample and were left out",)


def test_a_budget_below_the_noise_is_raised():
    source = model(NORM.replace("EPS", "1e-5"))
    found = compare(source, source, {"x": random(9, 64)}, max_error=1e-12)
    assert found.verdict.budget == found.verdict.noise > 2.0**-30
    assert "the noise of FP32 itself" in found.verdict.budget_source


def test_noise_of_a_scalar_output_is_finite():
    source = model("g (float[8] x) => (float y) <float n = {7.3}> { s = ReduceSum<keepdims=0>(x)  y = Div(s, n) }")
    assert compare(source, source, [{"x": random(8)}]).verdict.noise < 2.0**-20


def test_noise_comes_from_weights_where_inputs_are_integers():
    source = model("""g (int64[N] i) => (float[N,2] y) <float[4,2] w = {1.1,2.2,3.3,4.4,5.5,6.6,7.7,8.8}>
        { h = Gather(w, i)  y = Exp(h) }""")
    assert compare(source, source, {"i": np.arange(4)}).verdict.noise > 2.0**-30


def test_ill_conditioned_references_are_told():
    source = model(NORM.replace("EPS", "1e-12"))
    assert "it is ill-conditioned on this data" in compare(source, source, {"x": constant_rows()}).notes[-1]


def test_layers_beyond_the_memory_take_passes_of_their_own(monkeypatch):
    source = model(DENSE)
    x = [{"x": random(5, 4, seed=seed)} for seed in range(3)]
    whole = compare(source, naive(source), x)
    monkeypatch.setattr(pairs, "_CHUNK_BYTES", 100)
    parts = compare(source, naive(source), x)
    assert (parts.layers, parts.outputs, parts.notes) == (whole.layers, whole.outputs, ())
    once = compare(source, naive(source), iter(x))
    assert (once.layers, once.notes) == (whole.layers, ())


def test_data_is_read_batch_by_batch_and_once():
    made = count()

    def batches():
        for seed in range(3):
            next(made)
            yield {"x": random(5, 4, seed=seed)}

    source = model(DENSE)
    assert compare(source, naive(source), batches(), metric=lambda outputs, labels: 1.0).data.samples == 15
    assert next(made) == 3


def accuracy(outputs, labels):
    return outputs["y"].argmax(1) == labels["t"]


def test_the_users_metric_decides_with_a_drop():
    source = model(DENSE)
    x = random(200, 4)
    right = (np.maximum(x @ np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 2, 3.5]]), 0)).argmax(1)
    data = {"x": x, "t": right}
    options = {"labels": ["t"], "metric": accuracy}
    same = compare(source, naive(source), data, max_drop="0.5%", **options)
    assert same.verdict.is_same and same.metric.name == "accuracy" and same.metric.reference == 1.0
    other = model(DENSE.replace("{1,2,3", "{1,2,-3"))
    worse = compare(source, other, data, max_drop="0.5%", **options)
    assert not worse.verdict.is_same and worse.verdict.because.startswith("accuracy drops by 0.")
    assert worse.metric.drop == pytest.approx(worse.verdict.error.estimate)
    assert not compare(source, other, data, max_drop="100%", max_error=1e-6, **options).verdict.is_same
    assert compare(source, other, data, max_error=9.0, **options).verdict.is_same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "fast"}, "run 'fast' is unknown; choose one of emulated, native"),
        ({"accumulate": "fp8"}, "accumulate is 'fp8'; fp8 is what operators are quantized to"),
        ({"tile": 4}, "tile is 4 without accumulate"),
        ({"accumulate": "bf16", "tile": 0}, "tile is 0; give 1 or more"),
        ({"accumulate": "bf16", "run": "native"}, "only an emulated run rounds its sums"),
        ({"max_drop": "1%"}, "max_drop is 1% of no metric; name one with metric="),
        ({"max_error": -1}, "max_error is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"labels": ["t"]}, "found nothing for 't'"),
    ],
)
def test_wrong_options_are_said(options, message):
    with pytest.raises(InputError, match=message):
        compare(model(DENSE), model(DENSE), {"x": random(5, 4)}, **options)


UNKNOWN = """<ir_version: 10, opset_import: ["" : 18, "far.away" : 1]>
    g (float[N,4] x) => (float[N,3] y) { y = far.away.Thing(x) }"""


def test_a_reference_that_does_not_run_is_bad_input_and_a_model_that_does_not_is_refused():
    broken = onnx.parser.parse_model(UNKNOWN)
    with pytest.raises(InputError, match="the reference: the model works neither"):
        compare(broken, model(DENSE), {"x": random(5, 4)})
    with pytest.raises(ContractError, match="the model: the model works neither"):
        compare(model(DENSE), broken, {"x": random(5, 4)})


def test_a_constant_output_is_condemned_whatever_the_budget():
    dead = model("g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {0,0,0,0,0,0,0,0,0,0,0,0}> { y = MatMul(x, w) }")
    verdict = compare(model(DENSE), dead, {"x": random(5, 4)}, max_error=1e9).verdict
    assert (verdict.is_same, verdict.because) == (False, "output 'y': all zero, and the reference is not")
