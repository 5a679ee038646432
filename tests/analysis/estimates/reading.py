"""Reads a graph from a line of ONNX text, and what is estimated of it."""

from dataclasses import dataclass

import onnx
import onnx.numpy_helper
import onnx.parser

from mezzo.analysis.estimates import Estimates, estimate
from mezzo.analysis.estimates.backward import Coarse
from mezzo.analysis.estimates.moments import Moments
from mezzo.formats.dtypes import FORMATS, DType, Format
from mezzo.ir.graph import Graph
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_CONSTANTS = (
    "int64[1] last = {-1}, int64 axis = {1}, float one = {1}, float two = {2}, float half = {0.5}, float zero = {0}, "
    "float minus = {-1}, float lots = {-10000}, float eps = {1e-6}, float hundred = {100}, int64 ten = {10}, "
    "float[2] mixed = {-1, 3}, float[2] small = {0, 1}, float[2] masks = {-10000, 0}, int64[3] whole = {1, 2, 3}, "
    "float[2] fractions = {0.5, 1.5}, float[4,4] w = {1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}, int64 start = {0}"
)


@dataclass(frozen=True)
class Reading:
    """A graph and what is estimated of it."""

    graph: Graph
    found: Estimates

    def value(self, name: str) -> int:
        return next(number for number, value in enumerate(self.graph.values) if value.name == name)

    def held(self, name: str = "y") -> Moments:
        return self.found.moments[self.value(name)]

    def coarse(self, name: str) -> list[Coarse]:
        return [entry for entry in self.found.coarse if entry.value == self.value(name)]

    def tolerated(self, name: str) -> float:
        """The error that the strictest reader that found a value too coarse tolerates."""
        return min(entry.tolerated for entry in self.coarse(name))


def read(
    body: str,
    inputs: str = "float[4,4] x",
    low: Format = FORMATS[DType.FLOAT16],
    opset: int = 21,
    output: str = "float y",
    **given: tuple[float, float],
) -> Reading:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}) => ({output}) <{_CONSTANTS}> {{ {body} }}'
    )
    graph = open_model(model).read(DType.FLOAT16).graph
    return Reading(graph, estimate(graph, rows_of(graph), low, given))
