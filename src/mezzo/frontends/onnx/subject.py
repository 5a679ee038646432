"""An ONNX model whose answers are judged: what they hang on, and what it answers when its weights move."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

import numpy.typing as npt
import onnx

from mezzo.core.lab import Reached, Run
from mezzo.frontends.onnx.compared import weight_bytes, with_weights
from mezzo.frontends.onnx.inputs import OnnxInputs
from mezzo.frontends.onnx.reach import find_reached


class OnnxSubject:
    """A model without functions. `load` makes a form of it ready to run."""

    def __init__(self, model: onnx.ModelProto, load: Callable[[onnx.ModelProto], Run]) -> None:
        self._model, self._load = model, load

    @cached_property
    def inputs(self) -> OnnxInputs:
        return OnnxInputs(self._model)

    def reached(self, fed: Collection[str]) -> Mapping[str, Reached]:
        return find_reached(self._model, fed)

    def moved(self, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], most_bytes: int) -> Run:
        is_small = weight_bytes(self._model) <= most_bytes
        return self._load(with_weights(self._model, move) if is_small else self._model)
