"""A model under evaluation: dependencies of its outputs, and runs with perturbed weights."""

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any

import numpy.typing as npt

from mezzo.contracts.lab import Reached, Run
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.measure.inputs import OnnxInputs
from mezzo.onnx.measure.reach import find_reached


class OnnxSubject:
    """A model without functions. `load` prepares a form of it to run."""

    def __init__(self, whole: RunnableModel, load: Callable[[RunnableModel], Run]) -> None:
        self._whole, self._load = whole, load

    @cached_property
    def inputs(self) -> OnnxInputs:
        return OnnxInputs(self._whole.model)

    def reached(self, fed: Collection[str]) -> Mapping[str, Reached]:
        return find_reached(self._whole.model, fed)

    def moved(self, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], most_bytes: int) -> Run:
        is_small = self._whole.size_bytes() <= most_bytes
        return self._load(self._whole.with_moved(move) if is_small else self._whole)
