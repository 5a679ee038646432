"""What timing models side by side has shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.common.machine import Machine
from mezzo.contracts.timings import Layer
from mezzo.ir.display import Shown
from mezzo.numerics.measures import Comparison, DataSource, Interval
from mezzo.numerics.statistics.speeds import Difference, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTimes:
    """One file. `fault` says why the target does not run it; then it has no times.

    `turns_ns` are times per call by start and round, each the mean of `calls`, and `times` what they come to. `speed`
    is how many times as fast as the reference it is, and `difference` what that says; None for the reference, and where
    that does not run. `inputs` spell what it was fed, by name. `layers` are what the runtime ran, if that was asked.
    `answers` stand beside the reference's, each run on this runtime; None where they cannot be compared.
    """

    name: str
    size_bytes: int
    is_reference: bool
    fault: str | None
    turns_ns: tuple[tuple[float, ...], ...]
    calls: int
    times: Spread | None
    speed: Interval | None
    difference: Difference | None
    inputs: Mapping[str, str]
    layers: tuple[Layer, ...] = ()
    answers: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Timings(Shown):
    """Files timed side by side in one run, the reference first.

    `runtime` has its version. `cores` are those that this process may use, `threads` those that the runtime was told
    to, None where it was not. `keeps_types`: the files' types ran where the runtime would choose others. `load` is the
    machine's over the last minute, before and after, None where the system does not tell. `pause_s` and a call that is
    not timed stand before each timed turn. `notes` say what a reader has to know beside.
    """

    target: str
    runtime: str
    machine: Machine
    cores: int
    threads: int | None
    keeps_types: bool
    data: DataSource
    batch: int | None
    pause_s: float
    load: tuple[float, float] | None
    files: tuple[FileTimes, ...]
    notes: tuple[str, ...]

    @property
    def has_faults(self) -> bool:
        """Whether some file does not run."""
        return any(file.fault is not None for file in self.files)
