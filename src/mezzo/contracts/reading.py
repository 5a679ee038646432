"""Opaque model objects of a front end, and the graph read from one."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.ir.graph import Graph

# A front end's model object, such as an onnx.ModelProto, opaque to all other packages.
Artifact = Any


class Extract(NamedTuple):
    """A part of a model as its own model: number of nodes, inputs and outputs."""

    part: Artifact
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Reading(Protocol):
    """A graph read from a model for the dtypes `lows`; usable for one application of edits.

    Names are stable: the same model gives the same names, also at another opset if the node exists
    there. `dialect`: of its operators; `version`: the opset it was read at, None if the model
    states none.
    """

    @property
    def graph(self) -> "Graph": ...
    @property
    def lows(self) -> tuple[DType, ...]: ...
    @property
    def dialect(self) -> str: ...
    @property
    def version(self) -> int | None: ...
