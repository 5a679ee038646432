"""A model without functions whose nodes say which node of the planner's graph they are.

Functions are planned call by call, and engines inline them under other names. So every call gets a function of its own
whose nodes bear their planner's id, and ONNX's inliner carries the marks along.
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
    """Make the model with what it takes to run it, functions inlined and operators marked. The handles are spent.

    Calls past the planner's limit of expansion are inlined without marks, as the planner does not see inside them.
    """
    for node, proto in zip(reading.graph.nodes, reading.handles.protos, strict=True):
        if proto is not None and node.kind is Kind.OP:
            kept = [entry for entry in proto.metadata_props if entry.key != _KEY]
            del proto.metadata_props[:]
            proto.metadata_props.extend(kept)
            proto.metadata_props.add(key=_KEY, value=str(node.id))
    replace_functions(reading.handles)
    whole = model.runnable(reading.handles.model)
    return whole.with_model(flatten(whole.model))


def tag_of(proto: onnx.NodeProto) -> int | None:
    """Id of the planner's node that an operator is; None for operators that it does not know."""
    for entry in proto.metadata_props:
        if entry.key == _KEY and entry.value.isdecimal():
            return int(entry.value)
    return None
