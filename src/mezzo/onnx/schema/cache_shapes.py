"""Head sizes of key-value caches, from the attention operators that read them.

A cache is [batch, heads, past, head size], and some exporters leave the head size open. It is the
width of the projection of keys or values over the number of its heads. Source: operator schemas of
com.microsoft (ONNX Runtime 1.32) and of ONNX's Attention-23.
"""

from collections.abc import Mapping
from typing import NamedTuple

import onnx

from mezzo.onnx.schema.domains import canonical
from mezzo.onnx.schema.shapes import length_of

_MS = "com.microsoft"


class _Attention(NamedTuple):
    """Operands of an attention operator: caches of keys and values, and their projections.

    `heads`: the attribute with the number of heads of a projection. `is_packed`: without the
    projections, operand 0 holds those of queries, keys and values.
    """

    caches: tuple[int, int]
    projections: tuple[int, int]
    heads: str
    is_packed: bool = False


_ATTENTION: Mapping[tuple[str, str], _Attention] = {
    ("", "Attention"): _Attention((4, 5), (1, 2), "kv_num_heads"),
    (_MS, "GroupQueryAttention"): _Attention((3, 4), (1, 2), "kv_num_heads", is_packed=True),
    (_MS, "MultiHeadAttention"): _Attention((6, 7), (1, 2), "num_heads"),
}


def find_head_sizes(model: onnx.ModelProto) -> dict[str, int]:
    """The head size of each cache of the main graph, by name, where the graph tells it. `model` has
    inferred shapes.
    """
    graph = _Graph(model.graph)
    sizes: dict[str, int] = {}
    for node in model.graph.node:
        row = _ATTENTION.get((canonical(node.domain), node.op_type))
        if row is None:
            continue
        for cache, projection in zip(row.caches, row.projections, strict=True):
            size = graph.head_size(node, row, projection)
            if cache < len(node.input) and node.input[cache] and size is not None:
                sizes[graph.before_casts(node.input[cache])] = size
    return sizes


class _Graph:
    """Shapes and producers of the values of a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._shapes = {
            info.name: tuple(map(length_of, info.type.tensor_type.shape.dim))
            for info in (*graph.input, *graph.value_info)
        }
        self._weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}

    def head_size(self, node: onnx.NodeProto, row: _Attention, projection: int) -> int | None:
        """The head size of the keys or values of an attention; None if it is not known."""
        heads = _attribute(node, row.heads)
        if projection >= len(node.input) or not node.input[projection]:
            if not row.is_packed:
                return None
            heads = _attribute(node, "num_heads") + 2 * heads
            projection = 0
        value = node.input[projection]
        width = self._width(value)
        if len(self._shapes.get(value, ())) == 4:  # [batch, heads, length, head size]
            return width
        return width // heads if width and heads > 0 and width % heads == 0 else None

    def before_casts(self, value: str) -> str:
        """The value that a chain of Casts converts."""
        while (node := self._producers.get(value)) is not None and node.op_type == "Cast":
            value = node.input[0]
        return value

    def _width(self, value: str) -> int | None:
        """The last length of a value, from its shape or from the weight that makes it."""
        last = next(reversed(self._shapes.get(value, ())), None)
        node = self._producers.get(value)
        if isinstance(last, int) or node is None:
            return last if isinstance(last, int) else None
        if node.op_type == "MatMulNBits":
            return _attribute(node, "N")
        if node.op_type not in ("MatMul", "Add"):
            return None
        widths = (self._weights[name][-1] for name in node.input if self._weights.get(name))
        return next((width for width in widths if width > 1), None)


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 0)
