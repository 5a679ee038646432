"""Read If, Loop, Scan, SequenceMap and calls of functions: bodies become scopes, what crosses their borders becomes
ties.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import onnx

from mezzo.core.graph import Kind, Node, Signature, Use
from mezzo.dtypes import DType
from mezzo.errors import ModelError
from mezzo.frontends.onnx.attributes import find, resolve
from mezzo.frontends.onnx.frames import ANY_FLOAT, Env, Frame, pseudo_signature
from mezzo.frontends.onnx.handles import Container, OperandPlace, Place, ResultPlace
from mezzo.frontends.onnx.schema import find_schema
from mezzo.frontends.onnx.types import Aggregate, ValueType, element_dtype, from_type_proto, with_element

if TYPE_CHECKING:
    from mezzo.frontends.onnx.read import Reader


class Result(NamedTuple):
    """One output of a body: what it holds and where it stands."""

    value: int | None
    value_type: ValueType
    name: str


def _tie_legal(frame: Frame, op: str, value_type: ValueType) -> frozenset[DType]:
    """What a control operator may carry. Source: the type variable V of its schema."""
    schema = find_schema("", op, frame.opsets.get("", 1))
    dtype = element_dtype(value_type)
    if schema is None or value_type is None or dtype is None:
        return frozenset(() if dtype is None else (dtype,))
    variables = [v for v in (*schema.inputs, *schema.outputs) if v in schema.allowed]
    return frozenset({dtype}) | {
        low for low in ANY_FLOAT if any(schema.admits(v, with_element(value_type, low)) for v in variables)
    }


class _Ties:
    """Makes the ties of one control node. A tie of loop state is opened before the body and closed after it."""

    def __init__(self, reader: "Reader", frame: Frame, op: str, title: str) -> None:
        self.reader, self.frame, self.op, self.title = reader, frame, op, title

    def open(
        self, label: str, value_type: ValueType, outputs: list[tuple[str, ValueType, int, int]]
    ) -> tuple[int, list[int]]:
        """Add a tie without uses. `outputs` are (name, type, scope, elements). Returns its id and its values' ids."""
        reader = self.reader
        node = len(reader.nodes)
        values = [reader.add_value(name, kind, node, scope, size) for name, kind, scope, size in outputs]
        legal = ANY_FLOAT if self.op == "" else _tie_legal(self.frame, self.op, value_type)
        signature = self._signature(2, len(values), element_dtype(value_type), legal)
        title = reader.unique(self.frame, f"{self.title}.{label}")
        reader.add_node(title, Kind.TIE, signature, self.frame.scope, (), tuple(values))
        return node, values

    def close(self, node: int, uses: list[tuple[int | None, Place]]) -> None:
        """Give a tie its uses and say where they stand."""
        reader = self.reader
        old = reader.nodes[node]
        signature = self._signature(len(uses), len(old.outputs), old.signature.dtype, old.signature.legal)
        reader.nodes[node] = old._replace(inputs=tuple(value for value, _ in uses), signature=signature)
        for operand, (_, place) in enumerate(uses):
            reader.handles.places[Use(node, operand)] = place

    def _signature(self, uses: int, values: int, dtype: DType | None, legal: frozenset[DType]) -> Signature:
        """A tie is the border of its operator's bodies, which a target's table may name; a call's is nobody's."""
        schema = find_schema("", self.op, self.frame.opsets.get("", 1)) if self.op else None
        border = None if schema is None else ("onnx", self.op, schema.version)
        return replace(pseudo_signature("tie", uses, values, dtype, legal), border=border)


def _body(proto: onnx.NodeProto, name: str) -> onnx.GraphProto:
    attribute = find(proto, name)
    if attribute is None:
        raise ModelError(
            f"node {proto.name or proto.output[0]!r} ({proto.op_type}) lacks its body {name!r}; mend the model"
        )
    return attribute.g


def _title(proto: onnx.NodeProto) -> str:
    return proto.name or f"{proto.op_type}:{proto.output[0] if proto.output else ''}"


# A loop's body counts as run this often: its trip count is data.
_NOMINAL_TRIPS = 8


def _enter(reader: "Reader", frame: Frame, node: int, path: str, body: onnx.GraphProto, repeats: int = 1) -> Frame:
    inner = Frame(Env(frame.env), 0, f"{frame.path}/{path}" if frame.path else path, frame.opsets, frame.container)
    inner.scope = reader.add_scope(node, inner.path, body, frame.container, frame.scope, repeats)
    inner.attributes = frame.attributes
    inner.declared = {info.name: info for info in body.value_info}
    inner.depth = frame.depth + 1
    return inner


