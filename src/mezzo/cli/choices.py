"""The values an option may have, read from the tables: for completion, for help and for errors."""

from collections.abc import Callable, Iterable

from mezzo.dtypes import LOW_DTYPES
from mezzo.errors import InputError

RUNS = ("emulated", "native")


def list_plug_ins(kind: str) -> list[str]:
    """The names of what is found of a kind: "policy", "strategy", "target"."""
    from mezzo.plugins.discovery import names

    return list(names(kind))


def completing(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What completes one of the words."""
    offered = tuple(words)

    def complete(incomplete: str) -> list[str]:
        return _complete(offered, incomplete)

    return complete


def completing_plug_ins(kind: str) -> Callable[[str], list[str]]:
    """What completes the name of a plug-in of a kind, listed when it is asked for."""

    def complete(incomplete: str) -> list[str]:
        return _complete(list_plug_ins(kind), incomplete)

    return complete


complete_dtype = completing(LOW_DTYPES)
complete_target = completing_plug_ins("target")
complete_run = completing(RUNS)


def check_choice(option: str, value: str, choices: Iterable[str]) -> str:
    """Return the value if it is one of the choices. Raises InputError: it is not."""
    valid = tuple(choices)
    if value not in valid:
        raise InputError(f"{option} {value!r} is unknown; choose one of {', '.join(valid)}")
    return value


def _complete(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
