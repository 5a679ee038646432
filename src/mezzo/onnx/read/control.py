"""Reading of If and function calls, whose bodies run once."""

from copy import deepcopy

import onnx

from mezzo.common.errors import ModelError
from mezzo.ir.nodes import Use
from mezzo.onnx.protos.attributes import resolve
from mezzo.onnx.read.bodies import ControlFlow
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import Env, Frame
from mezzo.onnx.read.handles import Container
from mezzo.onnx.schema.domains import imported_opsets


def read_if(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    """Read an If. Each float output is a tie of the two branches' results."""
    control = ControlFlow(reader, frame, proto, "If")
    condition, _ = reader.operand(frame, proto, 0, control.node)
    control.inputs.append(condition)
    bodies = [control.body("then_branch"), control.body("else_branch")]
    frames = []
    for label, body in zip(("then", "else"), bodies, strict=True):
        inner = control.enter(label, body)
        control.read_body(inner, body)
        frames.append(inner)
    for index in range(len(proto.output)):
        tie = len(reader.nodes)
        results = [
            control.read_result(inner, body, index, Use(tie, branch))
            for branch, (inner, body) in enumerate(zip(frames, bodies, strict=True))
        ]
        value_type = next((r.value_type for r in results if r.value_type is not None), None)
        control.bind_output(
            index,
            value_type,
            max(result.elements for result in results),
            [(result.value, result.place) for result in results],
            [body.output[index] for body in bodies],
        )
    control.finish()


def read_call(
    reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, function: onnx.FunctionProto
) -> None:
    """Read a function call, planned separately: its float inputs and outputs are ties.

    `replace_functions` merges calls whose copies stay equal after the edits.
    """
    call = ControlFlow(reader, frame, proto)
    if len(proto.input) > len(function.input):
        raise ModelError(
            f"node {call.title!r} has {len(proto.input)} operands, function {function.name!r}"
            f" takes {len(function.input)}; mend the model"
        )
    function = deepcopy(function)  # for this call, so that two calls can be typed differently
    inner = _enter(call, function)
    for index, name in enumerate(function.input):
        _bind_argument(call, inner, index, name)
    reader.read_nodes(inner, function.node)
    if len(proto.output) > len(function.output):
        raise ModelError(
            f"node {call.title!r} has {len(proto.output)} outputs, function {function.name!r} gives"
            f" {len(function.output)}; mend the model"
        )
    for index, name in enumerate(proto.output):
        if name:
            result = call.read_result(inner, function, index, Use(len(reader.nodes), 0))
            uses = [(result.value, result.place)]
            call.bind_output(index, result.value_type, result.elements, uses)
    call.finish()


def _enter(call: ControlFlow, function: onnx.FunctionProto) -> Frame:
    """Open the scope of a called function, with its opsets and attributes."""
    frame, proto, path = call.frame, call.proto, call.path(call.title)
    key = (function.domain, function.name, function.overload)
    container = Container(function, call=proto, key=key)
    scope = call.reader.add_scope(call.node, path, function, container, frame.scope, is_called=True)
    inner = Frame(Env(), scope, path, imported_opsets(function), container)
    inner.depth = frame.depth + 1
    inner.declared = {info.name: info for info in function.value_info}
    arguments = {a.name: resolve(a, frame.attributes) for a in proto.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    inner.attributes = defaults | {name: a for name, a in arguments.items() if a is not None}
    return inner


def _bind_argument(call: ControlFlow, inner: Frame, index: int, name: str) -> None:
    """Bind an input of a function to the call's operand, by a tie if it is a planned float."""
    reader, tie = call.reader, len(call.reader.nodes)
    value, value_type = call.read_operand(index, Use(tie, 0))
    if value is None:
        inner.env.names[name] = None
        return
    elements = reader.values[value].elements
    if not reader.is_planned(value_type):
        reader.entered[call.bind(name, value_type, inner, elements)] = value
        return
    port = (name, value_type, inner.scope, elements)
    tie, values = call.open_tie(f"input[{index}]", value_type, [port])
    call.close_tie(tie, [(value, call.operand_place(index))])
    inner.env.names[name] = values[0]
