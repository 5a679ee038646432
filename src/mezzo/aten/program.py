"""`Program`, a functional ATen graph with its weights, constants and names."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mezzo.aten.marks import Mark, mark_of, mark_within
from mezzo.aten.torch_internals import OpOverload, schema_of
from mezzo.formats.dtypes import DType

TORCH_DTYPES: Mapping[torch.dtype, DType] = MappingProxyType(
    {
        torch.float64: DType.FLOAT64,
        torch.float32: DType.FLOAT32,
        torch.float16: DType.FLOAT16,
        torch.bfloat16: DType.BFLOAT16,
        torch.float8_e4m3fn: DType.FLOAT8E4M3FN,
        torch.float8_e5m2: DType.FLOAT8E5M2,
        torch.int64: DType.INT64,
        torch.int32: DType.INT32,
        torch.int16: DType.INT16,
        torch.int8: DType.INT8,
        torch.uint8: DType.UINT8,
        torch.bool: DType.BOOL,
        torch.complex64: DType.COMPLEX64,
        torch.complex128: DType.COMPLEX128,
    }
)
FROM_DTYPE: Mapping[DType, torch.dtype] = MappingProxyType(
    {dtype: kind for kind, dtype in TORCH_DTYPES.items()}
)


@dataclass(frozen=True, slots=True)
class ProgramTensor:
    """A weight or constant: its name, and a function that returns its tensor, if available. With an
    exponent it is that tensor times 2^exponent.
    """

    name: str
    tensor: Callable[[], torch.Tensor] | None
    exponent: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """A functional graph whose nodes have fake tensors in `meta["val"]`.

    It is not modified; edits go to `copied()`. Only a compiler's graph is edited in place.

    `owner` is the module with the graph's constants and subgraphs as attributes. `weights` are the
    placeholders whose tensors do not change between runs, and constants that are computed from
    them, by node name; other placeholders are inputs, and `names` lists those whose name differs
    from the placeholder's. `states` are initial values of inputs where the program has them:
    buffers that it writes. `scaled` are the products of a weight or constant with a power of two,
    by node name: they are read as constants. `outputs` are the output names in order; None numbers
    them. For a subgraph, `path` is the path of names to it, and `around` is its caller's mark. For
    a joint forward and backward graph, `backward` is the set of nodes that run after the output
    gradients arrive.
    """

    graph: fx.Graph
    owner: torch.nn.Module
    weights: Mapping[str, ProgramTensor] = field(default_factory=dict)
    states: Mapping[str, ProgramTensor] = field(default_factory=dict)
    scaled: Mapping[str, ProgramTensor] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    name: str = "the program"
    path: tuple[str, ...] = ()
    around: Mark | None = None
    backward: frozenset[fx.Node] = frozenset()

    @property
    def constants(self) -> Mapping[str, ProgramTensor]:
        """The weights and their products with powers of two, by node name."""
        return {**self.weights, **self.scaled}

    def way_from_weight(self, holder: fx.Node) -> list[fx.Node]:
        """A constant's nodes, from its last product with a power of two back to the weight."""
        path = [holder]
        while path[-1].name in self.scaled:
            path.append(path[-1].all_input_nodes[0])
        return path

    def shares_elements(self, holder: fx.Node) -> bool:
        """Whether another constant has the elements of this one, times a power of two."""
        sources = self.way_from_weight(holder)[1:]
        return any(len(source.users) > 1 for source in sources) or any(
            user.name in self.scaled for user in holder.users
        )

    def copied(self) -> fx.Graph:
        """A copy of the graph whose nodes have the same names, in the same order."""
        graph = copy.deepcopy(self.graph)
        graph.owning_module = None
        for node, copy_node in zip(self.graph.nodes, graph.nodes, strict=True):
            # Deepcopy renames nodes named like a builtin: "input", "max".
            copy_node.name = node.name
        return graph

    def mark_of(self, node: fx.Node) -> Mark | None:
        """The mark of a node of this graph."""
        return (
            mark_within(node.meta, self.around, len(self.path)) if self.path else mark_of(node.meta)
        )

    @property
    def returned(self) -> tuple[tuple[str, fx.Node | None], ...]:
        """The graph's outputs with their names, in order; None for an output that is not a node."""
        returned = self.graph.output_node().args[0]
        outputs = returned if isinstance(returned, tuple | list) else (returned,)
        names = self.outputs or tuple(map(str, range(len(outputs))))
        return tuple(
            (name, output if isinstance(output, fx.Node) else None)
            for name, output in zip(names, outputs, strict=True)
        )

    @property
    def weight_bytes(self) -> int:
        """The size of the weights in bytes, in their dtypes in the graph."""
        tensors = [tensor_of(node) for node in self.graph.nodes if node.name in self.weights]
        return sum(
            tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None
        )


def float_type(low: DType) -> torch.dtype:
    """The low float of a conversion; BF16 where there are integers alone."""
    return FROM_DTYPE.get(low, torch.bfloat16)


def packet_of(target: object) -> str:
    """An operator's name without namespace and overload; "" for other targets."""
    return _packet_of(target) if isinstance(target, OpOverload) else ""


@cache
def _packet_of(target: OpOverload) -> str:
    return schema_of(target).name.partition("::")[2]


def attribute_of(owner: torch.nn.Module, node: fx.Node) -> Any:
    """The constant or subgraph that a get_attr node refers to."""
    attribute: Any = owner
    for part in str(node.target).split("."):
        attribute = getattr(attribute, part)
    return attribute


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """The fake tensor that a node produces; None if it produces none or several."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) else None


def torch_dtype_of(node: fx.Node) -> torch.dtype | None:
    """The dtype of a node's tensor; None if it does not produce a single tensor."""
    tensor = tensor_of(node)
    return None if tensor is None else tensor.dtype


def is_float(node: fx.Node) -> bool:
    """Whether a node produces a single tensor of floats."""
    dtype = torch_dtype_of(node)
    return dtype is not None and dtype.is_floating_point


def dtype_of(node: fx.Node) -> DType | None:
    """The same as one of mezzo's formats."""
    dtype = torch_dtype_of(node)
    return None if dtype is None else TORCH_DTYPES.get(dtype)
