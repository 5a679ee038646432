"""Variants of a model in other precisions for profiling, with node ids in metadata."""

from collections.abc import Sequence

import onnx

from mezzo.contracts.plans import Edit
from mezzo.ir.nodes import Kind
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.metadata import number_of, set_number
from mezzo.onnx.read.reading import OnnxReading

_KEY = "mezzo.timed"


def variant(model: OnnxModel, reading: OnnxReading, edits: Sequence[Edit]) -> onnx.ModelProto:
    """Apply edits to a reading, in place, with node ids as metadata.

    Large weights stay in their files, except in a model with functions: they are inlined before
    profiling, and ONNX's version converter needs weights in memory.
    """
    for node, proto in zip(reading.graph.nodes, reading.handles.protos, strict=True):
        if proto is not None and node.kind is Kind.OP:
            set_number(proto, _KEY, node.id)
    result = model.apply(reading, edits)
    return model.materialize(result) if result.functions else result


def label_of(node: onnx.NodeProto) -> str | None:
    """The planner's id of an operator; None for nodes without one, such as a plan's casts."""
    number = number_of(node, _KEY)
    return None if number is None else str(number)
