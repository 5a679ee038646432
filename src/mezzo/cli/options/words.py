"""Options as they are written, and what they are to the library: read by form, and spelled again."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from typing import Any, assert_never

from mezzo.cli.options import choices
from mezzo.common.errors import InputError
from mezzo.common.name_matching import names_meant
from mezzo.contracts.options.option import About, Form, about, spell_option
from mezzo.formats.dtypes import FORMATS, HIGH, LEVEL_DTYPES, LOW_DTYPES, DType
from mezzo.formats.format_words import read_format, spell_formats

# What is written of an option: a word, several, or that it is there. None says nothing.
Written = str | tuple[str, ...] | bool | None


def read(option: Field[Any], written: Written) -> object:
    """What is written of an option as the library spells it. Raises InputError: it is no such value."""
    match written:
        case bool() | None | str():
            return written
        case _:
            return _read_parts(spelled(option), about(option), written)


def settle(option: Field[Any], written: Written) -> Written:
    """What is written once of an option as mezzo itself writes it. Raises InputError: it is no such value."""
    said, word = about(option), spelled(option)
    if not isinstance(written, str):
        return written
    match said.form:
        case Form.FORMATS:
            return spell_formats(written)
        case Form.CHOICE:
            return choices.settle_choice(word, written, said.choices)
        case Form.WORDS:
            return ",".join(choices.settle_choice(word, one, said.choices) for one in written.split(","))
        case Form.NAME if said.plug_in == "calibrator" and {*written} & {":", "="}:
            return written  # a function, or a name with its setting, which is read with the data
        case Form.NAME if not (said.is_file and written.endswith(".toml")):
            assert said.plug_in is not None, f"{option.name} says which plug-ins it names"
            return choices.settle_plug_in(said.plug_in, written, word)
    return written


def spelled(option: Field[Any]) -> str:
    """An option as it is written on a command line."""
    return spell_option(option.name, about(option).form, option.default)


def _read_parts(option: str, said: About, parts: tuple[str, ...]) -> object:
    match said.form:
        case Form.PATTERNS | Form.PATHS:
            return parts
        case Form.PATH_DTYPES:
            return _read_dtypes(option, parts, LEVEL_DTYPES)
        case Form.PORT_DTYPES:
            return _read_ports(option, parts, said.choices)
        case Form.PORT_ENDS:
            return _read_ends(option, parts)
        case Form.FORMATS | Form.CHOICE | Form.WORDS | Form.NAME | Form.FLAG:
            raise AssertionError(f"{option} is written once")
        case _:
            assert_never(said.form)


def _read_ports(option: str, words: tuple[str, ...], for_all: tuple[str, ...]) -> str | dict[str, str]:
    """Read one word for all, or names with a dtype each."""
    plain = [meant[0] for word in words if (meant := names_meant(word, dict.fromkeys(for_all, ())))]
    if plain and len(words) > 1:
        raise InputError(
            f"{option} {plain[0]!r} cannot be combined with another {option}; give names with a dtype each, or one word"
        )
    return plain[0] if plain else _read_dtypes(option, words, LOW_DTYPES, for_all)


def _read_dtypes(
    option: str, words: tuple[str, ...], formats: Mapping[str, DType], others: tuple[str, ...] = ()
) -> dict[str, str]:
    """Read NAME=DTYPE words: FP32 or one of the formats."""
    high = FORMATS[HIGH].words[0]
    valid = " or ".join((*others, *(f"NAME={choice}" for choice in (high, *formats))))
    return _read_named(
        option, words, "dtypes", valid, lambda name, text: read_format(text, f"{option} {name!r}", (high,), formats)
    )


def _read_ends(option: str, words: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=LO..HI words; the ends are read with the other options."""
    return _read_named(option, words, "ranges", "NAME=LO..HI, such as image=0..255", lambda name, ends: ends)


def _read_named(
    option: str, words: tuple[str, ...], things: str, valid: str, read_thing: Callable[[str, str], str]
) -> dict[str, str]:
    """Read words that give names something, each name one."""
    named: dict[str, str] = {}
    for word in words:
        name, sign, text = word.rpartition("=")
        if not sign or not name:
            raise InputError(f"{option} {word!r} is not understood; give {valid}")
        thing = read_thing(name, text)
        if named.setdefault(name, thing) != thing:
            raise InputError(f"{option} gives {name!r} two {things}, {named[name]} and {thing}; keep one")
    return named


def spell(options: Mapping[str, Field[Any]], written: Mapping[str, Written]) -> Iterator[str]:
    """The words that say what is written of options: what is said once, then what is repeated, then flags."""
    values = [(spelled(option), written[name]) for name, option in options.items()]
    for word, value in values:
        if isinstance(value, str):
            yield from (word, shlex.quote(value))
    for word, value in values:
        for part in value if isinstance(value, tuple) else ():
            yield from (word, shlex.quote(part))
    for word, value in values:
        if isinstance(value, bool):
            yield word
