"""A quantized result that answers wrong gets its last products back in floats, as few as make it right."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

import mezzo
from mezzo.tuning.repair.float_fallback import LAST_LAYERS

DEPTH = 6
LAYERS = "\n".join(f"[c{k}] h{k} = Conv(r{k - 1}, w{k})\n[a{k}] r{k} = Relu(h{k})" for k in range(1, DEPTH))


def model(small: float) -> onnx.ModelProto:
    """Convolutions, of which the last makes a channel so small beside another, which varies as much for its size."""
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[N,8,8,8] r0) => (float[N,2,8,8] y) {{ {LAYERS} [last] y = Conv(r{DEPTH - 1}, w{DEPTH}) }}"""
    )
    rng = np.random.default_rng(0)
    for k in range(1, DEPTH + 1):
        weights = rng.standard_normal((8 if k < DEPTH else 2, 8, 1, 1)) / 2
        if k == DEPTH:
            weights[1] *= small
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype(np.float32), f"w{k}"))
    return parsed


def convert(small: float, folder: Path) -> mezzo.Converted:
    data = {"r0": np.random.default_rng(1).standard_normal((32, 8, 8, 8)).astype(np.float32)}
    return mezzo.convert(
        model(small), folder / "out.onnx", to="int8", target="onnxruntime-cpu", data=data, correct="none", check=False
    )


def quantized(converted: mezzo.Converted) -> set[str]:
    return {node.name for node in converted.plan.nodes if str(node.precision.compute) == "int8"}


def test_last_product_goes_back_where_a_part_of_its_output_is_lost(tmp_path: Path) -> None:
    converted = convert(1e-4, tmp_path)
    assert converted.measured is not None and converted.measured.comparison is not None
    assert converted.measured.comparison.verdict.is_same
    assert quantized(converted) >= {f"c{k}" for k in range(1, DEPTH)} and "last" not in quantized(converted)
    assert any("1 of the products nearest to the outputs went back to floats" in n for n in converted.measured.notes)
    assert any(node.name == "last" and node.rule == LAST_LAYERS for node in converted.plan.nodes)


def test_nothing_goes_back_where_the_answers_are_right(tmp_path: Path) -> None:
    converted = convert(1.0, tmp_path)
    assert converted.measured is not None and not converted.measured.notes
    assert {f"c{k}" for k in range(1, DEPTH)} | {"last"} <= quantized(converted)
