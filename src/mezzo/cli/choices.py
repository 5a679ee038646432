"""The values an option may have, read from the tables: for completion, for help and for errors."""

from collections.abc import Iterable

from mezzo.dtypes import LOW_DTYPES
from mezzo.errors import InputError

OUT_OF_RANGE = ("protect", "clamp", "error")
OPSETS = ("auto", "keep")
IO_WORDS = ("keep", "low", "follow")
RUNS = ("emulated", "native")


def list_policies() -> list[str]:
    from mezzo.plugins.discovery import names

    return list(names("policy"))


def list_strategies() -> list[str]:
    from mezzo.plugins.discovery import names

    return list(names("strategy"))


def list_targets() -> list[str]:
    from mezzo.plugins.discovery import names

    return list(names("target"))


def complete_policy(incomplete: str) -> list[str]:
    return _complete(list_policies(), incomplete)


def complete_strategy(incomplete: str) -> list[str]:
    return _complete(list_strategies(), incomplete)


def complete_target(incomplete: str) -> list[str]:
    return _complete(list_targets(), incomplete)


def complete_dtype(incomplete: str) -> list[str]:
    return _complete(LOW_DTYPES, incomplete)


def complete_out_of_range(incomplete: str) -> list[str]:
    return _complete(OUT_OF_RANGE, incomplete)


def complete_opset(incomplete: str) -> list[str]:
    return _complete(OPSETS, incomplete)


def complete_run(incomplete: str) -> list[str]:
    return _complete(RUNS, incomplete)


def check_choice(option: str, value: str, choices: Iterable[str]) -> str:
    """Return the value if it is one of the choices. Raises InputError: it is not."""
    valid = tuple(choices)
    if value not in valid:
        raise InputError(f"{option} {value!r} is unknown; choose one of {', '.join(valid)}")
    return value


def _complete(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
