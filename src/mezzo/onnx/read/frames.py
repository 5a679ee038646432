"""Name environments, and the context for reading one graph, subgraph or function."""

from collections.abc import Mapping
from functools import cache
from typing import Protocol

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Role, Signature
from mezzo.onnx.protos.attributes import Environment
from mezzo.onnx.read.handles import Container

ANY_FLOAT = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})


@cache
def pseudo_signature(
    op: str, inputs: int, outputs: int, dtype: DType | None, legal: frozenset[DType]
) -> Signature:
    """Signature of a node that is no operator: all ports share one dtype group."""
    role = Role.FIXED if dtype is None else Role.GROUP
    return Signature(
        dialect="",
        op=op,
        version=0,
        inputs=(role,) * inputs,
        outputs=(role,) * outputs,
        dtype=dtype,
        legal=legal,
    )


class FactsOf(Protocol):
    """Computes the facts of a floating-point weight."""

    def __call__(self, tensor: onnx.TensorProto, /) -> ConstantFacts: ...


class Env:
    """Names visible in a scope: a value id, or ~id for the value behind a widening Cast."""

    __slots__ = ("names", "parent")

    def __init__(self, parent: "Env | None" = None) -> None:
        self.names: dict[str, int | None] = {}
        self.parent = parent

    def find(self, name: str) -> int | None:
        """Look up a name from the inside out. Raises KeyError if it is unbound."""
        env: Env | None = self
        while env is not None:
            if name in env.names:
                return env.names[name]
            env = env.parent
        raise KeyError(name)


class Frame:
    """Context for reading one graph or function body."""

    __slots__ = ("attributes", "container", "declared", "depth", "env", "opsets", "path", "scope")

    def __init__(
        self, env: Env, scope: int, path: str, opsets: Mapping[str, int], container: Container
    ) -> None:
        self.env = env
        self.scope = scope
        self.path = path
        self.opsets = opsets
        self.container = container
        self.attributes: Environment = {}
        self.declared: dict[str, onnx.ValueInfoProto] = {}
        self.depth = 0
