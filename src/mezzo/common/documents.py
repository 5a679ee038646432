"""JSON and TOML parsing for hostile input.

Time and memory grow linearly with the text. The result is plain data that every caller can handle:
whole numbers fit an int64, JSON's floats are finite, and nesting does not exhaust the stack.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_DEEPEST = 64
# Commas, colons and brackets; each may create an object of some 60 bytes.
_MOST_PARTS = 8_000_000
_LARGEST_WHOLE = 2**63
_MOST_DIGITS = 20
_TOO_LARGE = "it holds a whole number of more than 64 bits"
# tomllib takes quadratic time in the parts of a dotted key.
_KEY_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART}){{{_DEEPEST}}}")
_PLAIN = frozenset({str, bool, type(None)})


def parse_json(
    text: str | bytes, *, pairs: Callable[[Sequence[tuple[str, Any]]], dict[str, Any]] | None = None
) -> Any:
    """Parse JSON. `pairs` creates an object from its fields. Raises ValueError with a readable
    cause.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8 (byte {error.start})") from error
    if sum(map(text.count, ",:[{")) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS} parts")
    decoder = json.JSONDecoder(
        object_pairs_hook=pairs,
        parse_constant=_refuse_constant,
        parse_float=_read_float,
        parse_int=_read_whole,
    )
    return _parse(lambda: decoder.decode(text))


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises ValueError with a readable cause."""
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {_DEEPEST} parts")
    document: dict[str, Any] = _parse(lambda: _load_toml(text))
    return document


def _refuse_constant(word: str) -> float:
    raise ValueError(f"it holds a number that is {word}")


def _read_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant("too large")


def _read_whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(_TOO_LARGE)
    return int(text)


def _load_toml(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # Python limits the digits of an int
        raise ValueError(_TOO_LARGE) from error


def _parse(parse: Callable[[], Any]) -> Any:
    try:
        document = parse()
    except RecursionError as error:
        raise ValueError(f"it is nested more than {_DEEPEST} levels deep") from error
    _check(document)
    return document


def _check(document: Any) -> None:
    """Raises ValueError: a whole number exceeds 64 bits, or nesting is too deep."""
    level: list[Sequence[Any]] = [[document]]
    for _ in range(_DEEPEST + 1):
        deeper: list[Sequence[Any]] = []
        for values in level:
            if not _PLAIN.issuperset(map(type, values)):
                deeper += _each_inside(values)
        if not deeper:
            return
        level = deeper
    raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def _each_inside(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Elements of the lists and objects among some values. Raises ValueError: a whole number
    exceeds 64 bits.
    """
    for value in values:
        if isinstance(value, int) and not -_LARGEST_WHOLE <= value < _LARGEST_WHOLE:
            raise ValueError(_TOO_LARGE)
        if isinstance(value, list):
            yield value
        elif isinstance(value, dict):
            yield tuple(value.values())
