"""Values past FP16's range are stored times powers of two, and what cannot be scaled is protected."""

import itertools
import json
import random
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import mezzo
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.onnx.protos.metadata import result_exponents
from mezzo.onnx.run.emulation import emulated_session
from mezzo.tuning.repair import range_repair, repair_scales

_HEAD = '<ir_version: 10, opset_import: ["" : 23]>\n'


def _model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_HEAD + text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    return model


def _normal(seed: int, *shape: int, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape) * size


def _batches(count: int = 4, width: int = 32) -> list[dict[str, np.ndarray]]:
    return [{"x": _normal(100 + n, 16, width).astype(np.float32)} for n in range(count)]


def _scales(made: mezzo.Converted) -> dict[str, int]:
    return {each.value: each.exponent for each in made.plan.scaled}


def _kept_high(made: mezzo.Converted) -> set[str]:
    return {n.name for n in made.plan.nodes if n.kind == "op" and n.precision.compute is DType.FLOAT32}


_MLP = """g (float[N,32] x) => (float[N,8] y) {
    [up] h = MatMul(x, u)  [bias] b = Add(h, c)  [act] r = Relu(b)  [down] y = MatMul(r, d) }"""


def _mlp() -> onnx.ModelProto:
    return _model(_MLP, u=_normal(1, 32, 64, size=4e3), c=_normal(2, 64), d=_normal(3, 64, 8, size=2e-3))


def test_a_layer_past_the_range_runs_low_as_a_whole() -> None:
    model = _mlp()
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any")
    assert _kept_high(made) == set()
    assert set(_scales(made)) == {"h", "b", "r"} and len({*_scales(made).values()}) == 1
    assert made.plan.scaled[0].because.startswith("'h' holds ") or "'b' holds " in made.plan.scaled[0].because
    # Four products of FP16 on top of each other, 2 eps each at most.
    assert made.measured.comparison.verdict.error.estimate < 8 * 2.0**-11
    fresh = {"x": _normal(900, 16, 32).astype(np.float32)}
    low = emulated_session(made.model).run(fresh)["y"].astype(np.float64)
    assert np.isfinite(low).all()
    kept = mezzo.convert(model, data=_batches(), policy="aggressive", target="any", out_of_range="protect")
    assert _kept_high(kept) == {"up", "bias", "act", "down"} and not kept.plan.scaled


_STREAM = """g (float[N,32] x) => (float[N,8] y) {
    [embed] e = MatMul(x, u)
    [norm1] n = LayerNormalization(e, one, zero)
    [block] f = MatMul(n, w)
    [sum]   s = Add(e, f)
    [norm2] m = LayerNormalization(s, one, zero)
    [head]  y = MatMul(m, d) }"""


def test_a_residual_stream_is_scaled_with_the_epsilons_of_its_norms() -> None:
    model = _model(
        _STREAM, u=_normal(1, 32, 32, size=4e3), w=_normal(2, 32, 32, size=2e3), d=_normal(3, 32, 8),
        one=np.ones(32), zero=np.zeros(32),
    )  # fmt: skip
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any")
    scales = _scales(made)
    assert set(scales) == {"e", "f", "s"} and len({*scales.values()}) == 1
    nodes = {node.name: node for node in made.model.graph.node}
    epsilons = {a.f for name in ("norm1", "norm2") for a in nodes[name].attribute if a.name == "epsilon"}
    assert epsilons == {float(np.ldexp(np.float32(1e-5), -2 * scales["e"]))}
    assert not any(node.op_type == "Mul" for node in made.model.graph.node)
    assert result_exponents(made.model) == scales


_GATE = """g (float[N,32] x) => (float[N,8] y) {
    [gate] g0 = MatMul(x, w)  [sig] g1 = Sigmoid(g0)  [silu] g2 = Mul(g0, g1)
    [up] u0 = MatMul(x, u)    [prod] p = Mul(g2, u0)  [down] y = MatMul(p, d) }"""


