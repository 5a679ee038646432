"""Marks what crosses a border: values that ties carry into bodies and calls and out of them, and graph interfaces.

A tie is no operator, so a model has no node to round at. Where a tie hands a value on, an Identity that bears the tie's
id is put: behind a control node or call for its results, at the head of a body or function for its formal inputs.
"""

import onnx

from mezzo.formats.dtypes import HIGH
from mezzo.ir.nodes import Kind
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.schema.domains import DEFAULT

_KEY = "mezzo.border"
_Owner = onnx.GraphProto | onnx.FunctionProto


def mark_borders(reading: OnnxReading, prefix: str) -> None:
    """Put the Identities of all ties into the reading's model. `prefix` starts no name of the model."""
    graph, handles = reading.graph, reading.handles
    formals: dict[int, list[tuple[int, str]]] = {}  # by scope: the tie and the formal's name
    results: dict[int, dict[str, int]] = {}  # by scope: the tie of each result
    for node in graph.nodes:
        if node.kind is not Kind.TIE or node.signature.dtype is not HIGH:
            continue
        for number in node.outputs:
            if number is None or not graph.values[number].is_castable or not graph.values[number].name:
                continue
            value = graph.values[number]
            if value.scope == node.scope:
                results.setdefault(value.scope, {})[value.name] = node.id
            else:
                formals.setdefault(value.scope, []).append((node.id, value.name))
    made = 0
    for scope, owner in enumerate(handles.owners):
        if isinstance(owner, onnx.FunctionProto) and not _knows_identity(owner):
            continue
        heads = []
        for tie, name in formals.get(scope, ()):
            made += 1
            _rename_formal(owner, name, f"{prefix}{made}")
            heads.append(_identity(f"{prefix}{made}", name, tie))
        wanted = results.get(scope, {})
        position = 0
        while position < len(owner.node) and wanted:
            proto = owner.node[position]
            position += 1
            for index, name in enumerate(proto.output):
                tie_of = wanted.pop(name, None)
                if tie_of is not None:
                    made += 1
                    proto.output[index] = f"{prefix}{made}"
                    owner.node.insert(position, _identity(f"{prefix}{made}", name, tie_of))
                    position += 1
        for head in reversed(heads):
            owner.node.insert(0, head)


def border_of(proto: onnx.NodeProto) -> int | None:
    """Id of the tie that hands on what this Identity makes; None for all other nodes."""
    for entry in proto.metadata_props:
        if entry.key == _KEY and entry.value.isdecimal():
            return int(entry.value)
    return None


def _knows_identity(function: onnx.FunctionProto) -> bool:
    return any(entry.domain in DEFAULT for entry in function.opset_import)


def _rename_formal(owner: _Owner, name: str, fresh: str) -> None:
    if isinstance(owner, onnx.FunctionProto):
        owner.input[list(owner.input).index(name)] = fresh
        return
    next(port for port in owner.input if port.name == name).name = fresh


def _identity(source: str, result: str, tie: int) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type="Identity", input=[source], output=[result])
    node.metadata_props.add(key=_KEY, value=str(tie))
    return node
