"""Reading of If and function calls, whose bodies run once."""

from copy import deepcopy

import onnx

from mezzo.common.errors import ModelError
from mezzo.ir.nodes import Use
from mezzo.onnx.protos.attributes import resolve
from mezzo.onnx.read.bodies import (
    Ties,
    add_control_node,
    body_of,
    enter,
    finish,
    read_body,
    read_result,
)
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import Env, Frame
from mezzo.onnx.read.handles import Container, OperandPlace, ResultPlace
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.schema.domains import imported_opsets
from mezzo.onnx.schema.types import ValueType


def read_if(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    """Read an If. Each float output is a tie of the two branches' results."""
    node, title = add_control_node(reader, frame, proto)
    condition, _ = reader.operand(frame, proto, 0, node)
    bodies = [body_of(proto, "then_branch"), body_of(proto, "else_branch")]
    frames = []
    for label, body in zip(("then", "else"), bodies, strict=True):
        inner = enter(reader, frame, node, f"{title}/{label}", body)
        read_body(reader, inner, body)
        frames.append(inner)
    outputs: list[int | None] = []
    for index, name in enumerate(proto.output):
        tie = len(reader.nodes)
        results = [
            read_result(reader, f, b, index, Use(tie, k))
            for k, (f, b) in enumerate(zip(frames, bodies, strict=True))
        ]
        value_type = next((r.value_type for r in results if r.value_type is not None), None)
        size = max(
            (reader.values[r.value].elements for r in results if r.value is not None), default=1
        )
        if reader.is_planned(value_type):
            ties = Ties(reader, frame, "If", title)
            ties.open(f"output[{index}]", value_type, [(name, value_type, frame.scope, size)])
            ties.close(
                tie,
                [
                    (r.value, ResultPlace(frame.container, b, index))
                    for r, b in zip(results, bodies, strict=True)
                ],
            )
            value = len(reader.values) - 1
            for body in bodies:
                reader.handles.declared.setdefault(value, []).append(body.output[index])
        else:
            value = reader.add_value(name, value_type, node, frame.scope, size)
            outputs.append(value)
        frame.env.names[name] = value
    finish(reader, node, [condition], outputs)


def read_call(
    reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, function: onnx.FunctionProto
) -> None:
    """Read a function call, planned separately: its float inputs and outputs are ties.

    `replace_functions` merges calls whose copies stay equal after the edits.
    """
    node, title = add_control_node(reader, frame, proto)
    if len(proto.input) > len(function.input):
        raise ModelError(
            f"node {title_of(proto)!r} has {len(proto.input)} operands, function {function.name!r}"
            f" takes {len(function.input)}; mend the model"
        )
    function = deepcopy(function)  # for this call, so that two calls can be typed differently
    opsets = imported_opsets(function)
    container = Container(
        function, call=proto, key=(function.domain, function.name, function.overload)
    )
    path = f"{frame.path}/{title}" if frame.path else title
    inner = Frame(Env(), 0, path, opsets, container)
    inner.scope = reader.add_scope(node, path, function, container, frame.scope)
    inner.depth = frame.depth + 1
    inner.declared = {info.name: info for info in function.value_info}
    arguments = {a.name: resolve(a, frame.attributes) for a in proto.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    inner.attributes = defaults | {name: a for name, a in arguments.items() if a is not None}
    ties = Ties(reader, frame, "", title)
    for index, name in enumerate(function.input):
        tie = len(reader.nodes)
        value: int | None = None
        value_type: ValueType = None
        if index < len(proto.input) and proto.input[index]:
            value, value_type = reader.read_name(frame, proto.input[index], Use(tie, 0), proto)
        if value is None:
            inner.env.names[name] = None
            continue
        size = reader.values[value].elements
        if reader.is_planned(value_type):
            _, values = ties.open(
                f"input[{index}]", value_type, [(name, value_type, inner.scope, size)]
            )
            ties.close(tie, [(value, OperandPlace(frame.container, proto, index))])
            inner.env.names[name] = values[0]
        else:
            reader.widened.discard(Use(tie, 0))
            inner.env.names[name] = entered = reader.add_value(
                name, value_type, node, inner.scope, size
            )
            reader.entered[entered] = value
    reader.read_nodes(inner, function.node)
    if len(proto.output) > len(function.output):
        raise ModelError(
            f"node {title!r} has {len(proto.output)} outputs, function {function.name!r} gives "
            f"{len(function.output)}; mend the model"
        )
    outputs: list[int | None] = []
    for index, name in enumerate(proto.output):
        if not name:
            continue
        tie = len(reader.nodes)
        value, value_type = reader.read_name(inner, function.output[index], Use(tie, 0))
        size = 1 if value is None else reader.values[value].elements
        if reader.is_planned(value_type):
            ties.open(f"output[{index}]", value_type, [(name, value_type, frame.scope, size)])
            ties.close(tie, [(value, ResultPlace(container, function, index))])
            frame.env.names[name] = len(reader.values) - 1
        else:
            reader.widened.discard(Use(tie, 0))
            frame.env.names[name] = reader.add_value(name, value_type, node, frame.scope, size)
            outputs.append(frame.env.names[name])
    finish(reader, node, [], outputs)