def test_a_product_past_the_range_scales_the_larger_operand_alone() -> None:
    model = _model(_GATE, w=_normal(1, 32, 64, size=3), u=_normal(2, 32, 64, size=900), d=_normal(3, 64, 8, size=1e-2))
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any")
    assert set(_scales(made)) == {"u0", "p"}
    assert _kept_high(made) == set() and not any(name.startswith("two_to") for name in _names(made.model))


def _names(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer]


_EXPONENTIAL = """g (float[N,32] x) => (float[N,8] y) {
    [up] h = MatMul(x, u)  [neg] a = Abs(h)  [log] l = Log(a)  [down] y = MatMul(l, d) }"""


def test_what_meets_an_operator_without_scales_is_multiplied_there_or_protected() -> None:
    """The logarithm takes the value as it is, which FP16 does not hold: it stays in FP32, the product does not."""
    model = _model(_EXPONENTIAL, u=_normal(1, 32, 64, size=4e3), d=_normal(3, 64, 8))
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any", include=["log"])
    assert "log" in _kept_high(made) and made.measured.comparison.verdict.is_same


_MASKED = """g (float[N,32] x) => (float[N,32] y) {
    [logits] h = MatMul(x, u)  [mask] m = Add(h, far)  [soft] p = Softmax(m)  [last] y = MatMul(p, d) }"""


def test_a_mask_is_no_range() -> None:
    """-1e9 beside logits of ordinary size: nothing overflows that matters."""
    far = np.where(np.arange(32) % 3 == 0, -1e9, 0.0)
    model = _model(_MASKED, u=_normal(1, 32, 32), d=_normal(2, 32, 32), far=far)
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any")
    assert made.plan.scaled == ()


def test_no_weight_loses_bits_for_a_scale() -> None:
    """The weight that would be divided is near FP16's subnormal numbers already."""
    model = _model(_MLP, u=_normal(1, 32, 64, size=4e3), c=_normal(2, 64), d=_normal(3, 64, 8, size=2e-3))
    tiny = _model(_STREAM, u=_normal(1, 32, 32, size=1e-5), w=_normal(2, 32, 32, size=4e3), d=_normal(3, 32, 8),
                  one=np.ones(32), zero=np.zeros(32))  # fmt: skip
    assert mezzo.convert(model, data=_batches(), policy="aggressive", target="any").plan.scaled
    assert mezzo.convert(tiny, data=_batches(), policy="aggressive", target="any").plan.scaled == ()


def test_nothing_is_scaled_where_nothing_overflows_nor_for_bf16() -> None:
    small = _model(_MLP, u=_normal(1, 32, 64), c=_normal(2, 64), d=_normal(3, 64, 8))
    for model, to in ((small, "fp16"), (_mlp(), "bf16")):
        assert mezzo.convert(model, to=to, data=_batches(), policy="aggressive", target="any").plan.scaled == ()


def test_a_plan_is_replayed_without_data_byte_for_byte(tmp_path: Path) -> None:
    made = mezzo.convert(_mlp(), data=_batches(), policy="aggressive", target="any", provenance=False)
    made.plan.save(tmp_path / "plan.json")
    again = mezzo.convert(_mlp(), plan=tmp_path / "plan.json", provenance=False)
    assert again.model.SerializeToString() == made.model.SerializeToString()
    assert again.plan.scaled == made.plan.scaled


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scaled: scaled["h"].update(exponent=100000), "wanted a number from -120 to 120"),
        (lambda scaled: scaled["h"].update(exponent=True), "wanted a number"),
        (lambda scaled: scaled.update(h=4), "wanted an exponent and because"),
        (lambda scaled: scaled.update(nowhere={"exponent": 1, "because": ""}), "which the model has not"),
        (lambda scaled: scaled["h"].update(exponent=1), "was made for another model"),
        (lambda scaled: scaled.update(x={"exponent": 1, "because": ""}), "do not fit the model: the results of"),
    ],
)
def test_an_altered_plan_is_refused_in_one_line(tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "plan.json"
    mezzo.convert(_mlp(), data=_batches(), policy="aggressive", target="any").plan.save(path)
    document = json.loads(path.read_text())
    change(document["scaled"])  # type: ignore[operator]  # a function of the case
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message) as caught:
        mezzo.convert(_mlp(), plan=path)
    assert "\n" not in str(caught.value)


