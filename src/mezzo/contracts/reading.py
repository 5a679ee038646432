"""A model as its front end holds it, and as it was read."""

from typing import TYPE_CHECKING, Any, Protocol

from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.ir.graph import Graph

# A model as its front end holds it, such as an onnx.ModelProto: nobody else looks into it.
Artifact = Any


class Reading(Protocol):
    """A graph that was read of a model, good for one application, as read for the dtype `low`.

    Names in it last: the same model gives the same ones, at another version too where the node is there. `dialect` is
    that of its operators, `version` the one of it that it was read at; None where the model states none.
    """

    @property
    def graph(self) -> "Graph": ...
    @property
    def low(self) -> DType: ...
    @property
    def dialect(self) -> str: ...
    @property
    def version(self) -> int | None: ...
