"""Structure-aware mutations of documents: values that readers did not expect, in the places of those that they did."""

import json
import random
from collections.abc import Callable
from typing import Any

# Stands for a number of so many digits that Python refuses to write it.
_DIGITS = "123454321"
_VALUES: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.choice([10**400, -(10**400), 2**63, 2**64, -1, 0, 1, 2**31, 10**18, int(_DIGITS)]),
    lambda rng: rng.choice([float("inf"), float("-inf"), float("nan"), 1e308, -1e-320, 0.5, -0.0]),
    lambda rng: rng.choice(["", "x", "x" * 10_000, "\x1b[2J", "\ud800", "1e999", "f16", "i8", "a.b", "re:(", "\n"]),
    lambda rng: rng.choice([None, True, False]),
    lambda rng: rng.choice([[], {}, [[]], [{}], {"": {}}, [None] * 5, [[1, 2], [3]], list(range(2000))]),
    lambda rng: json.loads("[" * 100 + "1" + "]" * 100),
)


def mutate(document: Any, rng: random.Random) -> Any:
    """The document with one to three places changed: replaced, left out, wrapped, doubled or swapped."""
    for _ in range(rng.randint(1, 3)):
        document = _mutate_once(document, rng)
    return document


def spell_json(document: Any) -> bytes:
    """As JSON, with infinities and numbers of 5,000 digits."""
    return json.dumps(document).replace(_DIGITS, "7" * 5000).encode("utf-8", "surrogatepass")


def mutate_text(text: str, rng: random.Random) -> str:
    """A text with a word or a line changed: of TOML, whose writers are few."""
    lines = text.splitlines()
    row = rng.randrange(len(lines))
    words = ["1" * 5000, "0x" + "f" * 5000, "inf", "nan", "-1", "[]", "{}", '""', "true", "[" * 300, "'x'", "10e999"]
    left = lines[row].partition("=")[0]
    lines[row] = rng.choice(
        [
            f"{left}= {rng.choice(words)}",
            f"{left}= [{rng.choice(words)}, {rng.choice(words)}]",
            f"{left}= {{ a = {rng.choice(words)} }}",
            f"{left.strip()}.{left.strip()} = 1",
            f"[[{left.strip('[] ')}]]",
            f"{lines[row]}\n{lines[row]}",
            "a." * rng.choice([2, 60, 3000]) + "a = 1",
            "",
            lines[row][: len(lines[row]) // 2],
            f"[{'a.' * 40}a]",
        ]
    )
    return "\n".join(lines)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with some replaced, left out or doubled."""
    spoiled = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(spoiled))
        spoiled[place : place + rng.choice([1, 1, 4])] = rng.randbytes(rng.choice([0, 1, 1, 4, 8]))
    return bytes(spoiled)


def _mutate_once(document: Any, rng: random.Random) -> Any:
    if isinstance(document, dict) and document and rng.random() < 0.85:
        key = rng.choice([*document])
        if rng.random() < 0.15:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: _mutate_once(document[key], rng)}
    if isinstance(document, list) and document and rng.random() < 0.85:
        place = rng.randrange(len(document))
        if rng.random() < 0.2:
            return [*document, document[place]] if rng.random() < 0.5 else document[:place]
        return [*document[:place], _mutate_once(document[place], rng), *document[place + 1 :]]
    return [document] if rng.random() < 0.1 else rng.choice(_VALUES)(rng)