def test_layers_are_compared_at_their_true_size() -> None:
    model = _mlp()
    made = mezzo.convert(model, data=_batches(), policy="aggressive", target="any")
    found = mezzo.compare(model, made.model, _batches())
    layers = {layer.name: layer.relative_l2.estimate for layer in found.layers}
    # Two roundings of FP16 in a row, 2 eps each at most.
    assert layers.keys() == {"h", "b", "r"} and max(layers.values()) < 4 * 2.0**-11


def test_tune_repairs_what_pays() -> None:
    """Of the small model, conversions at its ends cost more than its layers gain: nothing is scaled."""
    assert mezzo.tune(_mlp(), to="fp16", data=_batches(), max_error=5e-3, target="any").plan.scaled == ()
    large = _model(_MLP, u=_normal(1, 32, 512, size=4e3), c=_normal(2, 512), d=_normal(3, 512, 8, size=1e-3))
    made = mezzo.tune(large, to="fp16", data=_batches(), max_error=5e-3, target="any")
    assert _kept_high(made) == set() and _scales(made).keys() == {"h", "b", "r"}
    assert made.measured.search.is_within_budget


def test_a_repaired_model_is_left_as_it_is() -> None:
    made = mezzo.convert(_mlp(), data=_batches(), policy="aggressive", target="any")
    again = mezzo.convert(made.model, data=_batches(), policy="aggressive", target="any")
    assert again.model.SerializeToString() == made.model.SerializeToString()


def test_without_data_what_estimates_suspect_is_scaled() -> None:
    """Plausible inputs, of unit size, lead past the range; the exact sizes are unknown, the scale costs nothing."""
    made = mezzo.convert(_mlp(), target="any")
    assert _kept_high(made) == set() and _scales(made).keys() == {"h", "b", "r"}
    assert "may hold" in made.plan.scaled[0].because
    assert mezzo.plan(_mlp(), target="any").scaled == made.plan.scaled
    assert mezzo.convert(_mlp(), target="any", out_of_range="protect").plan.scaled == ()
    found = mezzo.compare(_mlp(), made.model, _batches())
    assert found.verdict.is_same


def _random_chain(rng: random.Random) -> onnx.ModelProto:
    """Products of sizes from 1e-6 to 1e6, activations, functions without scales, sums and products of two values."""
    weights: dict[str, np.ndarray] = {}
    lines, value, width, earlier = list[str](), "x", 32, list[str]()
    for number in range(rng.randint(4, 9)):
        kind, result = rng.choice(("MatMul", "MatMul", "MatMul", "one", "bent", "Add", "Mul")), f"v{number}"
        if kind == "MatMul":
            name, count = f"w{number}", rng.choice((16, 32, 64, 256))
            size = 10 ** rng.uniform(-6, 6) / np.sqrt(width)
            weights[name] = _normal(rng.randrange(1 << 30), width, count, size=size)
            lines.append(f"{result} = MatMul({value}, {name})")
            width, earlier = count, []
        elif kind in ("Add", "Mul") and earlier:
            lines.append(f"{result} = {kind}({value}, {rng.choice(earlier)})")
        else:
            names = ("Tanh", "Sigmoid", "Softplus", "Softmax") if kind == "bent" else ("Relu", "Abs", "Neg")
            lines.append(f"{result} = {rng.choice(names)}({value})")
        value = result
        earlier.append(value)
    weights["last"] = _normal(1, width, 8)
    body = "  ".join([*lines, f"y = MatMul({value}, last)"])
    return _model(f"g (float[N,32] x) => (float[N,8] y) {{ {body} }}", **weights)


