"""Law: what a weight in blocks costs an output natively is what it costs in emulation, within a tenth.

Of random products, on the runtime as `mezzo` runs it: ONNX Runtime at accuracy levels 0 and 4, OpenVINO with its
default rounding of activations, which CPUs without VNNI do not have.
"""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from sweeps import swept

import mezzo
from mezzo.common.machine import find_machine
from mezzo.contracts.plans import Plan
from mezzo.onnx.profile import onnxruntime as onnxruntime_driver
from mezzo.onnx.profile import openvino as openvino_driver
from mezzo.onnx.profile.loaded import LoadOptions

_TOLERANCE = 0.1
_VNNI = ("avx512_vnni", "avx_vnni")


def _product(rng: random.Random, lengths: list[int]) -> onnx.ModelProto:
    """A matmul with a weight that is large enough for ONNX Runtime's kernels."""
    columns, length = rng.randrange(256, 400), rng.choice(lengths)
    call = rng.choice(["MatMul (x, W)", "Gemm (x, W)", "Gemm <transB = 1> (x, W)"])
    ports = f"(float[n, {length}] x) => (float[n, {columns}] y)"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {ports} {{ y = {call} }}')
    shape = (columns, length) if "transB" in call else (length, columns)
    weight = np.random.default_rng(rng.randrange(1 << 30)).standard_normal(shape).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "W"))
    return model


def _feeds(model: onnx.ModelProto, rng: random.Random) -> dict[str, np.ndarray]:
    """Rows whose columns differ in size."""
    length = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    sizes = np.exp(numbers.standard_normal(length))
    return {"x": (numbers.standard_normal((rng.choice([1, 3, 40]), length)) * sizes).astype(np.float32)}


def _symmetric(plan: Plan, is_symmetric: bool) -> Plan:
    storages = ((name, replace(storage, is_symmetric=is_symmetric)) for name, storage in plan.in_blocks)
    return replace(plan, in_blocks=tuple(storages))


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(np.float64(found) - exact) / np.linalg.norm(exact))


def _check(target: str, seed: int, load: object, provider: str | None, level: int | None, tmp_path: Path) -> None:
    rng = random.Random(seed)
    # OpenVINO reads whole blocks only.
    model = _product(rng, [256, 288, 384, 512, 1024, *([] if level is None else [270, 300])])
    plan = _symmetric(mezzo.plan(model, to=rng.choice(["int4", "int8w"]), target=target), rng.random() < 0.5)
    if level is not None:
        storages = ((name, replace(storage, accuracy_level=level)) for name, storage in plan.in_blocks)
        plan = replace(plan, in_blocks=tuple(storages))
    assert [storage.rounded_activations > 0 for _, storage in plan.in_blocks] == [level != 0]
    result, feeds = mezzo.convert(model, plan=plan).model, _feeds(model, rng)
    onnx.save(result, tmp_path / "result.onnx")
    loaded = load(tmp_path / "result.onnx", feeds, tmp_path, LoadOptions(provider=provider))  # type: ignore[operator]
    native = loaded.answer(feeds)["y"]
    (weight,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    matrix = weight if len(weight) == feeds["x"].shape[1] else weight.T
    exact = feeds["x"].astype(np.float64) @ matrix.astype(np.float64)
    own = _error(native, exact)
    for emulated in (mezzo.emulate(model, feeds, plan=plan)["y"], mezzo.emulate(result, feeds)["y"]):
        assert abs(_error(emulated, exact) - own) <= _TOLERANCE * own
        # Most of it is of the weight: what the kernel does to activations is alike too.
        assert _error(emulated, np.float64(native)) <= _TOLERANCE * own


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("seed", range(swept(12)))
def test_errors_on_onnx_runtime_are_those_of_the_emulation(seed: int, level: int, tmp_path: Path) -> None:
    _check("onnxruntime-cpu", seed, onnxruntime_driver.load, "CPUExecutionProvider", level, tmp_path)


@pytest.mark.parametrize("seed", range(swept(12)))
def test_errors_on_openvino_are_those_of_the_emulation(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    if not any(map(find_machine().has, _VNNI)):
        pytest.skip("OpenVINO reads activations as they are on CPUs without VNNI")
    _check("openvino-cpu", seed, openvino_driver.load, None, None, tmp_path)
