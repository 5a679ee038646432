"""Every case by set, and which of them a naive conversion gets wrong."""

import enum
from functools import cache
from pathlib import Path

from spellings import cancellation, controls, epsilons, integers, norms, state, weights
from spellings.cases import Case, cases_of

FORMATS = ("fp16", "bf16")
CLASSES = (state, integers, weights, norms, epsilons, cancellation)
_RECORD = Path(__file__).parent / "hurting.txt"


class Kind(enum.Enum):
    """A set of cases."""

    SPELLINGS = "spellings"
    CONTROLS = "controls"


def cases(kind: Kind = Kind.SPELLINGS) -> list[Case]:
    """All cases of a set, in a fixed order."""
    match kind:
        case Kind.SPELLINGS:
            return [case for module in CLASSES for case in cases_of(module.IDIOMS)]
        case Kind.CONTROLS:
            return cases_of(controls.IDIOMS)


@cache
def hurting() -> frozenset[tuple[str, str]]:
    """(case, format) pairs that go wrong when everything runs low, as measured once and kept beside this file."""
    pairs = []
    for line in _RECORD.read_text().splitlines():
        name, _, formats = line.rpartition(": ")
        pairs += [(name, to) for to in formats.split()]
    return frozenset(pairs)


def record(pairs: frozenset[tuple[str, str]], names: list[str]) -> None:
    """Keep what a naive conversion gets wrong of the cases with these names; what is known of others stays."""
    known = {pair for pair in hurting() if pair[0] not in names} if _RECORD.exists() else set()
    by_name: dict[str, list[str]] = {}
    for name, to in sorted(known | pairs, reverse=True):
        by_name.setdefault(name, []).append(to)
    lines = [f"{name}: {' '.join(formats)}" for name, formats in sorted(by_name.items())]
    _RECORD.write_text("\n".join(lines) + "\n")
    hurting.cache_clear()
