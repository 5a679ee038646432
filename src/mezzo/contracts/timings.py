"""What running whole models side by side on a target takes and gives: times, answers, kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a model is loaded to be timed. `threads`: what the runtime may use; None leaves it to the runtime.

    `keeps_types`: where a runtime would choose types by itself, it runs in those that the file states. `limit_s`: how
    long loading, or a turn, may take before the model's process is ended. `shows_kernels`: it can be asked for those of
    the runtime's own graph, which takes room on disk for its weights.
    """

    threads: int | None = None
    keeps_types: bool = True
    limit_s: float = 600.0
    shows_kernels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What a runtime ran as one piece. `name` and `op` are the runtime's words.

    `dtype` is what it computes in, None where the runtime does not tell. `is_conversion`: it only changes a type or a
    layout. `time_ns` and `calls` are per run of the model.
    """

    name: str
    op: str
    dtype: DType | None
    is_conversion: bool
    time_ns: float
    calls: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductKernels:
    """Products of a model that read quantized data, and those of them that the runtime's own graph has in floats, by
    the node's name.
    """

    planned: tuple[str, ...]
    in_floats: tuple[str, ...]


class Runner(Protocol):
    """A model loaded on a target, in a process of its own that sleeps between its turns."""

    def turn(self, pause_s: float, calls: int) -> float:
        """Rest, run once untimed, then so many times: the mean of those in ns. Raises ContractError: it failed."""

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's outputs for feeds, by name. Raises ContractError: it failed."""

    def kernels(self) -> ProductKernels | None:
        """The products of the runtime's own graph, of a model that was loaded to show them. Errors are the same."""

    def close(self) -> None:
        """End the process."""


class Stopwatch(Protocol):
    """Loads one model on one target, as often as it is asked."""

    def start(self) -> Runner:
        """Load the model in a process of its own. Raises ContractError: the target does not load or run it."""

    def layers(self, runs: int) -> Sequence[Layer]:
        """Run the model under the runtime's own profiler, which slows it. Errors are those of `start`."""

    def close(self) -> None:
        """Remove what it has put on disk."""
