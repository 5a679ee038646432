"""A model in several precisions at once, whose operators say which node of the planner's graph they are."""

from collections.abc import Sequence

import onnx

from mezzo.contracts.plans import Edit
from mezzo.ir.nodes import Kind
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.read.reading import Reading

_KEY = "mezzo.timed"


def variant(model: OnnxModel, reading: Reading, edits: Sequence[Edit]) -> onnx.ModelProto:
    """Carry edits out on a reading, which is spent. Large weights stay where they are, but of a model with functions,
    which are inlined before it is profiled: ONNX's converter takes those in memory alone.
    """
    for node, proto in zip(reading.graph.nodes, reading.handles.protos, strict=True):
        if proto is not None and node.kind is Kind.OP:
            proto.metadata_props.add(key=_KEY, value=str(node.id))
    result = model.apply(reading, edits)
    return model.materialize(result) if result.functions else result


def label_of(node: onnx.NodeProto) -> str | None:
    """Id of the planner's node that an operator is; None for others, such as the casts of a plan."""
    return next((entry.value for entry in node.metadata_props if entry.key == _KEY), None)
