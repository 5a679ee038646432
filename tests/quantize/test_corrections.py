"""Corrections of what INT8 does: kept where data held back shows that they help, held by plans, refused if strange."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import mezzo
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.corrections import Correction
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.io.corrections import read_corrections, spell_corrections
from mezzo.onnx.edit.correcting import correct
from mezzo.onnx.files.files import from_proto
from mezzo.onnx.measure.pairs import ModelRole, OnnxPair
from mezzo.quantize.arithmetic.parameters import is_guarded
from mezzo.quantize.paired_error_test import Errors, Trials

WIDTH = 32


def model(seed: int, *, dead: int | None = None, is_shown: bool = False) -> onnx.ModelProto:
    """A normalization with channels of very different sizes, two products behind it, and one behind a Relu."""
    rng = np.random.default_rng(seed)
    gamma = np.exp(rng.normal(0, 1.2, WIDTH))
    if dead is not None:
        gamma[dead] = 0
    held = {
        "gamma": gamma, "beta": np.where(gamma > 0, rng.normal(0, 0.1, WIDTH), 0),
        "w1": rng.standard_normal((WIDTH, WIDTH)) / gamma.mean() / WIDTH**0.5, "b1": rng.normal(0, 0.2, WIDTH),
        "w2": rng.standard_normal((WIDTH, 8)) / WIDTH**0.5, "b2": np.zeros(8),
    }  # fmt: skip
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["n"], "norm"),
        helper.make_node("Gemm", ["n", "w1", "b1"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "second"),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, ["N", 8])]
    if is_shown:
        nodes.append(helper.make_node("ReduceSum", ["n"], ["side"], "side", keepdims=1))
        outputs.append(helper.make_tensor_value_info("side", 1, None))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["N", WIDTH])], outputs,
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def batches(seed: int, count: int = 4, size: int = 24) -> list[dict[str, np.ndarray]]:
    """Inputs of few directions, as those of networks are."""
    rng = np.random.default_rng(100 + seed)
    mixed = rng.standard_normal((6, WIDTH))
    return [
        {"x": (rng.standard_normal((size, 6)) @ mixed + 0.05 * rng.standard_normal((size, WIDTH))).astype(np.float32)}
        for _ in range(count)
    ]


def convert(proto: onnx.ModelProto, seed: int, **options: Any) -> mezzo.Converted:
    return mezzo.convert(proto, to="int8", target="openvino-cpu", data=batches(seed), **options)


def error_of(result: mezzo.Converted) -> float:
    assert result.measured is not None and result.measured.comparison is not None
    return max(output.relative_l2.estimate for output in result.measured.comparison.outputs)


def told(result: mezzo.Converted) -> dict[str, str]:
    """What is said of each step, by its name."""
    said = [note.removeprefix("correction ") for note in result.plan.notes if note.startswith("correction ")]
    return {name: text.strip() for name, _, text in (note.partition(":") for note in said)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("steps", ["auto", "leave", "smooth", "weights", "bias", "smooth,weights,bias"])
def test_corrected_is_never_further_off_on_data_held_back(seed: int, steps: str) -> None:
    plain, corrected = (convert(model(seed), seed, correct=one) for one in ("none", steps))
    assert error_of(corrected) <= error_of(plain), f"seed {seed}"
    assert told(plain) == {}
    kept = [name for name, text in told(corrected).items() if text.startswith("kept")]
    assert bool(kept) is (error_of(corrected) < error_of(plain)), f"seed {seed}"


def test_weights_and_smoothing_help_where_channels_differ() -> None:
    plain, both = (convert(model(1), 1, correct=one) for one in ("none", "smooth,weights"))
    assert told(both)["weights"].startswith("kept, 2 of 2 products are nearer on them; error ")
    assert "samples held back from the scales" in told(both)["weights"]
    assert told(both)["smooth"].startswith("kept")
    assert error_of(both) < 0.8 * error_of(plain)


def test_steps_that_do_not_help_are_left() -> None:
    """Integers times a power of two are on the grid: nothing is lost that weights could win back."""
    proto = model(2)
    for tensor in proto.graph.initializer:
        if tensor.name.startswith("w"):
            numbers = np.clip(np.rint(numpy_helper.to_array(tensor) * 64), -127, 127)
            numbers[0] = 127
            tensor.CopyFrom(numpy_helper.from_array((numbers / 64).astype(np.float32), tensor.name))
    plain, asked = (convert(proto, 2, correct=one, provenance=False, reduce_range="no") for one in ("none", "weights"))
    assert "weights" not in told(asked)
    assert asked.model.SerializeToString() == plain.model.SerializeToString()


def test_too_little_data_corrects_nothing() -> None:
    result = mezzo.convert(model(3), to="int8", target="openvino-cpu", data=[{"x": np.ones((1, WIDTH), np.float32)}])
    assert set(told(result).values()) == {"left, as no data was held back that could show that it helps"}
    assert result.plan.corrected == ()


def test_data_drawn_at_random_corrects_nothing() -> None:
    result = mezzo.convert(model(1), to="int8", target="openvino-cpu", data="random", correct="smooth,weights,bias")
    assert set(told(result).values()) == {"left, as data drawn at random shows nothing of what helps"}
    assert not result.plan.corrected and not any(how.turned for _, how in result.plan.quantized)


@pytest.mark.parametrize("steps", ["smooth,weights", "smooth,weights,bias"])
def test_saved_plan_replays_corrections_byte_for_byte(steps: str, tmp_path: Path) -> None:
    result = convert(model(1), 1, correct=steps)
    assert result.plan.corrected
    assert any(how.turned for _, how in result.plan.quantized)
    mezzo.save_plan(result.plan, tmp_path / "plan.json")
    replayed = mezzo.convert(model(1), plan=tmp_path / "plan.json")
    assert replayed.model.SerializeToString() == result.model.SerializeToString()
    assert replayed.plan.corrected == result.plan.corrected


def test_biases_are_corrected_in_their_own_constants() -> None:
    for seed in range(6):
        result = convert(model(seed), seed, correct="bias")
        assert "bias" in told(result)
        named = {one.value for one in result.plan.corrected}
        assert named <= {"b1", "b2"} and all(not one.factors for one in result.plan.corrected)
        assert bool(named) is told(result)["bias"].startswith("kept")


def test_one_number_for_all_channels_is_not_corrected() -> None:
    proto = model(1)
    for tensor in proto.graph.initializer:
        if tensor.name == "b1":
            tensor.CopyFrom(numpy_helper.from_array(np.array([0.1], np.float32), "b1"))
    assert convert(proto, 1, correct="bias").plan.corrected == ()


def test_a_constant_written_as_a_list_of_floats_is_corrected() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) {
        b = Constant<value_floats = [1.0, 2.0]> ()
        y = Add(x, b)
    }"""
    correction = Correction(value="b", axis=0, factors=(2.0, 2.0))
    source = correct(from_proto(onnx.parser.parse_model(text)), [correction, correction])
    (attribute,) = source.model.graph.node[0].attribute
    assert numpy_helper.to_array(attribute.t).tolist() == [4.0, 8.0]


