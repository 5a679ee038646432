"""The result of reading a model: its graph and the back references to the model."""

from dataclasses import dataclass

from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.onnx import FRONTEND
from mezzo.onnx.read.handles import Handles


@dataclass(slots=True)
class OnnxReading:
    """A graph and its handles for one application of a plan, read for the dtypes `lows`. `version`
    is the opset of the default domain.
    """

    graph: Graph
    handles: Handles
    lows: tuple[DType, ...]
    version: int | None

    @property
    def dialect(self) -> str:
        return FRONTEND.dialect


def own(reading: AnyReading) -> OnnxReading:
    """Narrow a reading to this front end's type."""
    assert isinstance(reading, OnnxReading), "a model is handed its own readings"
    return reading
