"""Valid values of options, from the tables: for completion, help and errors."""

from collections.abc import Callable, Iterable

from mezzo.common.name_matching import settle
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import FORMAT_WORDS, WEIGHT_FLOATS

RUNS = ("emulated", "native")


def list_plug_ins(kind: str) -> list[str]:
    """The names of plug-ins of a kind: "policy", "strategy", "target"."""
    from mezzo.plugins.discovery import names

    return list(names(kind))


def completing(words: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion function for these words."""
    candidates = tuple(words)

    def complete(incomplete: str) -> list[str]:
        return _complete(candidates, incomplete)

    return complete


def completing_plug_ins(kind: str) -> Callable[[str], list[str]]:
    """A completion function for plug-ins of a kind, which are listed on each call."""

    def complete(incomplete: str) -> list[str]:
        return _complete(list_plug_ins(kind), incomplete)

    return complete


def complete_formats(incomplete: str) -> list[str]:
    """Complete a format, or after a comma its partner: a float with a quantized format."""
    *before, last = incomplete.split(",")
    words: Iterable[str] = FORMAT_WORDS
    if before:
        is_float = before[0] in LOW_DTYPES
        is_known = len(before) == 1 and before[0] in FORMAT_WORDS
        is_known &= before[0] not in WEIGHT_FLOATS
        partners = [word for word in FORMAT_WORDS if word not in WEIGHT_FLOATS]
        words = [word for word in partners if is_known and (word in LOW_DTYPES) is not is_float]
    return _complete([",".join((*before, word)) for word in words], ",".join((*before, last)))


complete_dtype = completing(LOW_DTYPES)
complete_target = completing_plug_ins("target")
complete_run = completing(RUNS)


def settle_plug_in(kind: str, word: str, option: str) -> str:
    """The plug-in that a word names. Raises InputError: none, or several."""
    from mezzo.plugins.discovery import settle_name

    return settle_name(kind, word, option)


def settle_target(word: str) -> str:
    """The target that a word names, or its file. Raises InputError: none, or several."""
    return word if word.endswith(".toml") else settle_plug_in("target", word, "--target")


def settle_choice(option: str, word: str, choices: Iterable[str]) -> str:
    """The choice that a word names. Raises InputError: none."""
    return settle(option, word, dict.fromkeys(choices, ()))


def _complete(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
