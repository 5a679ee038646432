"""Renaming of a model for profiling: node numbers in all names, to trace runtime kernels to nodes.

Runtimes name fused and inserted kernels after the original nodes and values, whose names are
arbitrary or missing. In the copy, names of nodes and their outputs contain the node's number.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import onnx

from mezzo.onnx.protos.graphs import inline_functions, stored_names, subgraphs_of
from mezzo.onnx.protos.names import value_names

Label = Callable[[onnx.NodeProto], str | None]


@dataclass(frozen=True, slots=True)
class TimedNode:
    """A node of the copy. `label` is the name for its time, None for nodes that are not reported.

    `reads`: for each operand its producer's number and output position, or the name of a graph
    input or constant. `owner`: the control-flow node whose subgraph it is in.
    """

    label: str | None
    op: str
    reads: tuple[tuple[int, int] | str, ...]
    owner: int | None


@dataclass(frozen=True)
class Prepared:
    """The copy, and its nodes by number."""

    model: onnx.ModelProto
    pieces: tuple[TimedNode, ...]
    prefix: str

    def numbers_in(self, name: str) -> set[int]:
        """The node numbers in a name of the runtime's."""
        return {int(number) for number in re.findall(f"{self.prefix}([0-9]+)q", name)}

    def is_node(self, name: str) -> bool:
        """Whether a name is exactly a node's."""
        return re.fullmatch(f"{self.prefix}[0-9]+q", name) is not None

    def is_value(self, name: str) -> bool:
        """Whether a name is exactly a value's."""
        return re.fullmatch(f"{self.prefix}[0-9]+qo[0-9]+", name) is not None


def prepare(model: onnx.ModelProto, label: Label) -> Prepared:
    """Copy a model with new names. Graph inputs and weights keep theirs; graph outputs do not."""
    copy = deepcopy(inline_functions(model))
    prefix = "zq"
    names = value_names(copy.graph)
    while any(prefix in name for name in names):
        prefix += "z"
    renamer = _Renamer(prefix, label)
    renamer.rename(copy.graph, {}, None)
    return Prepared(copy, tuple(renamer.pieces), prefix)


class _Renamer:
    def __init__(self, prefix: str, label: Label) -> None:
        self._prefix, self._label = prefix, label
        self._made: dict[str, tuple[int, int]] = {}
        self.pieces: list[TimedNode] = []

    def rename(self, graph: onnx.GraphProto, around: dict[str, str], owner: int | None) -> None:
        """Rename nodes and their outputs. `around`: new names of enclosing graphs' values."""
        names = dict(around)
        names.update((port.name, port.name) for port in graph.input)
        names.update((name, name) for name in stored_names(graph))
        del graph.value_info[:]
        del graph.quantization_annotation[:]
        for node in graph.node:
            self._rename_node(node, names, owner)
        for port in graph.output:
            port.name = names.get(port.name, port.name)

    def _rename_node(self, node: onnx.NodeProto, names: dict[str, str], owner: int | None) -> None:
        number = len(self.pieces)
        node.input[:] = [names.get(name, name) for name in node.input]
        reads = tuple(self._made.get(name, name) for name in node.input)
        self.pieces.append(TimedNode(self._label(node), node.op_type, reads, owner))
        node.name = f"{self._prefix}{number}q"
        for body in subgraphs_of(node):
            self.rename(body, names, number)
        for position, name in enumerate(node.output):
            if name:
                names[name] = f"{node.name}o{position}"
                self._made[names[name]] = number, position
        node.output[:] = [names[name] if name else "" for name in node.output]


def bodies_of(pieces: Sequence[TimedNode]) -> dict[int, list[int]]:
    """All nodes inside each control-flow node, including nested subgraphs."""
    bodies: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        owner = piece.owner
        while owner is not None:
            bodies.setdefault(owner, []).append(number)
            owner = pieces[owner].owner
    return bodies