def _read_body(reader: "Reader", inner: Frame, body: onnx.GraphProto) -> None:
    reader.read_initializers(inner, body, {info.name: info for info in body.input}, skip={i.name for i in body.input})
    reader.read_nodes(inner, body.node)


def _result(reader: "Reader", inner: Frame, body: onnx.GraphProto, index: int, use: Use) -> Result:
    """The value of a body's output, as `use` will read it."""
    name = body.output[index].name
    value, value_type = reader.read_name(inner, name, use)
    if value_type is None:
        value_type = from_type_proto(body.output[index].type)
    return Result(value, value_type, name)


def _control_node(reader: "Reader", frame: Frame, proto: onnx.NodeProto) -> tuple[int, str]:
    """Add the node itself; its plain operands and results are completed by `_finish`."""
    title = reader.unique(frame, _title(proto))
    signature = pseudo_signature(proto.op_type, 0, 0, None, frozenset())
    return reader.add_node(title, Kind.OP, signature, frame.scope, (), (), proto), _title(proto)


def _finish(reader: "Reader", node: int, inputs: list[int | None], outputs: list[int | None]) -> None:
    old: Node = reader.nodes[node]
    signature = pseudo_signature(old.op, len(inputs), len(outputs), None, frozenset())
    reader.nodes[node] = old._replace(inputs=tuple(inputs), outputs=tuple(outputs), signature=signature)


def read_if(reader: "Reader", frame: Frame, proto: onnx.NodeProto) -> None:
    """Each float output is a tie of the two branches' results."""
    node, title = _control_node(reader, frame, proto)
    condition, _ = reader.operand(frame, proto, 0, node)
    bodies = [_body(proto, "then_branch"), _body(proto, "else_branch")]
    frames = []
    for label, body in zip(("then", "else"), bodies, strict=True):
        inner = _enter(reader, frame, node, f"{title}/{label}", body)
        _read_body(reader, inner, body)
        frames.append(inner)
    outputs: list[int | None] = []
    for index, name in enumerate(proto.output):
        tie = len(reader.nodes)
        results = [
            _result(reader, f, b, index, Use(tie, k)) for k, (f, b) in enumerate(zip(frames, bodies, strict=True))
        ]
        value_type = next((r.value_type for r in results if r.value_type is not None), None)
        size = max((reader.values[r.value].elements for r in results if r.value is not None), default=1)
        if reader.is_planned(value_type):
            ties = _Ties(reader, frame, "If", title)
            ties.open(f"output[{index}]", value_type, [(name, value_type, frame.scope, size)])
            ties.close(
                tie, [(r.value, ResultPlace(frame.container, b, index)) for r, b in zip(results, bodies, strict=True)]
            )
            value = len(reader.values) - 1
            for body in bodies:
                reader.handles.declared.setdefault(value, []).append(body.output[index])
        else:
            value = reader.add_value(name, value_type, node, frame.scope, size)
            outputs.append(value)
        frame.env.names[name] = value
    _finish(reader, node, [condition], outputs)


class _Carried(NamedTuple):
    """A loop state or scan input on its way through a body."""

    tie: int | None
    uses: list[tuple[int | None, Place]]
    result: int | None  # the value after the loop


