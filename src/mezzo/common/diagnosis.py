"""Records of an installation's diagnosis."""

import enum
from dataclasses import dataclass

from mezzo.common.machine import Machine


class State(enum.Enum):
    """State of a package."""

    WORKS = "works"
    MISSING = "missing"
    BROKEN = "broken"  # the import fails
    UNSUPPORTED = "unsupported"  # a version that mezzo's metadata excludes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPackage:
    """One package. `wanted`: the version requirement in mezzo's metadata. `details`: execution
    providers or devices that it detects.

    `reason`: why it does not work. `remedy`: a command or advice; None if there is nothing to do.
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
    """Whether an ability is available (`can`). `reason`: why not; `remedy`: how to enable it."""

    name: str
    can: bool
    purpose: str
    reason: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The whole installation. `memory_bytes`: total and available memory, None if unknown."""

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
    faults: tuple[tuple[str, str], ...]  # of the base install: problem and remedy

    @property
    def is_sound(self) -> bool:
        """Whether everything that mezzo requires works."""
        return not self.faults
