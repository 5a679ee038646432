"""A model as it was read: what every part of the front end that looks at its graph is handed."""

from dataclasses import dataclass

from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.onnx import FRONTEND
from mezzo.onnx.read.handles import Handles


@dataclass(slots=True)
class Reading:
    """A graph and its handles, good for one application, as read for the dtype `low`. `version` is the opset of the
    default domain.
    """

    graph: Graph
    handles: Handles
    low: DType
    version: int | None

    @property
    def dialect(self) -> str:
        return FRONTEND.dialect


def own(reading: AnyReading) -> Reading:
    """A reading as this front end made it."""
    assert isinstance(reading, Reading), "a model is handed its own readings"
    return reading
