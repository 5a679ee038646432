"""FP8 by the road that INT8 goes: from data to a file whose answers are those of its numbers, as emulated, replayed
and judged.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from quantized_cases import open_model

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import PlannedNode
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.protos.lowcast import least_opset
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine, native_session
from mezzo.planner.choices.quantized_parameters import quantized_ports
from mezzo.planner.options import read_options
from mezzo.planner.planner import judge
from mezzo.quantize.arithmetic.arithmetic import round_trip

Array = np.ndarray
Change = Callable[[dict[str, Any]], None]

_TEXT = """<ir_version: 9, opset_import: ["" : {opset}]>
g (float[{rows},{wide}] x) => (float[{rows},5] y)
{{ [a] h = MatMul(x, v) [t] k = Softsign(h) [b] y = Gemm(k, w, c) }}"""
# Sums of a few products, in FP32 and in another order: 16 eps leave room for each of them.
_CLOSE = 16 * 2.0**-23
FORMATS_OF_FP8 = pytest.mark.parametrize(
    ("to", "target", "storage"),
    [("fp8", "tensorrt", DType.FLOAT8E4M3FN), ("fp8-e5m2", "onnx", DType.FLOAT8E5M2)],
    ids=["e4m3", "e5m2"],
)


def network(seed: int, opset: int = 17, wide: int = 12) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(_TEXT.format(opset=opset, rows=4, wide=wide))
    for name, shape in (("v", (wide, wide)), ("w", (wide, 5)), ("c", (5,))):
        array = (rng.standard_normal(shape) * np.exp(rng.uniform(-1, 1, shape[-1]))).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model, [{"x": rng.standard_normal((4, wide)).astype(np.float32)} for _ in range(12)]


def parameters(result: mezzo.Converted) -> Mapping[str, Quantization]:
    return dict(result.plan.quantized)


def weights(model: onnx.ModelProto) -> Mapping[str, Array]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@FORMATS_OF_FP8
@pytest.mark.parametrize("seed", range(6))
def test_the_file_answers_as_its_numbers_say(seed: int, to: str, target: str, storage: DType) -> None:
    model, data = network(seed)

    result = mezzo.convert(model, to=to, target=target, data=data, include=["a", "b"])

    held, hows = weights(model), parameters(result)
    assert {how.dtype for how in hows.values()} == {storage} and hows["v"].axis == hows["w"].axis == 1
    x = data[0]["x"]
    first = round_trip(x, hows["x"]) @ round_trip(held["v"], hows["v"])
    wanted = round_trip(first / (1 + np.abs(first)), hows["k"]) @ round_trip(held["w"], hows["w"]) + held["c"]
    found = [
        native_session(result.model, Engine.ONNXRUNTIME).run({"x": x})["y"],
        native_session(result.model, Engine.REFERENCE).run({"x": x})["y"],
        emulated_session(result.model).run({"x": x})["y"],
    ]
    for answer in found:
        assert np.linalg.norm(answer - wanted) <= _CLOSE * np.linalg.norm(wanted), f"seed {seed}"
    onnx.checker.check_model(result.model, full_check=True)
    assert next(held.version for held in result.model.opset_import if not held.domain) == 19


@FORMATS_OF_FP8
def test_the_search_emulates_what_the_file_answers(to: str, target: str, storage: DType) -> None:
    source, data = network(3)
    result = mezzo.convert(source, to=to, target=target, data=data, include=["a", "b"])
    options = read_options(Request(to=to, target=target, include=("a", "b")))
    model = open_model(source)
    reading = model.read(options.planning.low, version=19)
    judged = judge(reading.graph, replace(options.planning, quantized=parameters(result)))
    emulator = lab_of(model).emulator(
        model.read(options.planning.low, version=19),
        options.planning.line.other_dtypes,
        quantized=quantized_ports(judged.problem),
    )
    low = {reading.graph.by_name[name]: options.planning.line.other_dtypes[0] for name in ("a", "b")}
    wanted = native_session(result.model, Engine.ONNXRUNTIME).run(data[0])["y"]
    found = np.asarray(emulator.run(data[0], low)["y"])
    assert np.linalg.norm(found - wanted) <= _CLOSE * np.linalg.norm(wanted)
    exact = np.asarray(emulator.run(data[0], {})["y"])
    assert np.linalg.norm(found - exact) > 1e-3 * np.linalg.norm(exact), "something was rounded"


@FORMATS_OF_FP8
def test_it_is_judged_by_its_own_steps(to: str, target: str, storage: DType) -> None:
    model, data = network(1)
    result = mezzo.convert(model, to=to, target=target, data=data)
    assert result.measured is not None and result.measured.comparison is not None
    (output,) = result.measured.comparison.outputs
    dtype = {"fp8": DType.QUANTIZED_E4M3, "fp8-e5m2": DType.QUANTIZED_E5M2}[to]
    # Eight eps of E4M3 are half of an answer, those of E5M2 all of it.
    source = f"a quarter of an answer, as 8 eps of {to} are above it"
    assert (output.budget, output.budget_source) == (0.25, source) and 8 * FORMATS[dtype].eps >= 0.5
    assert 2.0**-8 < output.relative_l2.estimate < 0.25


def test_a_saved_plan_is_replayed_without_data(tmp_path: Path) -> None:
    model, data = network(2)
    result = mezzo.convert(model, to="fp8", data=data, include=["a", "b"])
    assert _in_fp8(result.plan.nodes) == {"a", "b"}
    path = tmp_path / "plan.json"
    mezzo.save_plan(result.plan, path)
    again = mezzo.convert(model, plan=mezzo.load_plan(path))
    assert again.model.SerializeToString(deterministic=True) == result.model.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda held: held["quantized"]["x"].update(zero_point=3), "zero points have to lie from 0 to 0"),
        (lambda held: held["quantized"]["x"].update(dtype="f8e4m3fnuz"), "dtype is f8e4m3fnuz, wanted one of u8, i8"),
        (lambda held: held.update(levels=["f32", "fp8", "int8"]), "wanted one at most that takes scales"),
    ],
)
def test_plans_that_say_no_such_thing_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    model, data = network(2)
    path = tmp_path / "plan.json"
    mezzo.save_plan(mezzo.convert(model, to="fp8", data=data).plan, path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(mezzo.InputError) as told:
        mezzo.load_plan(path)
    assert message in str(told.value) and "\n" not in str(told.value)


def test_ranges_are_chosen_by_what_suits_its_steps() -> None:
    model, data = network(4)
    plans = {
        name: mezzo.convert(model, to="fp8", data=data, calibrator=name).plan
        for name in ("minmax", "mse", "percentile=99")
    }
    scales = {name: dict(plan.quantized)["x"].scales[0] for name, plan in plans.items()}
    assert scales["percentile=99"] < scales["minmax"] and scales["mse"] <= scales["minmax"]
    with pytest.raises(mezzo.InputError) as told:
        mezzo.convert(model, to="fp8", data=data, calibrator="entropy")
    assert str(told.value) == (
        "calibrator is 'entropy', which weighs steps of one size, and those of fp8 grow with its numbers; choose one "
        "of minmax, mse, percentile"
    )


def test_a_model_that_may_not_rise_keeps_its_floats() -> None:
    model, data = network(5)
    result = mezzo.convert(model, to="fp8", data=data, opset="keep")
    assert (
        not parameters(result) and "this opset has no QuantizeLinear to fp8, so nothing runs in it" in result.plan.notes
    )
    assert parameters(mezzo.convert(network(5, opset=21)[0], to="fp8", data=data, opset="keep"))


def test_tuning_moves_what_hurts_out_of_fp8() -> None:
    model, data = network(6, wide=400)
    loose = mezzo.tune(model, data=data, to="fp8", max_error=0.5)
    tight = mezzo.tune(model, data=data, to="fp8", max_error=1e-4)
    assert _in_fp8(loose.plan.nodes) == {"a", "b"} and not _in_fp8(tight.plan.nodes)


def _in_fp8(nodes: Sequence[PlannedNode]) -> set[str]:
    return {node.name for node in nodes if node.kind == "op" and str(node.precision.compute) == "fp8"}


@pytest.mark.parametrize(
    ("dtype", "opset"), [(DType.QUANTIZED8, 13), (DType.QUANTIZED_E4M3, 19), (DType.QUANTIZED_E5M2, 19)]
)
def test_emulating_takes_the_first_opset_that_quantizes_so(dtype: DType, opset: int) -> None:
    assert least_opset([DType.FLOAT16, dtype], None) == opset
