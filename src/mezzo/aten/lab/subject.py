"""Sensitivity of a program's outputs: reachable inputs, and runs with perturbed weights."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy.typing as npt
import torch

from mezzo.aten.lab.arithmetic import Arithmetic
from mezzo.aten.lab.arrays import array_of, tensor_from
from mezzo.aten.lab.inputs import TorchInputs
from mezzo.aten.lab.reach import find_reached
from mezzo.aten.lab.runner import AtenRunner
from mezzo.aten.program import Program
from mezzo.contracts.lab import Reached, Run

_MOVED = frozenset({torch.float32, torch.float64})
Move = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class TorchSubject:
    """A program under evaluation. `guard` wraps its runs to attribute errors to it."""

    def __init__(
        self,
        program: Program,
        arithmetic: Arithmetic,
        guard: Callable[[Run], Run] = lambda run: run,
    ) -> None:
        self._program, self._arithmetic, self._guard = program, arithmetic, guard
        self.inputs = TorchInputs(program)

    def reached(self, fed: Collection[str]) -> Mapping[str, Reached]:
        return find_reached(self._program, fed)

    def moved(self, move: Move, most_bytes: int) -> Run:
        def change(weight: torch.Tensor) -> torch.Tensor:
            if weight.dtype not in _MOVED:
                return weight
            return tensor_from(move(array_of(weight))).to(weight.device, weight.dtype)

        is_small = self._program.weight_bytes <= most_bytes
        return self._guard(
            AtenRunner(self._program, self._arithmetic, change if is_small else None)
        )