def test_a_side_consumer_of_the_normalization_stops_smoothing() -> None:
    result = convert(model(1, is_shown=True), 1, correct="smooth")
    assert not {"gamma", "beta"} & {one.value for one in result.plan.corrected}


def test_a_shared_weight_stops_smoothing() -> None:
    proto = model(1)
    proto.graph.node.append(helper.make_node("Gemm", ["r", "w1", "b2s"], ["z"], "third"))
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(WIDTH, np.float32), "b2s"))
    proto.graph.output.append(helper.make_tensor_value_info("z", 1, ["N", WIDTH]))
    assert "w1" not in {one.value for one in convert(proto, 1, correct="smooth").plan.corrected}


def test_dead_channels_are_left_as_they_are() -> None:
    result = convert(model(1, dead=5), 1, correct="smooth")
    scaled: Mapping[str, Correction] = {one.value: one for one in result.plan.corrected}
    assert "gamma" in scaled
    assert scaled["gamma"].factors[5] == 1.0
    assert np.isfinite(mezzo_answers(result.model)).all()


def mezzo_answers(proto: onnx.ModelProto) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["y"], batches(1)[0])[0])


def test_one_sample_never_shows_a_gain() -> None:
    assert not Errors(np.array([1.0])).falls_to(Errors(np.array([0.5])))
    assert not Errors(np.array([1.0, 1.0, 1.0, 1.0])).falls_to(Errors(np.array([0.1, 3.0, 0.1, 0.1])))
    assert not Errors(np.zeros(9)).falls_to(Errors(np.zeros(9)))
    assert not Errors(np.ones(9)).falls_to(Errors(np.full(9, np.inf)))
    assert Errors(np.linspace(1, 2, 9)).falls_to(Errors(np.linspace(1, 2, 9) / 2))


