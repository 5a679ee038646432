"""Timing records of a model, for any runtime."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Measurement effort: `runs` timed calls per model, in rounds of `calls` with a pause before
    each round.

    `threads`: of the runtime; None leaves its default. `limit_s`: total time, loading included; a
    measurement that exceeds it ends with fewer runs, and a child process that hangs is killed.
    """

    runs: int = 40
    calls: int = 4
    pause_s: float = 0.02
    threads: int | None = None
    limit_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CastTime:
    """Time of a conversion that has no label of its own. `source`: label of the node that produces
    its operand, at output `position`, or the name of a graph input. `time_ns`: per run; 0 if fused
    into another kernel. `is_quantizing`: a QuantizeLinear or its DequantizeLinear; else a Cast.
    """

    source: str
    position: int
    time_ns: float
    spread_ns: float
    is_quantizing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """Times of one warm run of a model. `total_ns`: the whole run, profiled; `by_node` and
    `spread_ns`: by label.

    `mapped_share`: share of the kernel time attributed to its nodes; the rest was distributed over
    all by weight. `kernels_ns`: that kernel time; `kernel_runs`: number of kernel calls;
    `between_ns`: time of the run outside kernels.
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
        """Time of an unprofiled run: kernels and the time between them."""
        return self.kernels_ns + self.between_ns
