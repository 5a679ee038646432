"""Tag ONNX nodes with the planner's node ids, then inline all functions.

The planner treats each call of a function separately, and runtimes rename nodes as they inline.
So every call gets its own copy of the function with tagged nodes; ONNX's inliner keeps the tags.
"""

import onnx

from mezzo.ir.nodes import Kind
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.measure.compared import flatten
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.read.functions import replace_functions
from mezzo.onnx.read.reading import OnnxReading

_KEY = "mezzo.node"


def tagged(model: OnnxModel, reading: OnnxReading) -> RunnableModel:
    """Build a runnable model with tagged operators and inlined functions.

    Modifies the reading's handles. Calls beyond the planner's expansion limit are inlined without
    tags, as the planner does not see inside them.
    """
    for node, proto in zip(reading.graph.nodes, reading.handles.protos, strict=True):
        if proto is not None and node.kind is Kind.OP:
            other_entries = [entry for entry in proto.metadata_props if entry.key != _KEY]
            del proto.metadata_props[:]
            proto.metadata_props.extend(other_entries)
            proto.metadata_props.add(key=_KEY, value=str(node.id))
    replace_functions(reading.handles)
    whole = model.runnable(reading.handles.model)
    return whole.with_model(flatten(whole.model))


def tag_of(proto: onnx.NodeProto) -> int | None:
    """The planner's node id of an operator; None for untagged operators."""
    for entry in proto.metadata_props:
        if entry.key == _KEY and entry.value.isdecimal():
            return int(entry.value)
    return None