def test_a_bias_past_half_of_a_sum_is_not_guarded() -> None:
    how = Quantization(dtype=DType.INT32, scales=(2.0**-20, 1.0), zero_points=(0, 0), axis=0)
    assert is_guarded(np.array([1000.0, 1e9]), how)
    assert not is_guarded(np.array([1100.0, 0.0]), how)


# -- plans as hostile input -------------------------------------------------------------------------------------------


def _saved(tmp_path: Path) -> dict[str, Any]:
    place = tmp_path / "plan.json"
    mezzo.save_plan(convert(model(1), 1).plan, place)
    document: dict[str, Any] = json.loads(place.read_text())
    return document


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({"gamma": 1}, "corrected is dict, wanted a list"),
        ([{"value": 3}], "wanted a value, an axis"),
        ([{"value": "gamma", "axis": 0, "factors": [1.0], "code": "x"}], "wanted a value, an axis"),
        ([{"value": "gamma", "axis": -1, "factors": [1.0]}], "axis is -1"),
        ([{"value": "gamma", "axis": True, "factors": [1.0]}], "axis is True"),
        ([{"value": "gamma", "axis": 0}], "wanted factors above 0, or numbers to add"),
        ([{"value": "gamma", "axis": 0, "factors": [0.0]}], "wanted factors above 0"),
        ([{"value": "gamma", "axis": 0, "factors": "11"}], "is no list"),
        ([{"value": "gamma", "axis": 0, "factors": ["1"]}], "holds what is no number"),
        ([{"value": "gamma", "axis": 0, "added": [float("nan")]}], "is not JSON (it holds a number that is NaN)"),
        ([{"value": "gamma", "axis": 0, "added": [1e39]}], "no finite FP32 number"),
        ([{"value": "gamma", "axis": 0, "added": [10**400]}], "is not JSON (it holds a whole number of more than 64"),
    ],
)
def test_strange_corrections_are_refused_as_they_are_read(held: object, found: str, tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    place.write_text(json.dumps(_saved(tmp_path) | {"corrected": held}))
    with pytest.raises(InputError, match=r"lacks or misstates a field|is not JSON") as caught:
        mezzo.convert(model(1), tmp_path / "out.onnx", plan=place)
    assert found in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({"value": "nobody", "axis": 0, "factors": [1.0]}, "which is no FP32 constant of the model's main graph"),
        ({"value": "x", "axis": 0, "factors": [1.0]}, "which is no FP32 constant"),
        ({"value": "gamma", "axis": 0, "factors": [1.0]}, "with 1 numbers along axis 0, and its shape is 32;"),
        ({"value": "gamma", "axis": 1, "factors": [1.0]}, "with 1 numbers along axis 1"),
        ({"value": "w1", "axis": 0, "factors": [3e38] * WIDTH, "added": [3e38] * WIDTH}, "FP32 does not hold"),
    ],
)
def test_corrections_that_do_not_fit_the_model_are_refused(held: object, found: str, tmp_path: Path) -> None:
    place = tmp_path / "plan.json"
    place.write_text(json.dumps(_saved(tmp_path) | {"corrected": [held]}))
    with pytest.raises(InputError) as caught:
        mezzo.convert(model(1), plan=place)
    assert str(caught.value).startswith("the plan corrects ") and found in str(caught.value)
    assert "take the correction out" in str(caught.value)


