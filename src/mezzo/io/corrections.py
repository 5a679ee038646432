"""JSON form of a plan's corrections of constants."""

from collections.abc import Sequence

import numpy as np

from mezzo.contracts.corrections import Correction

_MOST_AXES = 64
_MOST = 1 << 24  # slices of one constant
_KEYS = frozenset({"value", "axis", "factors", "added"})


def spell_corrections(corrections: Sequence[Correction]) -> list[dict[str, object]]:
    """Corrections as JSON data, in the order in which they are applied."""
    return [
        {"value": correction.value, "axis": correction.axis}
        | ({"factors": list(correction.factors)} if correction.factors else {})
        | ({"added": list(correction.added)} if correction.added else {})
        for correction in corrections
    ]


def read_corrections(listed: object) -> tuple[Correction, ...]:
    """Corrections from JSON data. Raises ValueError: malformed."""
    if not isinstance(listed, list):
        raise ValueError(f"corrected is {type(listed).__name__}, wanted a list of corrections")
    return tuple(_read(entry) for entry in listed)


def _read(entry: object) -> Correction:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("value"), str)
        or not entry.keys() <= _KEYS
    ):
        raise ValueError(
            f"corrected holds {str(entry)[:80]!r}, wanted a value, an axis, and factors or added"
        )
    where, axis = f"corrected {entry['value']!r}", entry.get("axis")
    if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < _MOST_AXES:
        raise ValueError(f"{where}: axis is {axis!r}, wanted a number of an axis, counted from 0")
    factors, added = (
        _numbers(f"{where}: {key}", entry.get(key, [])) for key in ("factors", "added")
    )
    if (not factors and not added) or not all(factor > 0.0 for factor in factors):
        raise ValueError(f"{where}: wanted factors above 0, or numbers to add, one for each slice")
    return Correction(value=entry["value"], axis=axis, factors=factors, added=added)


def _numbers(where: str, value: object) -> tuple[float, ...]:
    """A list of finite FP32 numbers. Raises ValueError: anything else."""
    if not isinstance(value, list) or len(value) > _MOST:
        raise ValueError(f"{where} is no list of at most {_MOST} numbers")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in value):
        raise ValueError(f"{where} holds what is no number")
    try:
        with np.errstate(over="ignore"):
            array = np.array([float(number) for number in value], np.float32)
    except OverflowError as error:
        raise ValueError(f"{where} holds what is no finite FP32 number") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{where} holds what is no finite FP32 number")
    return tuple(map(float, array))
