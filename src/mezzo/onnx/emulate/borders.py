"""Insert Identity nodes where values enter or leave subgraphs and functions.

A tie (ir/nodes.py: values that share one dtype) has no node in the ONNX model at which to round.
Each inserted Identity carries the tie's id in its metadata: after a control-flow node or call for
its outputs, at the start of a subgraph or function for its inputs.
"""

import onnx

from mezzo.formats.dtypes import HIGH
from mezzo.ir.nodes import Kind
from mezzo.onnx.protos.metadata import number_of, set_number
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.schema.domains import DEFAULT

_KEY = "mezzo.border"
_Owner = onnx.GraphProto | onnx.FunctionProto


def mark_borders(reading: OnnxReading, prefix: str) -> None:
    """Insert one Identity per tied value, in place. No name in the model starts with `prefix`."""
    graph, handles = reading.graph, reading.handles
    formals: dict[int, list[tuple[int, str]]] = {}  # by scope: tie id and input name
    results: dict[int, dict[str, int]] = {}  # by scope: output name to tie id
    for node in graph.nodes:
        if node.kind is not Kind.TIE or node.signature.dtype is not HIGH:
            continue
        for number in node.outputs:
            if (
                number is None
                or not graph.values[number].is_castable
                or not graph.values[number].name
            ):
                continue
            value = graph.values[number]
            if value.scope == node.scope:
                results.setdefault(value.scope, {})[value.name] = node.id
            else:
                formals.setdefault(value.scope, []).append((node.id, value.name))
    counter = 0
    for scope, owner in enumerate(handles.owners):
        if isinstance(owner, onnx.FunctionProto) and not _knows_identity(owner):
            continue
        heads = []
        for tie, name in formals.get(scope, ()):
            counter += 1
            _rename_formal(owner, name, f"{prefix}{counter}")
            heads.append(_identity(f"{prefix}{counter}", name, tie))
        pending = results.get(scope, {})
        position = 0
        while position < len(owner.node) and pending:
            proto = owner.node[position]
            position += 1
            for index, name in enumerate(proto.output):
                tie_of = pending.pop(name, None)
                if tie_of is not None:
                    counter += 1
                    proto.output[index] = f"{prefix}{counter}"
                    owner.node.insert(position, _identity(f"{prefix}{counter}", name, tie_of))
                    position += 1
        for head in reversed(heads):
            owner.node.insert(0, head)


def border_of(proto: onnx.NodeProto) -> int | None:
    """Id of the tie that this inserted Identity represents; None for all other nodes."""
    return number_of(proto, _KEY)


def _knows_identity(function: onnx.FunctionProto) -> bool:
    return any(entry.domain in DEFAULT for entry in function.opset_import)


def _rename_formal(owner: _Owner, name: str, fresh: str) -> None:
    if isinstance(owner, onnx.FunctionProto):
        owner.input[list(owner.input).index(name)] = fresh
        return
    next(port for port in owner.input if port.name == name).name = fresh


def _identity(source: str, result: str, tie: int) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type="Identity", input=[source], output=[result])
    set_number(node, _KEY, tie)
    return node
