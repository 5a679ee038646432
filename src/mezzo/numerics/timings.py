"""Results of timing several models side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.common.machine import Machine
from mezzo.contracts.timings import LayerTime
from mezzo.ir.display import Displayed
from mezzo.numerics.measures import Comparison, DataSource, Interval, Load
from mezzo.numerics.statistics.speeds import Difference, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTimes:
    """The times of one file. `fault`: why the target cannot run it; then there are none.

    `turns_ns`: ns per call by start and round, each a mean of `calls`; `times` summarizes them.
    `speed`: speedup over the reference, and `difference` its verdict; None for the reference, and
    if that fails. `inputs`: descriptions by name. `layers`: the runtime's profile, if requested.
    `answers`: outputs compared with the reference's, both on this runtime; None if they cannot be
    compared.
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
    layers: tuple[LayerTime, ...] = ()
    answers: Comparison | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Timings(Displayed):
    """Files timed side by side in one run, the reference first.

    `runtime` includes the version. `cores`: those available to this process; `threads`: those the
    runtime was set to, None by default. `keeps_types`: the runtime was made to use the files' own
    types. `load`: None if the system has none. A pause of `pause_s` and a warm-up call precede each
    timed turn. `notes` are for the reader.
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
    load: Load | None
    files: tuple[FileTimes, ...]
    notes: tuple[str, ...]

    @property
    def has_faults(self) -> bool:
        """Whether some file fails to run."""
        return any(file.fault is not None for file in self.files)
