"""What a look at an installation found, as data."""

import enum
from dataclasses import dataclass

from mezzo.common.machine import Machine


class State(enum.Enum):
    """How a package is."""

    WORKS = "works"
    MISSING = "missing"
    BROKEN = "broken"  # it does not import
    UNSUPPORTED = "unsupported"  # a version that mezzo's metadata excludes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPackage:
    """One package. `wanted` is what mezzo's metadata demands, `details` what it finds on this
    machine.

    `reason`: why it does not work. `remedy`: the command to give, or what to mind; None where there
    is nothing to do.
    """

    name: str
    purpose: str
    state: State
    version: str | None
    wanted: str | None
    details: tuple[str, ...]
    reason: str | None
    remedy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Something that can be done here, or not. `reason`: why not; `remedy`: how to come by it."""

    name: str
    can: bool
    purpose: str
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The whole installation. `memory_bytes` are what this process may use in all, and what of it
    is free.
    """

    python: str
    executable: str
    system: str
    machine: Machine
    cores: int
    memory_bytes: tuple[int, int] | None
    gpus: tuple[str, ...]
    base: tuple[FoundPackage, ...]
    optional: tuple[FoundPackage, ...]
    checks: tuple[Check, ...]
    faults: tuple[tuple[str, str], ...]  # what breaks the base install, and what to do

    @property
    def is_sound(self) -> bool:
        """Whether all works that mezzo always needs."""
        return not self.faults
