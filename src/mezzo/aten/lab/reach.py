"""What reaches each output of a program: the float formats on its way, and whether any number of the data does."""

from collections.abc import Collection

from torch import fx

from mezzo.aten.lab.arithmetic import formats_of
from mezzo.aten.lab.runner import tensors_of
from mezzo.aten.program import Program, attribute_of, packet_of
from mezzo.contracts.lab import Reached
from mezzo.formats.dtypes import DType

# Operators that ask a tensor for its shape and type, and read none of its numbers.
_SHAPE_ONLY = frozenset(
    {
        "empty_like", "full_like", "new_empty", "new_full", "new_ones", "new_zeros", "ones_like", "rand_like",
        "randint_like", "randn_like", "zeros_like",
    }
)  # fmt: skip


def find_reached(program: Program, fed: Collection[str]) -> dict[str, Reached]:
    """What reaches each output, by name. `fed` are the inputs that the data feeds."""
    known: dict[fx.Node, Reached] = {}
    for node in program.graph.nodes:
        own = formats_of(node.meta.get("val"))
        if node.op == "placeholder":
            is_data = node.name not in program.weights and program.names.get(node.name, node.name) in fed
            known[node] = Reached(own, is_data)
        elif node.op == "get_attr":
            known[node] = Reached(own | _formats_inside(attribute_of(program.owner, node)), False)
        elif node.op != "output":
            read = [] if _is_shape_only(node) else [known[one] for one in node.all_input_nodes]
            formats = own.union(*(one.formats for one in read))
            known[node] = Reached(formats, any(one.reads_data for one in read))
    return {name: known[node] for name, node in tensors_of(program)}


def formats_in(program: Program) -> frozenset[DType]:
    """The float formats of all values, those of bodies included."""
    found = frozenset().union(*(formats_of(node.meta.get("val")) for node in program.graph.nodes))
    bodies = [attribute_of(program.owner, node) for node in program.graph.nodes if node.op == "get_attr"]
    return found.union(*map(_formats_inside, bodies))


def _formats_inside(held: object) -> frozenset[DType]:
    """The formats of a body, and of bodies in it."""
    if not isinstance(held, fx.GraphModule):
        return frozenset()
    own = [formats_of(node.meta.get("val")) for node in held.graph.nodes]
    inner = [_formats_inside(attribute_of(held, node)) for node in held.graph.nodes if node.op == "get_attr"]
    return frozenset().union(*own, *inner)


def _is_shape_only(node: fx.Node) -> bool:
    name = packet_of(node.target)
    return name in _SHAPE_ONLY or name.startswith("sym_")
