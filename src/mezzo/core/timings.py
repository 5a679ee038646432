"""What timing whole models side by side takes and gives, on whatever runs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mezzo.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a model is loaded to be timed. `threads`: what the runtime may use; None leaves it to the runtime.

    `keeps_types`: where a runtime would choose types by itself, it runs in those that the file states. `limit_s`: how
    long loading, or a turn, may take before the model's process is ended.
    """

    threads: int | None = None
    keeps_types: bool = True
    limit_s: float = 600.0


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


class Runner(Protocol):
    """A model loaded on a target, in a process of its own that sleeps between its turns."""

    def turn(self, pause_s: float, calls: int) -> float:
        """Rest, run once untimed, then so many times: the mean of those in ns. Raises ContractError: it failed."""

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
