"""Formatting and parsing of sizes in bytes."""

import re

_UNITS = ("B", "KB", "MB", "GB", "TB")
_FACTORS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


def format_size(size_bytes: int) -> str:
    """Format a size with three significant digits: 812 B, 1.52 MB."""
    size, unit = float(size_bytes), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    if unit == 0:
        return f"{size_bytes} B"
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{size:.{digits}f} {_UNITS[unit]}"


def read_size(text: str) -> int | None:
    """Bytes of "6GB", "6 GB", "5.5G", "512MiB" or "6000000000"; None if the text is no size, or
    zero.
    """
    parts = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?I?)B?", text.strip().upper())
    if parts is None or parts[2] not in _FACTORS:
        return None
    return int(float(parts[1]) * _FACTORS[parts[2]]) or None
