"""Dependencies of each output: float formats on its path, and whether input data reaches it."""

from collections.abc import Collection

import torch
from torch import fx

from mezzo.aten.edit.quantizing import QUANTIZE
from mezzo.aten.lab.runner import tensors_of
from mezzo.aten.program import TORCH_DTYPES, Program, attribute_of, packet_of
from mezzo.aten.read.retype import dtypes_of
from mezzo.contracts.lab import Reached
from mezzo.formats.dtypes import DType

# Operators that use a tensor's shape and dtype, but none of its elements.
_SHAPE_ONLY = frozenset(
    {
        "empty_like",
        "full_like",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones_like",
        "rand_like",
        "randint_like",
        "randn_like",
        "zeros_like",
    }
)


def find_reached(program: Program, fed: Collection[str]) -> dict[str, Reached]:
    """The dependencies of each output, by name. `fed` are the names of the inputs that get data."""
    reached: dict[fx.Node, Reached] = {}
    for node in program.graph.nodes:
        own = _formats_of(node)
        if node.op == "placeholder":
            is_data = (
                node.name not in program.weights and program.names.get(node.name, node.name) in fed
            )
            reached[node] = Reached(own, is_data)
        elif node.op == "get_attr":
            reached[node] = Reached(own | _formats_inside(attribute_of(program.owner, node)), False)
        elif node.op != "output":
            operands = [] if _is_shape_only(node) else node.all_input_nodes
            sources = [reached[operand] for operand in operands]
            formats = own.union(*(source.formats for source in sources))
            reached[node] = Reached(formats, any(source.reads_data for source in sources))
    return {name: reached[node] for name, node in tensors_of(program)}


def formats_in(graph: fx.Graph, owner: torch.nn.Module) -> frozenset[DType]:
    """The float formats of all values, including those in subgraphs, which `owner` has."""
    own_formats = map(_formats_of, graph.nodes)
    subgraphs = [attribute_of(owner, node) for node in graph.find_nodes(op="get_attr")]
    return frozenset().union(*own_formats, *map(_formats_inside, subgraphs))


def _formats_inside(attribute: object) -> frozenset[DType]:
    """The float formats in a subgraph; none in a constant."""
    if not isinstance(attribute, fx.GraphModule):
        return frozenset()
    return formats_in(attribute.graph, attribute)


def _formats_of(node: fx.Node) -> frozenset[DType]:
    """The float formats among a node's results, and INT8 of what is quantized."""
    if node.target in QUANTIZE:
        return frozenset({DType.QUANTIZED8})
    return frozenset(
        TORCH_DTYPES[dtype]
        for dtype in dtypes_of(node.meta.get("val"))
        if dtype is not None and dtype.is_floating_point and dtype in TORCH_DTYPES
    )


def _is_shape_only(node: fx.Node) -> bool:
    name = packet_of(node.target)
    return name in _SHAPE_ONLY or name.startswith("sym_")