def test_repairs_that_are_chosen_cost_least_of_all_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sets are tried here whose constants have room."""
    tried, choose = list[int](), range_repair._Trials.best

    def check(self: range_repair._Trials, repairs: list[repair_scales.Repair]) -> list[repair_scales.Repair]:
        best = choose(self, list(repairs))
        sets = [[*chosen] for count in range(len(repairs) + 1) for chosen in itertools.combinations(repairs, count)]
        assert self.cost(best) <= min(self.cost(chosen) for chosen in sets if self._scales.fitted(chosen) == chosen)
        tried.append(len(repairs))
        return best

    monkeypatch.setattr(range_repair._Trials, "best", check)
    for seed in range(18):
        mezzo.convert(_random_chain(random.Random(seed)), to="fp16", data=_batches(), target="any", policy="aggressive")
    assert len(tried) > 4 and sum(count > 1 for count in tried) > 2


_FAINT = """g (float[N,32] x) => (float[N,8] y) {
    [up] h = MatMul(x, u)  [norm] n = LayerNormalization(h, one, zero)  [mid] m = MatMul(n, w)  [act] r = Relu(m)
    [last] y = MatMul(r, d) }"""


def test_a_scale_leaves_constants_their_bits() -> None:
    """With the margin the first weight would be too faint, and without it, it is not: only its own repair gives way."""
    u = _normal(1, 32, 64, size=0.3)
    large = [{"x": batch["x"] * np.float32(1.3e6)} for batch in _batches()]
    model = _model(_FAINT, u=u, w=_normal(2, 64, 64, size=3e3), one=np.ones(64), zero=np.zeros(64), d=_normal(3, 64, 8))
    made = mezzo.convert(model, data=large, policy="aggressive", target="any")
    weight = next(t for t in made.model.graph.initializer if t.name.startswith("u"))
    assert {"h", "m", "r"} <= _scales(made).keys()
    assert np.sqrt(np.mean(np.square(onnx.numpy_helper.to_array(weight).astype(np.float32)))) > 8 * 2.0**-14


def test_what_a_large_input_becomes_is_multiplied_once() -> None:
    """A graph input past the range cannot be scaled; what only keeps its size can, behind one multiplication."""
    text = "g (float[N,32] x) => (float[N,8] y) { [act] r = Relu(x)  [neg] n = Neg(r)  [down] y = MatMul(n, d) }"
    large = [{"x": batch["x"] * np.float32(1e6)} for batch in _batches()]
    made = mezzo.convert(_model(text, d=_normal(3, 32, 8, size=1e-3)), data=large, policy="aggressive", target="any")
    assert _scales(made).keys() == {"r", "n"} and _kept_high(made) == {"x_scaled_mul"}


def test_weights_in_files_are_scaled_as_they_are_written(tmp_path: Path) -> None:
    """Large weights stay in their file until the result is written; the result equals that of a model in memory."""
    large = _model(_MLP, u=_normal(1, 32, 1024, size=4e3), c=_normal(2, 1024), d=_normal(3, 1024, 8, size=1e-3))
    copy = onnx.ModelProto()
    copy.CopyFrom(large)  # saving moves the weights out of it
    onnx.save(copy, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=1024)
    settings = {"to": "fp16", "data": _batches(), "policy": "aggressive", "target": "any"}
    made = mezzo.convert(tmp_path / "model.onnx", tmp_path / "out.onnx", **settings)
    in_memory = mezzo.convert(large, **settings)
    assert made.plan.scaled == in_memory.plan.scaled != ()
    written, expected = onnx.load(tmp_path / "out.onnx"), in_memory.model
    arrays = [
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for model in (written, expected)
    ]
    assert arrays[0].keys() == arrays[1].keys()
    assert all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
