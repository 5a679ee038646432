"""Operators before normalizations in other words, where a runtime's fusion of both is slower than each by itself."""

from collections.abc import Iterator, Mapping, Sequence, Set

import onnx

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.normal_form.use_counts import UseCounts, graphs_of
from mezzo.onnx.read.origins import name_node, title_of
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.tables.target import Respelling

_NORM, _MEAN, _CENTRE, _ROOT = "LayerNormalization", "ReduceMean", "Sub", "Sqrt"
# What stands between the centre of a normalization in small operators and the root of its variance.
_VARIANCE = frozenset({"Add", "Mul", "Pow", _MEAN})
# From it on Sum broadcasts as Add does.
_OLDEST_OPSET = 8
_Readers = Mapping[str, Sequence[onnx.NodeProto]]


def respell(use_counts: UseCounts, apart: Set[str], respellings: Sequence[Respelling]) -> bool:
    """Change the model of some use counts, and say whether it was changed. `apart`: results of operators that stay."""
    instead = {row.op: row.instead for row in respellings}
    if not instead or (default_opset(use_counts.model) or 0) < _OLDEST_OPSET:
        return False
    is_changed = False
    for node in _before_norms(use_counts):
        if node.op_type in instead and node.output[0] not in apart:
            name_node(node, title_of(node))
            node.op_type = instead[node.op_type]
            is_changed = True
    return is_changed


def _before_norms(use_counts: UseCounts) -> Iterator[onnx.NodeProto]:
    """Operators without a constant operand whose result a normalization alone reads."""
    for graph in graphs_of(use_counts.model.graph):
        constants = use_counts.constants(graph, {})
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        for node in graph.node:
            made = node.output[0] if len(node.output) == 1 and node.domain in DEFAULT else ""
            is_inside = bool(made) and 0 < len(readers.get(made, ())) == use_counts.reads[made]
            if is_inside and _is_normalized(made, readers) and not any(name in constants for name in node.input):
                yield node


def _is_normalized(value: str, readers: _Readers) -> bool:
    """Whether the readers of a value are one normalization of it, as an operator or as mean, centre and deviation."""
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
    """Whether a deviation is made of a centre."""
    left, seen = [value], {value}
    while left:
        for user in readers.get(left.pop(), ()):
            if user.op_type == _ROOT:
                return True
            if user.op_type in _VARIANCE and user.output[0] not in seen:
                seen.add(user.output[0])
                left.append(user.output[0])
    return False
