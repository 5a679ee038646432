"""Arithmetic that the emulator is judged by: one operator at a time, in numpy, rounded by numpy and ml_dtypes.

An operator is computed by onnx.reference in FP32 on operands that were rounded before, and its results are rounded
after. Tiled sums are computed on integers so small that every FP32 sum of them is exact in any order: then the model of
`mezzo.onnx.emulate.tiles` leaves nothing open, and equality is of bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from suites import Case

from mezzo.formats.dtypes import DType

NUMPY = {
    DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
}
Array = np.ndarray[Any, Any]
EPS = 2.0**-23
# Of any number of products of integers up to 40: sums stay below 2**24 while there are at most 10,000 of them.
LARGEST_INTEGER = 40


@dataclass(frozen=True, slots=True)
class Step:
    """One operator with its operands, None where one is left out. `name` is the test model's."""

    name: str
    node: onnx.NodeProto
    operands: tuple[Array | None, ...]
    opset: int

    def model(self, operands: Sequence[Array | None] | None = None) -> onnx.ModelProto:
        """The operator as a model: inputs `i0`, `i1`, ... and outputs `o0`, ..., their shapes unknown."""
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        node.name = "step"
        given = self.operands if operands is None else operands
        node.input[:] = [f"i{index}" if array is not None else "" for index, array in enumerate(given)]
        node.output[:] = [f"o{index}" if name else "" for index, name in enumerate(self.node.output)]
        inputs = [
            onnx.helper.make_tensor_value_info(
                f"i{index}", onnx.helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for index, array in enumerate(given)
            if array is not None
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "step", inputs, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        for port in inferred.graph.output:
            port.type.tensor_type.ClearField("shape")
        return inferred

    def feeds(self, operands: Sequence[Array | None]) -> dict[str, Array]:
        return {f"i{index}": array for index, array in enumerate(operands) if array is not None}


def steps(case: Case) -> Iterator[Step]:
    """The operators of a test model on tensors, each with the operands that FP32 gives it; those with bodies left out.

    Ends where the reference evaluator cannot go on.
    """
    model = case.model
    if model.functions or any(
        attribute.type == onnx.AttributeProto.GRAPH for node in model.graph.node for attribute in node.attribute
    ):
        return
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is None:
        return
    known: dict[str, Any] = dict(case.feeds)
    known |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        operands = [known.get(name) if name else None for name in node.input]
        if any(isinstance(operand, list) for operand in operands):
            return
        step = Step(case.name, node, tuple(operands), opset)
        try:
            results = compute(step, operands)
        except Exception:  # noqa: BLE001  the evaluator raises whatever its parts raise
            return
        yield step
        known |= dict(zip([name for name in node.output if name], results, strict=False))


def compute(step: Step, operands: Sequence[Array | None]) -> list[Any]:
    """The operator's results by onnx.reference, in the types the schema gives."""
    with np.errstate(all="ignore"):
        results: list[Any] = ReferenceEvaluator(step.model(operands)).run(None, step.feeds(operands))
        return results


def rounded(values: Array, dtype: DType) -> Array:
    """FP32 numbers rounded once to a format, as FP32 numbers."""
    with np.errstate(all="ignore"):
        return values.astype(NUMPY[dtype]).astype(np.float32)


def integers_like(array: Array, generator: np.random.Generator, dtype: DType) -> Array:
    """Small integers that the format holds exactly, in an FP32 array of the same shape."""
    return rounded(generator.integers(-LARGEST_INTEGER, LARGEST_INTEGER + 1, array.shape).astype(np.float32), dtype)


def tiled(step: Step, operands: Sequence[Array | None], dtype: DType, tile: int) -> Array:
    """A MatMul, Gemm or Conv with its running sum rounded after every tile, and its result at the end."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in step.node.attribute}
    first, second, *rest = operands
    assert first is not None and second is not None, "both factors are there"
    extra = rest[0] if rest else None
    match step.node.op_type:
        case "MatMul":
            parts = _matmul_parts(first, second, tile)
        case "Gemm":
            first = first.T if attributes.get("transA") else first
            second = second.T if attributes.get("transB") else second
            parts = _matmul_parts(first, second, tile)
        case _:
            parts = _conv_parts(step, first, second, attributes.get("group", 1), tile)
    with np.errstate(all="ignore"):
        total = None
        for part in parts:
            total = rounded(part if total is None else total + part, dtype)
        assert total is not None, "an empty sum takes one empty tile"
        if step.node.op_type == "Gemm":
            total = total * np.float32(attributes.get("alpha", 1.0))
            if extra is not None:
                total = total + extra * np.float32(attributes.get("beta", 1.0))
        elif extra is not None:
            total = total + extra.reshape(-1, *[1] * (second.ndim - 2))
        return rounded(total, dtype)


def _matmul_parts(first: Array, second: Array, tile: int) -> Iterator[Array]:
    axis = max(second.ndim - 2, 0)
    for start in range(0, max(first.shape[-1], 1), tile):
        chosen = range(start, min(start + tile, first.shape[-1]))
        yield np.asarray(np.take(first, chosen, -1) @ np.take(second, chosen, axis), np.float32)


def _conv_parts(step: Step, first: Array, second: Array, groups: int, tile: int) -> Iterator[Array]:
    own = second.shape[1]
    channels = max(1, tile // max(1, int(np.prod(second.shape[2:]))))
    for start in range(0, own, channels):
        chosen = range(start, min(start + channels, own))
        places = [group * own + place for group in range(groups) for place in chosen]
        yield compute(step, [first[:, places], second[:, chosen]])[0]
