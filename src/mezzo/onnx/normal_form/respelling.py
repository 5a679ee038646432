"""Replacement of operators before a LayerNormalization by equivalents without fusion.

Used where a target's fused kernel is slower than the two operators apart (Add -> Sum, for example).
"""

from collections.abc import Iterator, Mapping, Sequence, Set

import onnx

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.normal_form.use_counts import UseCounts
from mezzo.onnx.protos.graphs import all_graphs
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.tables.target import Respelling

_NORM, _MEAN, _CENTRE, _ROOT = "LayerNormalization", "ReduceMean", "Sub", "Sqrt"
# Operators between the centred value and the Sqrt in a decomposed layer normalization.
_VARIANCE = frozenset({"Add", "Mul", "Pow", _MEAN})
# The first opset in which Sum broadcasts as Add does.
_OLDEST_OPSET = 8
_Readers = Mapping[str, Sequence[onnx.NodeProto]]


def respell(use_counts: UseCounts, apart: Set[str], respellings: Sequence[Respelling]) -> bool:
    """Replace operators in the counted model; True if any. `apart`: results of nodes to keep."""
    instead = {row.op: row.instead for row in respellings}
    if not instead or (default_opset(use_counts.model) or 0) < _OLDEST_OPSET:
        return False
    is_changed = False
    for node in _before_norms(use_counts):
        if node.op_type in instead and node.output[0] not in apart:
            name_node(node)
            node.op_type = instead[node.op_type]
            is_changed = True
    return is_changed


def _before_norms(use_counts: UseCounts) -> Iterator[onnx.NodeProto]:
    """Operators without constant operands whose only user is a normalization."""
    for graph in all_graphs(use_counts.model.graph):
        constants = use_counts.constants(graph, {})
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        for node in graph.node:
            result = node.output[0] if len(node.output) == 1 and node.domain in DEFAULT else ""
            is_inside = (
                bool(result) and 0 < len(readers.get(result, ())) == use_counts.reads[result]
            )
            if (
                is_inside
                and _is_normalized(result, readers)
                and not any(name in constants for name in node.input)
            ):
                yield node


def _is_normalized(value: str, readers: _Readers) -> bool:
    """Whether all uses of a value belong to one layer normalization, fused or decomposed."""
    users = readers[value]
    if [user.op_type for user in users] == [_NORM]:
        return bool(users[0].input[0] == value)
    means = [user.output[0] for user in users if user.op_type == _MEAN]
    centres = [user for user in users if user.op_type == _CENTRE]
    if len(means) != 1 or not centres or len(centres) + 1 != len(users):
        return False
    is_centred = all([*centre.input] == [value, means[0]] for centre in centres)
    return is_centred and any(_leads_to_root(centre.output[0], readers) for centre in centres)


def _leads_to_root(value: str, readers: _Readers) -> bool:
    """Whether a standard deviation (Sqrt) is computed from a centred value."""
    pending, visited = [value], {value}
    while pending:
        for user in readers.get(pending.pop(), ()):
            if user.op_type == _ROOT:
                return True
            if user.op_type in _VARIANCE and user.output[0] not in visited:
                visited.add(user.output[0])
                pending.append(user.output[0])
    return False
