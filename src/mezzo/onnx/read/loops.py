"""Reading of Loop, Scan and SequenceMap, whose bodies run repeatedly and carry state."""

from typing import NamedTuple

import onnx

from mezzo.common.errors import ModelError
from mezzo.ir.nodes import Use
from mezzo.onnx.protos.attributes import find
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
from mezzo.onnx.read.frames import Frame
from mezzo.onnx.read.handles import OperandPlace, Place, ResultPlace
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.schema.types import Aggregate, ValueType, element_dtype, from_type_proto

# Assumed number of iterations of a loop, as its trip count is data.
_NOMINAL_TRIPS = 8


class _Carried(NamedTuple):
    """A loop state or scan input of a body: its tie, if it has one, and the tie's uses."""

    tie: int | None
    uses: list[tuple[int | None, Place]]
    result: int | None  # the value after the loop


def _carry(
    reader: GraphBuilder,
    frame: Frame,
    inner: Frame,
    ties: Ties,
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    operand: int,
    formal: int,
    output: int | None,
    label: str,
    node: int,
    is_slice: bool,
) -> _Carried:
    """Bind a body's input (`formal`) to an operand, by a tie if it is a planned float. `output` is
    the node's output for a state, None for a scan input.
    """
    has_operand = operand < len(proto.input) and proto.input[operand] != ""
    name = body.input[formal].name
    if not has_operand:
        value_type = from_type_proto(body.input[formal].type)
        inner.env.names[name] = reader.add_value(name, value_type, node, inner.scope, 1)
        return _Carried(None, [], None)
    tie = len(reader.nodes)
    value, value_type = reader.read_name(frame, proto.input[operand], Use(tie, 0), proto)
    size = 1 if value is None else reader.values[value].elements
    formal_type: ValueType = value_type
    if is_slice and isinstance(value_type, Aggregate):
        formal_type = value_type.dtype
    if not reader.is_planned(value_type):
        reader.widened.discard(Use(tie, 0))
        reader.aliased.discard(Use(tie, 0))
        inner.env.names[name] = reader.add_value(name, formal_type, node, inner.scope, size)
        return _Carried(None, [], None)
    outputs = [(name, formal_type, inner.scope, size)]
    result_name = proto.output[output] if output is not None and output < len(proto.output) else ""
    if output is not None:
        outputs.append((result_name, value_type, frame.scope, size))
    _, values = ties.open(label, value_type, outputs)
    inner.env.names[name] = values[0]
    reader.handles.declared.setdefault(values[0], []).append(body.input[formal])
    uses: list[tuple[int | None, Place]] = [(value, OperandPlace(frame.container, proto, operand))]
    return _Carried(tie, uses, values[1] if output is not None else None)


def _leave(
    reader: GraphBuilder,
    frame: Frame,
    inner: Frame,
    ties: Ties,
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    index: int,
    output: int,
    node: int,
    shape: str,
) -> int | None:
    """Add a body's scan output. Returns its value if the node produces it, None for a tie."""
    name = proto.output[output] if output < len(proto.output) else ""
    tie = len(reader.nodes)
    result = read_result(reader, inner, body, index, Use(tie, 0))
    size = 1 if result.value is None else reader.values[result.value].elements
    outer: ValueType = result.value_type
    if shape and outer is not None:
        outer = Aggregate(shape, element_dtype(outer))
    size = max(size, reader.counts.get(name, 0))
    if not reader.is_planned(result.value_type):
        reader.widened.discard(Use(tie, 0))
        reader.aliased.discard(Use(tie, 0))
        frame.env.names[name] = reader.add_value(name, outer, node, frame.scope, size)
        return frame.env.names[name]
    ties.open(f"output[{output}]", outer, [(name, outer, frame.scope, size)])
    ties.close(tie, [(result.value, ResultPlace(frame.container, body, index))])
    value = len(reader.values) - 1
    reader.handles.declared.setdefault(value, []).append(body.output[index])
    frame.env.names[name] = value
    return None


def _read_states(
    reader: GraphBuilder,
    frame: Frame,
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    op: str,
    plain: int,
    states: int,
    first_formal: int,
    first_result: int,
    slices: int,
    shape: str,
    is_slice: bool,
) -> None:
    """Common part of Loop, Scan and SequenceMap: `states` are loop-carried values, `slices` scan
    inputs; all other results are scan outputs.
    """
    node, title = add_control_node(reader, frame, proto)
    inputs = [reader.operand(frame, proto, i, node)[0] for i in range(min(plain, len(proto.input)))]
    inner = enter(reader, frame, node, f"{title}/body", body, _NOMINAL_TRIPS)
    ties = Ties(reader, frame, op, title)
    for index in range(first_formal):  # Loop's iteration number and condition: no floats
        name = body.input[index].name
        inner.env.names[name] = reader.add_value(
            name, from_type_proto(body.input[index].type), node, inner.scope, 1
        )
    carried = [
        _carry(
            reader,
            frame,
            inner,
            ties,
            proto,
            body,
            plain + k,
            first_formal + k,
            k,
            f"state[{k}]",
            node,
            False,
        )
        for k in range(states)
    ]
    scanned = [
        _carry(
            reader,
            frame,
            inner,
            ties,
            proto,
            body,
            plain + k,
            first_formal + k,
            None,
            f"input[{k}]",
            node,
            is_slice,
        )
        for k in range(states, states + slices)
    ]
    read_body(reader, inner, body)
    outputs: list[int | None] = []
    for index in range(first_result):  # Loop's condition
        inputs.append(reader.read_name(inner, body.output[index].name, Use(node, len(inputs)))[0])
    for k, state in enumerate(carried):
        index = first_result + k
        if state.tie is None:
            outputs.append(_leave(reader, frame, inner, ties, proto, body, index, k, node, ""))
            continue
        use = Use(state.tie, len(state.uses))
        result = read_result(reader, inner, body, index, use)
        ties.close(
            state.tie, [*state.uses, (result.value, ResultPlace(frame.container, body, index))]
        )
        assert state.result is not None, "a carried state has a value after the loop"
        reader.handles.declared.setdefault(state.result, []).append(body.output[index])
        if k < len(proto.output):
            frame.env.names[proto.output[k]] = state.result
    for entry in scanned:
        if entry.tie is not None:
            ties.close(entry.tie, entry.uses)
    for k in range(states, len(body.output) - first_result):
        outputs.append(
            _leave(reader, frame, inner, ties, proto, body, first_result + k, k, node, shape)
        )
    finish(reader, node, inputs, [o for o in outputs if o is not None])


def read_loop(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    body = body_of(proto, "body")
    states = max(len(body.input) - 2, 0)
    _read_states(reader, frame, proto, body, "Loop", 2, states, 2, 1, 0, "", False)


def read_scan(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    body = body_of(proto, "body")
    attribute = find(proto, "num_scan_inputs")
    slices = attribute.i if attribute is not None else 0
    states = len(body.input) - slices
    if slices < 0 or states < 0:
        raise ModelError(
            f"node {title_of(proto)!r} (Scan): num_scan_inputs is {slices}, its body has "
            f"{len(body.input)} inputs; mend the model"
        )
    plain = 1 if frame.opsets.get("", 1) < 9 else 0  # Scan-8 takes the sequences' lengths first
    _read_states(reader, frame, proto, body, "Scan", plain, states, 0, 0, slices, "", True)


def read_sequence_map(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    body = body_of(proto, "body")
    _read_states(
        reader,
        frame,
        proto,
        body,
        "SequenceMap",
        0,
        0,
        0,
        0,
        len(body.input),
        "seq(tensor({}))",
        True,
    )
