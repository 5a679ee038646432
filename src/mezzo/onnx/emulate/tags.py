"""Tag ONNX nodes with the planner's node ids, then inline all functions.

The planner treats each call of a function separately, and runtimes rename nodes as they inline.
So every call gets its own copy of the function with tagged nodes; ONNX's inliner keeps the tags.
"""

import onnx

from mezzo.ir.nodes import Kind
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.graphs import inline_functions
from mezzo.onnx.protos.metadata import number_of, set_number
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
            set_number(proto, _KEY, node.id)
    replace_functions(reading.handles)
    whole = model.runnable(reading.handles.model)
    return whole.with_model(inline_functions(whole.model))


def tag_of(proto: onnx.NodeProto) -> int | None:
    """The planner's node id of an operator; None for untagged operators."""
    return number_of(proto, _KEY)
