"""Results of timing language models side by side, in tokens."""

from dataclasses import dataclass

from mezzo.common.machine import Machine
from mezzo.numerics.measures import Interval, Load
from mezzo.numerics.statistics.speeds import Difference, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """The times of one folder in ns per token: of the prompt (prefill), and of each token that is
    written after it (decode). `runtime`: with its version. `fault`: why it does not run; then there
    are none.

    `prefill_ns`, `decode_ns`: by round. `speed`: the speedup of decoding over the reference, and
    `difference` its verdict; None for the reference, and if that fails.
    """

    name: str
    runtime: str
    size_bytes: int
    is_reference: bool
    fault: str | None
    prefill_ns: tuple[float, ...] = ()
    decode_ns: tuple[float, ...] = ()
    prefill: Spread | None = None
    decode: Spread | None = None
    speed: Interval | None = None
    difference: Difference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimings:
    """Folders timed side by side, the reference first. Each turn reads a prompt of `prompt_tokens`
    and writes `new_tokens` after it. `cores`, `threads`, `load`: as of `Timings`.
    """

    runtime: str
    machine: Machine
    cores: int
    threads: int | None
    prompt_tokens: int
    new_tokens: int
    load: Load | None
    folders: tuple[TokenTimes, ...]

    @property
    def has_faults(self) -> bool:
        """Whether some folder fails to run."""
        return any(folder.fault is not None for folder in self.folders)
