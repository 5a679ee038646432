"""Default formats and faster targets, from the targets' performance rows."""

from collections.abc import Iterator

from mezzo.common.errors import InputError
from mezzo.common.machine import Machine
from mezzo.common.packages import find_version
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.plugins.discovery import runnable_targets
from mezzo.plugins.discovery import target as find_target
from mezzo.tables.target import Gain, Target

_OTHERWISE = "--to says otherwise"


def choose_format(target: Target, machine: Machine) -> tuple[str, str]:
    """The default format of a target, with the reason: the first that is or may be faster on this
    machine; else the first it runs, for its size.
    """
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    for gain in target.gains:
        # Without CPU features, only unconditional gains count.
        is_known = machine.features is not None or not gain.needs
        if gain.dtype in words and is_known and gain.is_faster_on(machine) is not False:
            word = words[gain.dtype]
            where = " on this machine" if gain.needs and gain.is_faster_on(machine) else ""
            return word, f"to {word}: what gains on {target.name}{where}; {_OTHERWISE}"
    word = next(
        (word for word, dtype in LOW_DTYPES.items() if target.covers(dtype)),
        next(iter(LOW_DTYPES)),
    )
    return word, f"to {word}, for the size alone; {_OTHERWISE}"


def find_gaining(machine: Machine) -> tuple[str, str] | None:
    """An installed target that is faster on this machine, and its format; None if none."""
    words = {dtype: word for word, dtype in LOW_DTYPES.items()}
    for target in _installed():
        gain = next((gain for gain in target.gains if gain.is_faster_on(machine)), None)
        if gain is not None and gain.dtype in words:
            return target.name, words[gain.dtype]
    return None


def find_better(gain: Gain | None, machine: Machine) -> tuple[str, str] | None:
    """A faster target and format, if the chosen ones are known not to be; else None."""
    return (
        find_gaining(machine) if gain is not None and gain.is_faster_on(machine) is False else None
    )


def recorded_gain(target: str, low: DType) -> Gain | None:
    """Performance row of a format, by the target's name; None if the target is unknown."""
    try:
        return find_target(target).gain(low)
    except InputError:  # a target from a file, or of a package that is not installed
        return None


def _installed() -> Iterator[Target]:
    """mezzo's own targets whose runtime is installed, in the order of the table of packages."""
    for target in runnable_targets().values():
        if target.runtime is not None and find_version(target.runtime.package) is not None:
            yield target
