"""How the probe tells that a runtime runs a form on integers: ONNX Runtime's graphs, and layers of OpenVINO's."""

import numpy as np
import pytest
from probe.ask import Findings
from probe.ask_quantized import ask_quantized, with_quantized
from probe.children import Child
from probe.integers import ask_onnxruntime, refuse_float_layers, refuse_wrong
from probe.quantized_cases import quantized_forms
from probe.quantized_forms import Form, Port, Way, build, run_plainly
from probe.runtimes import RUNTIMES

from mezzo.formats.dtypes import DType
from mezzo.onnx.profile.runtime_graphs import GraphKernel
from mezzo.plugins import discovery
from mezzo.tables.quantized_kernels import Bias, Storage
from mezzo.tables.target import Target

U8, S8 = Storage(DType.UINT8), Storage(DType.INT8, is_symmetric=True)
DATA = Port(shape=(1, 4, 6, 6), storage=U8)
CONV = Form(op="Conv", ports=(DATA, Port(shape=(8, 4, 3, 3), storage=S8, is_weight=True, axis=0)), bias=Bias.INT32)


def asked(form: Form, way: Way) -> None:
    built = build(form, way)
    ask_onnxruntime(built.model.SerializeToString(), built.feeds)


def test_form_that_runs_on_integers_is_let_through():
    asked(CONV, Way.QUANTIZED)


def test_operator_that_stays_in_floats_is_named():
    with pytest.raises(RuntimeError, match=r"^Conv in f32$"):
        asked(CONV, Way.FLOAT)


def test_quantize_that_stays_a_pass_is_told():
    form = Form(op="MatMul", ports=(Port(shape=(2, 3, 8), storage=U8), Port(shape=(8, 4), storage=S8, is_weight=True)),
                bias=Bias.INT32, followers=("Relu",))  # fmt: skip
    with pytest.raises(RuntimeError, match=r"^Quantize is a pass of its own$"):
        asked(form, Way.QUANTIZED)


@pytest.mark.parametrize("way", [Way.SAME, Way.THROUGH])
def test_models_are_near_what_they_quantize(way):
    form = Form(op="MaxPool", ports=(DATA,), attributes={"kernel_shape": [2, 2]})
    built = build(form, way)
    (answer,), data = run_plainly(built.model, built.feeds), built.feeds["x0"]
    right = np.maximum.reduce([data[:, :, i : i + 5, j : j + 5] for i in (0, 1) for j in (0, 1)])
    step = (data.max() - data.min()) / 255
    assert np.abs(answer - right).max() <= 2 * step  # half a step at each of four Quantize on the way


LAYERS = [
    GraphKernel(kind="Convolution", reads=("u8", "i8"), makes="u8", nodes=frozenset({"asked", "quantize.asked.0.q"})),
    GraphKernel(kind="Convolution", reads=("u8", "i8"), makes="u8", nodes=frozenset({"reader.quantize.asked.0"})),
]


def with_layer(number: int, **changed: object) -> list[GraphKernel]:
    kept = {name: getattr(LAYERS[number], name) for name in ("kind", "reads", "makes", "nodes")}
    layers = list(LAYERS)
    layers[number] = GraphKernel(**{**kept, **changed})  # type: ignore[arg-type]  # fields by name
    return layers


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (LAYERS, None),
        (with_layer(0, reads=("f32", "i8")), "Convolution f32>u8 reads floats"),
        (with_layer(0, makes="f32"), "Convolution u8>f32 hands on floats"),
        (
            [
                *LAYERS,
                GraphKernel(kind="Subgraph", reads=("f32",), makes="u8", nodes=frozenset({"quantize.asked.0.q"})),
            ],
            "Subgraph f32>u8 behind it ",
        ),
        ([LAYERS[1]], "no kernel of its own"),
        (with_layer(1, reads=("f32", "f32"), nodes=frozenset({"reader.asked.0"})), "its reader, Convolution f32>u8, "),
    ],
)  # fmt: skip
def test_layers_are_judged_by_what_they_read_and_make(layers, reason):
    model = build(CONV, Way.QUANTIZED).model
    if reason is None:
        refuse_float_layers(layers, model)
        return
    with pytest.raises(RuntimeError) as told:
        refuse_float_layers(layers, model)
    assert str(told.value).startswith(reason)


def test_answers_may_be_off_by_rounding_and_no_more():
    right = np.linspace(-1, 1, 50, dtype=np.float32)
    step = 2 / 255
    refuse_wrong([right + 2 * step], [right])  # a step where it is quantized and one where its reader is
    with pytest.raises(RuntimeError, match=r"^answers wrong, by 3 steps of 1/255 of what it spans$"):
        refuse_wrong([right + 3 * step], [right])
    with pytest.raises(RuntimeError, match=r"^answers wrong, by inf"):
        refuse_wrong([right * np.nan], [right])


def refuse_everything(model: bytes, feeds: object) -> None:
    raise RuntimeError("in f32")


def accept_everything(model: bytes, feeds: object) -> None:
    """Stand for a runtime that runs all of it on integers."""


def test_rows_that_the_runtime_denies_are_told_and_other_ways_are_not_asked():
    table = discovery.target("onnxruntime-cpu")
    with Child(refuse_everything) as child:
        (answer,) = ask_quantized(table, child, [CONV])
    assert not answer.agrees and answer.row is None and answer.reason == "in f32"
    assert dict(answer.attributes) == {"form": str(CONV), "result": "quantized"}


def test_operators_without_a_row_are_asked_with_a_quantize_behind_them():
    table = discovery.target("onnxruntime-cpu")
    form = Form(op="Elu", ports=(DATA,))
    with Child(accept_everything) as child:
        answers = list(ask_quantized(table, child, [form]))
    assert [dict(answer.attributes)["result"] for answer in answers] == ["quantized", "same"]
    assert not any(answer.agrees for answer in answers)
    assert answers[0].row is not None and answers[0].row.because == "has no kernel of it on quantized operands"


def test_probe_asks_about_the_operators_of_a_pattern():
    bare = Target(name="bare", summary="")
    found = with_quantized(Findings((), ()), bare, refuse_everything, "tanh*")
    assert {answer.op for answer in found.answers} == {"Tanh"} and not found.disagreements


def test_forms_are_told_apart_by_their_text():
    texts = [str(form) for form in dict.fromkeys(map(repr, quantized_forms()))]
    assert len(texts) == len(set(texts)) > 300


def test_installed_onnxruntime_agrees_about_a_sample():
    """Every ninth form: the whole takes minutes, and `tools/probe_runtimes.py` asks all."""
    attempt = RUNTIMES["onnxruntime-cpu"].run_integers
    assert attempt is not None
    sample = [form for form in quantized_forms() if form.op in ("Conv", "MaxPool", "Add", "Concat")][::9]
    with Child(attempt) as child:
        answers = list(ask_quantized(discovery.target("onnxruntime-cpu"), child, sample))
    assert answers and [answer for answer in answers if not answer.agrees] == []
