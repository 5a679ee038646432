"""What the emulator's tests share: ten-line models, equality of bits, and the law of switches."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import parser

import mezzo
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.opening import open_model
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.runtime import JUDGING


def read(text: str, opset: int = 21, ir_version: int = 10) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": {opset}, "local": 1]>\n{text}')


def open_and_read(model: onnx.ModelProto, low: DType = DType.FLOAT16) -> tuple[OnnxModel, OnnxReading]:
    opened = open_model(model)
    return opened, opened.read(low)


def operators(reading: OnnxReading) -> list[int]:
    """Ids of the operators that have a floating compute group."""
    return [n.id for n in reading.graph.nodes if n.kind is Kind.OP and n.signature.dtype is HIGH]


def emulate_low(model: onnx.ModelProto, feeds: Mapping[str, Any], dtype: DType) -> dict[str, Any]:
    """The outputs with every operator in one format."""
    opened, reading = open_and_read(model)
    low = operators(reading)
    return OnnxEmulator(opened, reading, [dtype], settings=JUDGING).run(feeds, dict.fromkeys(low, dtype))


def is_same(first: Any, second: Any) -> bool:
    """Equal in every bit, NaN for NaN; lists element by element."""
    if isinstance(first, list):
        return len(first) == len(second) and all(map(is_same, first, second))
    a, b = np.asarray(first), np.asarray(second)
    if a.shape != b.shape:
        return False
    if "float" not in a.dtype.name:
        return a.dtype == b.dtype and np.array_equal(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    is_nan = np.isnan(a)
    return np.array_equal(is_nan, np.isnan(b)) and a[~is_nan].tobytes() == b[~is_nan].tobytes()


def differing(
    model: onnx.ModelProto,
    feeds: Mapping[str, Any],
    to: str,
    accumulation: Accumulation | None = None,
    **options: Any,
) -> list[str]:
    """Outputs in which a plan under switches differs from the model that the plan makes, or the switched-off emulator
    from the model as it came.
    """
    converted = mezzo.convert(model, to=to, **options)
    wanted = emulated_session(converted.model, accumulation=accumulation).run(feeds)
    opened = open_model(model)
    reading = opened.read(LOW_DTYPES[to], version=converted.plan.version)
    graph = reading.graph
    low = {graph.by_name[n.name]: n.precision.compute for n in converted.plan.nodes if n.precision.compute is not HIGH}
    limits = {graph.nodes[graph.by_name[name]].outputs[0]: limit for name, limit in converted.plan.limits}
    emulator = OnnxEmulator(opened, reading, [LOW_DTYPES[to]], accumulation, limits=limits, settings=JUDGING)
    got = emulator.run(feeds, low)
    plain, off = emulated_session(model).run(feeds), emulator.run(feeds, {})
    found = [name for name, result in wanted.items() if not is_same(result, got[name])]
    return found + [f"{name}, switched off" for name, result in plain.items() if not is_same(result, off[name])]
