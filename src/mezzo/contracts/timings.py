"""Side-by-side timing of whole models on a target: loading options, times, outputs and kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a model is loaded for timing. `threads`: of the runtime; None leaves its default.

    `keeps_types`: the runtime uses the file's types where it would choose its own. `limit_s`: time
    limit for loading and for each turn, after which the process is killed. `shows_kernels`: the
    runtime's optimized graph can be queried, which needs disk space for its weights.
    """

    threads: int | None = None
    keeps_types: bool = True
    limit_s: float = 600.0
    shows_kernels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """One layer of a runtime, executed as one piece. `name` and `op`: the runtime's own terms.

    `dtype`: compute type, None if the runtime does not report it. `is_conversion`: it only changes
    a type or a layout. `time_ns` and `calls` are per run of the model.
    """

    name: str
    op: str
    dtype: DType | None
    is_conversion: bool
    time_ns: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductKernels:
    """Matmuls and convolutions with quantized inputs, and those of them that the runtime's
    optimized graph computes in floats, by node name.
    """

    planned: tuple[str, ...]
    in_floats: tuple[str, ...]


class Runner(Protocol):
    """A model loaded on a target, in its own process, which sleeps between turns."""

    def turn(self, pause_s: float, calls: int) -> float:
        """Pause, run once untimed, then `calls` times: mean time in ns. Raises ContractError."""

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's outputs for feeds, by name. Raises ContractError: it failed."""

    def kernels(self) -> ProductKernels | None:
        """Kernels of a model loaded with `shows_kernels`; None if the runtime shows none. Raises
        ContractError: it failed.
        """

    def close(self) -> None:
        """End the process."""


class Stopwatch(Protocol):
    """Loads one model on one target, any number of times."""

    def start(self) -> Runner:
        """Load the model in its own process. Raises ContractError: loading or running fails."""

    def layers(self, runs: int) -> Sequence[LayerTime]:
        """Run under the runtime's profiler, which slows it. Errors are those of `start`."""

    def close(self) -> None:
        """Remove its temporary files."""
