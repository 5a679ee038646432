"""Conversion of options between command-line words and library values."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from typing import Any, assert_never

from mezzo.cli.options import choices
from mezzo.common.errors import InputError
from mezzo.common.name_matching import matching_names
from mezzo.contracts.options.option import Form, OptionInfo, about, spell_option
from mezzo.formats.dtypes import FORMATS, HIGH, LEVEL_DTYPES, LOW_DTYPES, DType
from mezzo.formats.format_words import AUTO, FP32, plain_word, read_format, spell_formats

# An option as written: a word, several words, or a flag; None if it is absent.
Written = str | tuple[str, ...] | bool | None


def read(option: Field[Any], written: Written) -> object:
    """The library's value of an option. Raises InputError: there is no such value."""
    match written:
        case bool() | None | str():
            return written
        case _:
            return _read_parts(spelled(option), about(option), written)


def settle(option: Field[Any], written: Written) -> Written:
    """The canonical form of an option's single word. Raises InputError: there is no such value."""
    info, word = about(option), spelled(option)
    if not isinstance(written, str):
        return written
    match info.form:
        case Form.FORMATS:
            if written.lower() == AUTO:
                return AUTO
            return FP32 if plain_word(written) == FP32 else spell_formats(written)
        case Form.CHOICE:
            return choices.settle_choice(word, written, info.choices)
        case Form.WORDS:
            return ",".join(
                choices.settle_choice(word, part, info.choices) for part in written.split(",")
            )
        case Form.NAME if info.plug_in == "calibrator" and {*written} & {":", "="}:
            return written  # a function or a name with a parameter, resolved with the data
        case Form.NAME if not (info.is_file and written.endswith(".toml")):
            assert info.plug_in is not None, f"{option.name} says which plug-ins it names"
            return choices.settle_plug_in(info.plug_in, written, word)
    return written


def spelled(option: Field[Any]) -> str:
    """An option's name on the command line."""
    return spell_option(option.name, about(option).form, option.default)


def _read_parts(option: str, info: OptionInfo, parts: tuple[str, ...]) -> object:
    match info.form:
        case Form.PATTERNS | Form.PATHS | Form.PORT_PAIRS:
            return parts
        case Form.PATH_DTYPES:
            return _read_dtypes(option, parts, LEVEL_DTYPES)
        case Form.PORT_DTYPES:
            return _read_ports(option, parts, info.choices)
        case Form.PORT_ENDS:
            return _read_ends(option, parts)
        case Form.FORMATS | Form.CHOICE | Form.WORDS | Form.NAME | Form.SHARE | Form.FLAG:
            raise AssertionError(f"{option} is written once")
        case _:
            assert_never(info.form)


def _read_ports(
    option: str, words: tuple[str, ...], for_all: tuple[str, ...]
) -> str | dict[str, str]:
    """One word for all ports, or names with a dtype each."""
    plain = [
        matches[0]
        for word in words
        if (matches := matching_names(word, dict.fromkeys(for_all, ())))
    ]
    if plain and len(words) > 1:
        raise InputError(
            f"{option} {plain[0]!r} cannot be combined with another {option}; give names with a"
            " dtype each, or one word"
        )
    return plain[0] if plain else _read_dtypes(option, words, LOW_DTYPES, for_all)


def _read_dtypes(
    option: str,
    words: tuple[str, ...],
    formats: Mapping[str, DType],
    extra_choices: tuple[str, ...] = (),
) -> dict[str, str]:
    """NAME=DTYPE words as a mapping: FP32 or one of the formats."""
    high = FORMATS[HIGH].words[0]
    valid = " or ".join((*extra_choices, *(f"NAME={choice}" for choice in (high, *formats))))
    return _read_named(
        option,
        words,
        "dtypes",
        valid,
        lambda name, text: read_format(text, f"{option} {name!r}", (high,), formats),
    )


def _read_ends(option: str, words: tuple[str, ...]) -> dict[str, str]:
    """NAME=LO..HI words as a mapping; the ranges are parsed with the other options."""
    return _read_named(
        option, words, "ranges", "NAME=LO..HI, such as image=0..255", lambda name, ends: ends
    )


def _read_named(
    option: str,
    words: tuple[str, ...],
    plural: str,
    valid: str,
    read_value: Callable[[str, str], str],
) -> dict[str, str]:
    """NAME=VALUE words as a mapping. Raises InputError: a word has no value, or a name has two."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, text = word.rpartition("=")
        if not sign or not name:
            raise InputError(f"{option} {word!r} is not understood; give {valid}")
        value = read_value(name, text)
        if values.setdefault(name, value) != value:
            raise InputError(
                f"{option} gives {name!r} two {plural}, {values[name]} and {value}; keep one"
            )
    return values


def spell(options: Mapping[str, Field[Any]], written: Mapping[str, Written]) -> Iterator[str]:
    """The command-line words of options: single values, then repeated ones, then flags."""
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
