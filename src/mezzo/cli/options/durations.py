"""Durations as people type them."""

import re

from mezzo.common.errors import InputError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def read_duration(text: str) -> float:
    """Seconds of "90s", "10m" or "2h". Raises InputError: it is none of these."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None or float(found[1]) == 0:
        raise InputError(f"--time-limit {text!r} is no duration; give one such as 90s, 10m or 2h")
    return float(found[1]) * _UNITS_S[found[2]]