@pytest.mark.parametrize(
    ("held", "found"),
    [(7, "turned is int, wanted text"), ("!!", "turned is no text in base64"), ("é", "turned is no text in base64")],
)
def test_strange_bits_are_refused_as_they_are_read(held: object, found: str, tmp_path: Path) -> None:
    document, place = _saved(tmp_path), tmp_path / "plan.json"
    document["quantized"]["w1"]["turned"] = held
    place.write_text(json.dumps(document))
    with pytest.raises(InputError, match=found):
        mezzo.convert(model(1), plan=place)


def test_bits_of_another_tensor_are_refused(tmp_path: Path) -> None:
    plan = convert(model(1), 1).plan
    for name, bits in (("w1", b"\x01"), ("n", b"\x01")):
        quantized = tuple((n, replace(how, turned=bits) if n == name else how) for n, how in plan.quantized)
        with pytest.raises(ContractError, match=f"value '{name}' cannot be quantized"):
            mezzo.convert(model(1), plan=replace(plan, quantized=quantized))


def test_corrections_read_back_as_they_were_written() -> None:
    held = (
        Correction(value="a", axis=1, factors=(0.1, 3.0)),
        Correction(value="b", axis=0, added=(-1.5,), factors=(2.0,)),
    )
    rounded = read_corrections(json.loads(json.dumps(spell_corrections(held))))
    assert rounded[1] == held[1]
    assert rounded[0].factors == (float(np.float32(0.1)), 3.0)


# -- the option -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("auto,bias", "write auto or none alone, or some of leave, smooth, weights, bias with commas"),
        ("bias,bias", "each once"),
        ("biases", "did you mean 'bias'"),
        ("", "correct"),
    ],
)
def test_words_that_are_no_corrections_are_refused(given: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        convert(model(1), 1, correct=given)
    assert found in str(caught.value)


def test_words_are_read_in_any_case_and_order() -> None:
    assert dict(convert(model(1), 1, correct=" Weights, SMOOTH").plan.settings)["correct"] == "weights,smooth"


def test_an_output_that_breaks_where_the_reference_is_zero_never_passes_for_an_improvement() -> None:
    def parse(body: str) -> onnx.ModelProto:
        return onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) {{ {body} }}'
        )

    zero = open_source(parse("y = Sub(x, x)"), False, None)
    dataset = open_model_data(zero, [{"x": np.ones(4, np.float32)}], labels=(), batch_size=None)
    errors = Trials(dataset).errors_of(zero, parse("z = Sub(x, x)  y = Log(z)"))
    assert np.isinf(errors.squares).all()
    assert not Errors(np.zeros(4)).falls_to(errors)


def test_the_reference_answers_once_however_many_results_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are the same bit for bit whether its answers are kept, or no longer fit."""
    source = open_source(model(1), False, None)
    dataset = open_model_data(source, batches(1, count=3, size=2), labels=(), batch_size=None)
    results = [model(2), model(3), model(1)]
    asked: list[Any] = []
    answer = OnnxPair.answer
    monkeypatch.setattr(OnnxPair, "answer", lambda self, side, *rest: asked.append(side) or answer(self, side, *rest))
    kept = Trials(dataset)
    squares = [kept.errors_of(source, result).squares for result in results]
    assert (asked.count(ModelRole.REFERENCE), asked.count(ModelRole.CANDIDATE)) == (3, 9)
    monkeypatch.setattr("mezzo.quantize.paired_error_test._MOST_BYTES", 1)
    full = Trials(dataset)
    again = [full.errors_of(source, result).squares for result in results]
    assert asked.count(ModelRole.REFERENCE) == 3 + 9
    assert all(np.array_equal(one, other) for one, other in zip(squares, again, strict=True))
    assert squares[0].all() and not squares[2].any()
