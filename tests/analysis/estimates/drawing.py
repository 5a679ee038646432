"""Graphs of one law whose operands are drawn from stated moments, and the same mathematics on that data in FP64.

An operand is `normal` (made by RandomNormal, which states mean and spread) or `uniform` (an input that is assumed to
lie between two ends). A weight `w` is normal, a factor `c` one number.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.parser
from onnx.reference import ReferenceEvaluator

from mezzo.analysis.estimates import Estimates, estimate
from mezzo.analysis.estimates.moments import Moments
from mezzo.formats.dtypes import FORMATS, DType, Format
from mezzo.ir.graph import Graph
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

Array = npt.NDArray[np.float64]
ROWS, COLUMNS = 512, 64
_SHAPE = f"{ROWS},{COLUMNS}"
# With this gap between neighbours nothing is fine enough, so every value says what its readers tolerate.
NEVER_FINE = replace(FORMATS[DType.FLOAT16], eps=64.0)
_DIMS = {
    "w": (COLUMNS, COLUMNS), "g": (COLUMNS,), "h": (COLUMNS,), "c": (), "k": (24, 16, 3, 3), "d": (16, 1, 3, 3),
    "u": (16, 8, 2, 2), "b": (16,),
}  # fmt: skip


# Constants that a graph may name.
_NUMBERS = {
    "last": "int64[1] last = {{-1}}", "axis": "int64 axis = {{1}}", "first": "int64[1] first = {{0}}",
    "image": "int64[4] image = {{32, 16, 8, 8}}", "two_axes": "int64[2] two_axes = {{-1, 2}}",
    "half": "{} half = {{0.5}}", "two": "{} two = {{2}}", "minus": "{} minus = {{-1}}", "tiny": "{} tiny = {{0.01}}",
    "hundred": "{} hundred = {{100}}",
}  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """A graph, its data, and what of the data was stated."""

    text: str
    weights: Mapping[str, npt.NDArray[np.float32]]
    data: Mapping[str, Array]
    made: Mapping[str, str]  # by name: the operator that states the moments of a normal operand
    given: Mapping[str, tuple[float, float]]

    def _model(self, made: Mapping[str, str], dtype: str = "float") -> onnx.ModelProto:
        inputs = ", ".join(f"{dtype}[{_SHAPE}] {name}" for name in self.data if name not in made)
        numbers = {name: number.format(dtype) for name, number in _NUMBERS.items() if _reads(self.text, name)}
        initial = ", ".join(numbers.values())
        body = "".join(made.values()) + self.text
        model = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({dtype} y) <{initial}> {{ {body} }}'
        )
        for name, array in self.weights.items():
            stored = array.astype(np.float64 if dtype == "double" else np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
        return model

    def estimate(self, low: Format = FORMATS[DType.FLOAT16]) -> Estimates:
        return estimate(self.graph, rows_of(self.graph), low, self.given)

    def value(self, name: str) -> int:
        return next(number for number, value in enumerate(self.graph.values) if value.name == name)

    def held(self, name: str) -> Moments:
        return self.estimate().moments[self.value(name)]

    def tolerated(self, name: str, low: Format = NEVER_FINE) -> float:
        """The error that the strictest reader of a value tolerates; infinite where none asks."""
        value = self.value(name)
        return min((entry.tolerated for entry in self.estimate(low).coarse if entry.value == value), default=math.inf)

    def tolerated_share(self, name: str) -> float:
        """The coarsest rounding that a value bears, as a share of each number: the gap at which it is found."""
        value, fine, coarse = self.value(name), 2.0**-8, 64.0
        for _ in range(12):
            eps = math.sqrt(fine * coarse)
            format = replace(NEVER_FINE, eps=eps, smallest_normal=0.0, smallest_subnormal=0.0)
            if any(entry.value == value for entry in self.estimate(format).coarse):
                coarse = eps
            else:
                fine = eps
        return fine / 4  # rounding to nearest errs by a quarter of the gap, root mean square

    def run(self, **changed: Array) -> Array:
        """What the graph makes of the data in FP64."""
        feeds = {name: changed.get(name, data) for name, data in self.data.items()}
        return np.asarray(self._evaluator.run(None, feeds)[0], np.float64)

    @cached_property
    def _evaluator(self) -> ReferenceEvaluator:
        return ReferenceEvaluator(self._model({}, "double"))

    @cached_property
    def graph(self) -> Graph:
        return open_model(self._model(self.made)).read(DType.FLOAT16).graph

    def amplification(self, name: str, seed: int = 0) -> float:
        """By what factor small independent errors of an operand grow on the way to the result, root mean square."""
        noise = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)) * 1e-6 * rms_of(self.data[name])
        return rms_of(self.run(**{name: self.data[name] + noise}) - self.run()) / rms_of(noise)

    def amplification_of_shares(self, name: str, seed: int = 0) -> float:
        """The same of errors that are a share of each number; of the result on the whole, or of each number of it,
        whichever is less.
        """
        share = np.random.default_rng(seed).standard_normal((ROWS, COLUMNS)) * 1e-6
        y = self.run()
        error = self.run(**{name: self.data[name] * (1 + share)}) - y
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(error == 0.0, 0.0, error / y)
        return min(rms_of(error) / rms_of(y), rms_of(each)) / rms_of(share)


def draw(
    text: str, seed: int, x: str = "normal", scale: tuple[float, float] = (0.1, 10.0), offset: float = 2.0
) -> Draw:
    """Draw a graph's operands x and z, `normal`, `uniform` or `positive`. Their spread lies between the ends of
    `scale`, their mean within so many spreads of zero.
    """
    luck = random.Random(f"{seed} {text} {x}")
    numbers = np.random.default_rng(luck.getrandbits(32))
    data, made, given = {}, {}, {}
    for name in [name for name in ("x", "z") if _reads(text, name)]:
        std = math.exp(luck.uniform(*map(math.log, scale)))
        mean = std * luck.uniform(-offset, offset)
        if x == "normal":
            data[name] = mean + std * numbers.standard_normal((ROWS, COLUMNS))
            made[name] = f"{name} = RandomNormal<mean = {mean:.9f}, scale = {std:.9f}, shape = [{_SHAPE}]>() "
        else:
            low = abs(mean) + 0.1 * std if x == "positive" else mean - math.sqrt(3.0) * std
            given[name] = low, low + math.sqrt(12.0) * std
            data[name] = numbers.uniform(*given[name], (ROWS, COLUMNS))
    weights = {}
    for name, dims in _DIMS.items():
        if _reads(text, name):
            size = math.exp(luck.uniform(math.log(0.1), math.log(10.0)))
            weights[name] = np.asarray(size * (luck.choice((0.0, 0.5)) + numbers.standard_normal(dims)), np.float32)
    return Draw(text, weights, data, made, given)


def _reads(text: str, name: str) -> bool:
    return any(f"{before}{name}{after}" in text for before in "( " for after in ",)")


def rms_of(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
