"""A functional graph of ATen operators with what stands behind its placeholders: what is read, and what is edited."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from mezzo.aten.marks import Mark, mark_of, mark_within
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
FROM_DTYPE: Mapping[DType, torch.dtype] = MappingProxyType({dtype: kind for kind, dtype in TORCH_DTYPES.items()})


@dataclass(frozen=True, slots=True)
class Held:
    """What stands behind a placeholder or a constant of the graph: a weight's own name, and its numbers, if at hand.

    `tensor` gives them when asked; None where nobody has them.
    """

    name: str
    tensor: Callable[[], torch.Tensor] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """A functional graph whose nodes hold fake tensors in `meta["val"]`. It stays as it is, `copied` is edited; a
    compiler's graph alone is edited where it stands.

    `owner` has the graph's constants and bodies as attributes. `weights` are what never changes while the program runs,
    by the name of the placeholder; other placeholders are inputs, and `names` says what these are called where that is
    not the placeholder's name. `states` are what inputs hold before the first run, where the program knows it: buffers
    that it writes. `outputs` are names of what is returned, in order; None: they are numbered. Of a body that another
    graph calls, `path` are the names that lead to it, and `around` is the mark of its caller. Of a joint graph,
    `backward` are the nodes that run after the gradients of its results have come in.
    """

    graph: fx.Graph
    owner: torch.nn.Module
    weights: Mapping[str, Held] = field(default_factory=dict)
    states: Mapping[str, Held] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] | None = None
    name: str = "the program"
    path: tuple[str, ...] = ()
    around: Mark | None = None
    backward: frozenset[fx.Node] = frozenset()

    def copied(self) -> fx.Graph:
        """A copy of the graph whose nodes have the same names, in the same order."""
        graph = copy.deepcopy(self.graph)
        graph.owning_module = None
        for node, twin in zip(self.graph.nodes, graph.nodes, strict=True):
            twin.name = node.name  # a copy gives another to what is called as a builtin is: "input", "max"
        return graph

    def mark_of(self, node: fx.Node) -> Mark | None:
        """What a region asks of a node of the graph."""
        return mark_within(node.meta, self.around, len(self.path)) if self.path else mark_of(node.meta)

    @property
    def returned(self) -> tuple[tuple[str, fx.Node | None], ...]:
        """What the graph returns, in order, with its names; None of what is no node of it."""
        end = next(node for node in reversed(self.graph.nodes) if node.op == "output")
        given = end.args[0]
        several = given if isinstance(given, tuple | list) else (given,)
        names = self.outputs or tuple(map(str, range(len(several))))
        return tuple(
            (name, one if isinstance(one, fx.Node) else None) for name, one in zip(names, several, strict=True)
        )

    @property
    def weight_bytes(self) -> int:
        """The size of the weights, in the types that the graph has them in."""
        held = [tensor_of(node) for node in self.graph.nodes if node.name in self.weights]
        return sum(one.numel() * one.element_size() for one in held if one is not None)


def packet_of(target: object) -> str:
    """The name of an operator without its library and its overload; "" of what is none."""
    return _packet_of(target) if isinstance(target, torch._ops.OpOverload) else ""


@cache
def _packet_of(target: torch._ops.OpOverload) -> str:
    name: str = target._schema.name
    return name.partition("::")[2]


def attribute_of(owner: torch.nn.Module, node: fx.Node) -> Any:
    """What a get_attr node of a module's graph reads: a constant, or a body."""
    held: Any = owner
    for part in str(node.target).split("."):
        held = getattr(held, part)
    return held


def tensor_of(node: fx.Node) -> torch.Tensor | None:
    """The fake tensor that a node makes; None where it makes none, or several."""
    made = node.meta.get("val")
    return made if isinstance(made, torch.Tensor) else None


def dtype_of(node: fx.Node) -> DType | None:
    """What a node's tensor holds; None where it makes none."""
    made = tensor_of(node)
    return None if made is None else TORCH_DTYPES.get(made.dtype)
