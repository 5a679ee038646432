"""What timing a model takes and gives, on whatever runs it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to measure: `runs` timed calls per model, in rounds of `calls` with a pause before each round.

    `threads`: what the runtime may use; None leaves it to the runtime, as most users do. `limit_s`: for everything,
    loading included; a measurement that is not done by then ends with fewer runs, and a child that hangs is ended.
    """

    runs: int = 40
    calls: int = 4
    pause_s: float = 0.02
    threads: int | None = None
    limit_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTime:
    """A conversion that nobody has a label for. `source`: label of the node that makes what it reads, at `position`, or
    the name of a graph input. `time_ns` per run of the model; 0 where the runtime does it inside another kernel.
    `is_quantizing`: a Quantize, or the Dequantize of what one has made; else a Cast.
    """

    source: str
    position: int
    time_ns: float
    spread_ns: float
    is_quantizing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """Times of one run of a model, warm. `total_ns` is the whole run, profiled; `by_node` and `spread_ns` by label.

    `mapped_share`: how much of the kernels' time could be given to the nodes it belongs to; the rest was spread over
    all by weight. `kernels_ns` is that time, `kernel_runs` how many kernels ran, `between_ns` what the run took beside.
    """

    total_ns: float
    by_node: Mapping[str, float]
    spread_ns: Mapping[str, float]
    casts: tuple[CastTime, ...]
    mapped_share: float
    kernels_ns: float
    kernel_runs: float
    between_ns: float

    @property
    def run_ns(self) -> float:
        """A run that nothing disturbs: kernels, and what lies between them."""
        return self.kernels_ns + self.between_ns


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Medians of models run in turns, in ns, and each one's time over the first one's: the median of the ratios within
    rounds, with the range that holds their middle half.
    """

    median_ns: tuple[float, ...]
    ratios: tuple[float, ...]
    ratio_ranges: tuple[tuple[float, float], ...]
