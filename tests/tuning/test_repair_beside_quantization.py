"""Ranges are repaired beside quantized levels and weights in blocks: what stays in FP16 overflows as without them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from scaled_models import answers, is_same

import mezzo
from mezzo.contracts.plans import Plan
from mezzo.conversion.fusing import fused_as
from mezzo.conversion.rescaling import rescaled
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import Opened, open_model
from mezzo.planner.options import replay_options

_TEXT = """<ir_version: 10, opset_import: ["" : 23]>
g (float[N,64] x) => (float[N,64] y) {
    [in] p = MatMul(x, a)  [up] h = MatMul(p, u)  [bias] b = Add(h, c)  [act] r = Relu(b)
    [other] q = MatMul(x, w)  [gate] g = Mul(r, q)  [norm] n = LayerNormalization(g, one, zero)
    [down] m = MatMul(n, d)  [last] y = MatMul(m, e) }"""
# Formats, the target, and more options. TensorRT reads weights in blocks with operands in FP16.
_CASES: dict[str, dict[str, Any]] = {
    "int8": {"to": "int8,fp16", "target": "tensorrt"},
    "dynamic": {"to": "int8,fp16", "target": "onnxruntime-cpu", "calibrator": "none"},
    "fp8": {"to": "fp8,fp16", "target": "tensorrt"},
    "blocks": {"to": "int4,fp16", "target": "tensorrt"},
    "blocks and int8": {"to": "int4,int8,fp16", "target": "tensorrt"},
}


def _normal(seed: int, *shape: int, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * size).astype(np.float32)


def _with(text: str, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    return model


def _model(size: float = 4e2) -> onnx.ModelProto:
    """The gate and the norm run in floats whatever is quantized; what they read is 1e5 for a size of 400."""
    weights = {
        "a": _normal(5, 64, 64, size=0.3), "u": _normal(1, 64, 256, size=size), "c": _normal(2, 256),
        "w": _normal(7, 64, 256), "one": np.ones(256), "zero": np.zeros(256), "d": _normal(3, 256, 64, size=0.1),
        "e": _normal(4, 64, 64, size=0.1),
    }  # fmt: skip
    return _with(_TEXT, weights)


_DATA = [{"x": _normal(100 + number, 16, 64)} for number in range(6)]


def _convert(model: onnx.ModelProto, **options: Any) -> mezzo.Converted:
    return mezzo.convert(model, data=_DATA, policy="aggressive", provenance=False, **options)


def _floats(made: mezzo.Converted) -> set[str]:
    return {n.name for n in made.plan.nodes if n.kind == "op" and n.precision.compute is DType.FLOAT32}


@pytest.mark.parametrize("case", _CASES)
def test_what_stays_in_fp16_beside_quantized_nodes_is_repaired(case: str, tmp_path: Path) -> None:
    protected = _convert(_model(), out_of_range="protect", **_CASES[case])
    made = _convert(_model(), **_CASES[case])
    assert {"gate", "norm"} <= _floats(protected) and _floats(made) == set()
    assert {each.value for each in made.plan.scaled} == {"h", "b", "r", "g"}
    assert made.measured.ranges is not None
    assert max(each.largest for each in made.measured.ranges.values) < 65504
    assert mezzo.compare(_model(), made.model, _DATA).verdict.error.estimate < 1.2 * _error(protected) + 1e-3
    made.plan.save(tmp_path / "plan.json")
    again = mezzo.convert(_model(), plan=tmp_path / "plan.json", provenance=False)
    assert again.model.SerializeToString() == made.model.SerializeToString() and again.plan.scaled == made.plan.scaled
    assert is_same(*(answers(each, _DATA[0]) for each in _forms(made.plan)))


def _error(made: mezzo.Converted) -> float:
    assert made.measured.comparison is not None
    return made.measured.comparison.verdict.error.estimate


def _forms(plan: Plan) -> list[onnx.ModelProto]:
    """The normal form that was planned, in FP32, without and with the scales."""
    options = replay_options({}, plan)
    form = fused_as(open_model(_model()), plan, options.planning.target.respellings)
    scaled = rescaled(form, plan.scaled, options.planning.floats)
    assert isinstance(form, Opened) and isinstance(scaled, Opened)
    return [each.materialize(each.original) for each in (form, scaled)]


@pytest.mark.parametrize("case", _CASES)
def test_nothing_changes_where_nothing_is_out_of_range(case: str, tmp_path: Path) -> None:
    documents = []
    for word in ("repair", "protect"):
        made = _convert(_model(size=1.0), out_of_range=word, **_CASES[case])
        made.plan.save(tmp_path / word)
        document = json.loads((tmp_path / word).read_text())
        documents.append((document["settings"].pop("out_of_range"), document, made.model.SerializeToString()))
    assert documents[0][1:] == documents[1][1:] and "scaled" not in documents[0][1]


@pytest.mark.parametrize("to", ["int8", "fp8"])
def test_scales_of_quantized_formats_alone_hold_any_range(to: str) -> None:
    """Beside FP32 nothing is repaired: QuantizeLinear divides by what it takes."""
    assert _convert(_model(), to=to, target="tensorrt").plan.scaled == ()


_LAYERS = """<ir_version: 10, opset_import: ["" : 23]>
g (float[N,32] x) => (float[N,16] y) {
    [in] i = Gemm(x, a, ab)  [first] p = Relu(i)  [up] h = Gemm(p, u, ub)  [act] r = Relu(h)  [abs] v = Abs(r)
    [norm] n = LayerNormalization(v, one, zero)  [mid] m = Gemm(n, d, db)  [second] s = Relu(m)
    [last] y = Gemm(s, e, eb) }"""

LAYERS_DATA = [{"x": _normal(100 + number, 16, 32) + 1} for number in range(16)]


def layers() -> onnx.ModelProto:
    """Some channels are 40 times as large as the others, which SmoothQuant evens out."""
    loud, gains = (np.where(np.arange(width) % 16 == 0, size, 1) for width, size in ((64, 40), (128, 20)))
    weights = {
        "a": _normal(5, 32, 64, size=0.3) * loud, "ab": _normal(15, 64),
        "u": _normal(1, 64, 128, size=8e2) / loud[:, None], "ub": _normal(16, 128), "one": gains,
        "zero": np.zeros(128), "d": _normal(3, 128, 64, size=0.1), "db": _normal(17, 64),
        "e": _normal(4, 64, 16, size=0.1), "eb": _normal(18, 16),
    }  # fmt: skip
    return _with(_LAYERS, weights)


def test_corrections_are_found_as_without_scales(tmp_path: Path) -> None:
    """Scales are exact: SmoothQuant and GPTQ lower the error by the same, and corrected biases are those of the scaled
    model.
    """
    options = {
        "data": LAYERS_DATA,
        "to": "int8,fp16",
        "target": "tensorrt",
        "policy": "aggressive",
        "provenance": False,
    }
    made, protected = (
        mezzo.convert(layers(), correct="smooth,weights,bias", out_of_range=word, **options)
        for word in ("repair", "protect")
    )
    notes = [[n for n in each.plan.notes if n.startswith("correction")] for each in (made, protected)]
    assert notes[0][:2] == notes[1][:2] and made.plan.scaled and not protected.plan.scaled
    assert {each.value for each in made.plan.corrected} == {each.value for each in protected.plan.corrected} != set()
    before, after = notes[0][2].split("; error ")[1].split(" on ")[0].split(" -> ")
    assert float(after) < 1.1 * float(before)
    made.plan.save(tmp_path / "plan.json")
    again = mezzo.convert(layers(), plan=tmp_path / "plan.json", provenance=False)
    assert again.model.SerializeToString() == made.model.SerializeToString()


@pytest.mark.parametrize(("case", "max_error"), [("int8", 0.1), ("blocks", 0.4)])
def test_tune_repairs_before_it_calibrates(case: str, max_error: float, tmp_path: Path) -> None:
    options = {"data": _DATA, "max_error": max_error, "policy": "aggressive", "provenance": False}
    made = mezzo.tune(_model(), **options, **_CASES[case])
    assert {each.value for each in made.plan.scaled} == {"h", "b", "r", "g"}
    assert made.measured.search is not None and made.measured.search.is_within_budget
    made.plan.save(tmp_path / "plan.json")
    again = mezzo.convert(_model(), plan=tmp_path / "plan.json", provenance=False)
    assert again.model.SerializeToString() == made.model.SerializeToString()


def test_without_data_estimates_repair_beside_what_needs_none() -> None:
    for case in ("dynamic", "blocks"):
        made = mezzo.convert(_model(), **_CASES[case])
        assert {each.value for each in made.plan.scaled} == {"h", "b", "r", "g"}, case
        assert mezzo.plan(_model(), **_CASES[case]).scaled == made.plan.scaled
        assert np.isfinite(mezzo.compare(_model(), made.model, _DATA).verdict.error.estimate)


def test_calibrators_are_compared_on_the_repaired_model() -> None:
    options = {"to": "int8,fp16", "target": "tensorrt", "policy": "aggressive"}
    report = mezzo.quantize_report(_model(), _DATA, calibrators="minmax", **options)
    made = _convert(_model(), **_CASES["int8"], calibrator="minmax")
    assert report.rows[0].verdict.error == _verdict(made)
    assert _verdict(_convert(_model(), **_CASES["int8"], calibrator="minmax", out_of_range="protect")) != _verdict(made)


def _verdict(made: mezzo.Converted) -> object:
    assert made.measured.comparison is not None
    return made.measured.comparison.verdict.error
