"""Every case by set, and which of them a naive conversion gets wrong."""

import enum
from functools import cache
from pathlib import Path

from spellings import (
    cancellation,
    controls,
    deep,
    epsilons,
    guards,
    heldout,
    heldout2,
    heldout3,
    integers,
    norms,
    spectra,
    state,
    weights,
)
from spellings.cases import Case, cases_of

FORMATS = ("fp16", "bf16")
CLASSES = (state, integers, weights, norms, epsilons, guards, cancellation, spectra)
_FOLDER = Path(__file__).parent


class Kind(enum.Enum):
    """A set of cases."""

    SPELLINGS = "spellings"
    CONTROLS = "controls"
    HELDOUT = "heldout"  # for a last count only
    HELDOUT2 = "heldout2"  # a second one, by other hands
    HELDOUT3 = "heldout3"  # a third one, with harmless look-alikes


def cases(kind: Kind = Kind.SPELLINGS) -> list[Case]:
    """All cases of a set, in a fixed order."""
    match kind:
        case Kind.SPELLINGS:
            return [case for module in CLASSES for case in cases_of(module.IDIOMS)]
        case Kind.CONTROLS:
            return cases_of((*controls.IDIOMS, *deep.IDIOMS))
        case Kind.HELDOUT:
            return cases_of(heldout.IDIOMS)
        case Kind.HELDOUT2:
            return cases_of(heldout2.IDIOMS)
        case Kind.HELDOUT3:
            return cases_of(heldout3.IDIOMS)


@cache
def hurting(kind: Kind = Kind.SPELLINGS) -> frozenset[tuple[str, str]]:
    """(case, format) pairs that go wrong when everything runs low, as measured once and kept beside this file."""
    pairs = []
    path = _record_of(kind)
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, formats = line.rpartition(": ")
        pairs += [(name, to) for to in formats.split()]
    return frozenset(pairs)


def record(kind: Kind, pairs: frozenset[tuple[str, str]], names: list[str]) -> None:
    """Keep what a naive conversion gets wrong of the cases with these names; what is known of others stays."""
    existing = {case.name for case in cases(kind)} - set(names)
    known = {pair for pair in hurting(kind) if pair[0] in existing}
    by_name: dict[str, list[str]] = {}
    for name, to in sorted(known | pairs, reverse=True):
        by_name.setdefault(name, []).append(to)
    lines = [f"{name}: {' '.join(formats)}" for name, formats in sorted(by_name.items())]
    _record_of(kind).write_text("\n".join(lines) + "\n" if lines else "")
    hurting.cache_clear()


def _record_of(kind: Kind) -> Path:
    return _FOLDER / f"hurting_{kind.value}.txt"
