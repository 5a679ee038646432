"""Durations as users type them."""

import re

from mezzo.common.errors import InputError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_duration(text: str | None) -> float | None:
    """Seconds of "90s", "10m" or "2h", or None. Raises InputError: it is none of these."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError(f"--time-limit {text!r} is no duration; give one such as 90s, 10m or 2h")
    return float(match[1]) * _UNITS_S[match[2]]