def _carry(
    reader: "Reader",
    frame: Frame,
    inner: Frame,
    ties: _Ties,
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    operand: int,
    formal: int,
    output: int | None,
    label: str,
    node: int,
    is_slice: bool,
) -> _Carried:
    """Bind a body's formal input to an operand, by a tie if it is a float. `output` is the node's output it leads
    to.
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
    reader: "Reader",
    frame: Frame,
    inner: Frame,
    ties: _Ties,
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    index: int,
    output: int,
    node: int,
    shape: str,
) -> int | None:
    """Hand a body's scan output out. Returns the value if it is the control node's own, None if a tie makes it."""
    name = proto.output[output] if output < len(proto.output) else ""
    tie = len(reader.nodes)
    result = _result(reader, inner, body, index, Use(tie, 0))
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
    reader: "Reader",
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
    """The common part of Loop, Scan and SequenceMap: `states` carried, `slices` scanned in, the other results scanned
    out.
    """
    node, title = _control_node(reader, frame, proto)
    inputs = [reader.operand(frame, proto, i, node)[0] for i in range(min(plain, len(proto.input)))]
    inner = _enter(reader, frame, node, f"{title}/body", body, _NOMINAL_TRIPS)
    ties = _Ties(reader, frame, op, title)
    for index in range(first_formal):  # Loop's iteration number and condition: no floats
        name = body.input[index].name
        inner.env.names[name] = reader.add_value(name, from_type_proto(body.input[index].type), node, inner.scope, 1)
    carried = [
        _carry(reader, frame, inner, ties, proto, body, plain + k, first_formal + k, k, f"state[{k}]", node, False)
        for k in range(states)
    ]
    scanned = [
        _carry(
            reader, frame, inner, ties, proto, body, plain + k, first_formal + k, None, f"input[{k}]", node, is_slice
        )
        for k in range(states, states + slices)
    ]
    _read_body(reader, inner, body)
    outputs: list[int | None] = []
    for index in range(first_result):  # Loop's condition
        inputs.append(reader.read_name(inner, body.output[index].name, Use(node, len(inputs)))[0])
    for k, state in enumerate(carried):
        index = first_result + k
        if state.tie is None:
            outputs.append(_leave(reader, frame, inner, ties, proto, body, index, k, node, ""))
            continue
        use = Use(state.tie, len(state.uses))
        result = _result(reader, inner, body, index, use)
        ties.close(state.tie, [*state.uses, (result.value, ResultPlace(frame.container, body, index))])
        assert state.result is not None, "a carried state has a value after the loop"
        reader.handles.declared.setdefault(state.result, []).append(body.output[index])
        if k < len(proto.output):
            frame.env.names[proto.output[k]] = state.result
    for entry in scanned:
        if entry.tie is not None:
            ties.close(entry.tie, entry.uses)
    for k in range(states, len(body.output) - first_result):
        outputs.append(_leave(reader, frame, inner, ties, proto, body, first_result + k, k, node, shape))
    _finish(reader, node, inputs, [o for o in outputs if o is not None])


def read_loop(reader: "Reader", frame: Frame, proto: onnx.NodeProto) -> None:
    body = _body(proto, "body")
    states = max(len(body.input) - 2, 0)
    _read_states(reader, frame, proto, body, "Loop", 2, states, 2, 1, 0, "", False)


def read_scan(reader: "Reader", frame: Frame, proto: onnx.NodeProto) -> None:
    body = _body(proto, "body")
    attribute = find(proto, "num_scan_inputs")
    slices = attribute.i if attribute is not None else 0
    states = len(body.input) - slices
    if slices < 0 or states < 0:
        raise ModelError(
            f"node {_title(proto)!r} (Scan): num_scan_inputs is {slices}, its body has "
            f"{len(body.input)} inputs; mend the model"
        )
    plain = 1 if frame.opsets.get("", 1) < 9 else 0  # Scan-8 takes the sequences' lengths first
    _read_states(reader, frame, proto, body, "Scan", plain, states, 0, 0, slices, "", True)


def read_sequence_map(reader: "Reader", frame: Frame, proto: onnx.NodeProto) -> None:
    body = _body(proto, "body")
    _read_states(reader, frame, proto, body, "SequenceMap", 0, 0, 0, 0, len(body.input), "seq(tensor({}))", True)


def read_call(reader: "Reader", frame: Frame, proto: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    """A call is planned on its own: floats that cross its border are ties; lower gives equal calls one
    specialisation.
    """
    node, title = _control_node(reader, frame, proto)
    if len(proto.input) > len(function.input):
        raise ModelError(
            f"node {_title(proto)!r} has {len(proto.input)} operands, function {function.name!r} takes "
            f"{len(function.input)}; mend the model"
        )
    own = onnx.FunctionProto()  # a copy for this call, so that two calls can be typed differently
    own.CopyFrom(function)
    function = own
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}
    container = Container(function, call=proto, key=(function.domain, function.name, function.overload))
    path = f"{frame.path}/{title}" if frame.path else title
    inner = Frame(Env(), 0, path, opsets, container)
    inner.scope = reader.add_scope(node, path, function, container, frame.scope)
    inner.depth = frame.depth + 1
    inner.declared = {info.name: info for info in function.value_info}
    passed = {a.name: resolve(a, frame.attributes) for a in proto.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    inner.attributes = defaults | {name: a for name, a in passed.items() if a is not None}
    ties = _Ties(reader, frame, "", title)
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
            _, values = ties.open(f"input[{index}]", value_type, [(name, value_type, inner.scope, size)])
            ties.close(tie, [(value, OperandPlace(frame.container, proto, index))])
            inner.env.names[name] = values[0]
        else:
            reader.widened.discard(Use(tie, 0))
            inner.env.names[name] = entered = reader.add_value(name, value_type, node, inner.scope, size)
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
    _finish(reader, node, [], outputs)
