"""TOML reading for hand-written files: bounded, with typed accessors and precise errors."""

import os
from collections.abc import Iterable, Mapping
from typing import cast

from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.common.safe_paths import read_file
from mezzo.io.documents import parse_toml

_MAX_BYTES = 1 << 20


def load_text(kind: str, path: str | os.PathLike[str]) -> str:
    """The text of a file. `kind`: what it should be, for errors.

    Raises InputError: no such file, too large, or not UTF-8.
    """
    try:
        data = read_file(path, _MAX_BYTES)
        if data is None:
            raise InputError(
                f"{kind} {str(path)!r} is larger than {_MAX_BYTES} bytes; no {kind} is"
            )
        return data.decode().replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise InputError(
            f"cannot read {kind} {str(path)!r}: {error.strerror}; give the path of a TOML file"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{kind} {str(path)!r} is not UTF-8 text; write it as TOML") from error


def parse(where: str, text: str) -> Mapping[str, object]:
    """Parse a document. Raises InputError: the text is not TOML."""
    try:
        return parse_toml(text)
    except ValueError as error:
        raise InputError(f"{where} is not TOML: {error}; mend that line") from error


def check_keys(where: str, table: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises InputError: the table has an unknown key."""
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise InputError(
            f"{where}: {unknown[0]!r} is unknown; choose of {', '.join(sorted(known))}"
        )


def read_entries(
    where: str, document: Mapping[str, object], key: str
) -> list[Mapping[str, object]]:
    """The tables under [[key]], or none. Raises InputError: the value is something else."""
    entries = document.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(
            f"{where}: {key!r} is {type(entries).__name__}; write each {key} under [[{key}]]"
        )
    return entries


def read_text(where: str, table: Mapping[str, object], key: str) -> str:
    """A text. Raises InputError: the value is no text, or empty."""
    value = table[key]
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key} is {value!r}; write text")
    return value


def read_texts(where: str, key: str, value: object) -> tuple[str, ...]:
    """One text or a list of texts. Raises InputError: the value is neither."""
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(
        isinstance(text, str) and text for text in texts
    ):
        raise InputError(f"{where}: {key} is {value!r}; write a list of texts")
    return tuple(texts)


def read_table(where: str, entry: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The table under a key, empty if absent. Raises InputError: the value is no table."""
    value = entry.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} is {value!r}; write a table such as {{ operand = 1 }}")
    return cast("Mapping[str, object]", value)  # TOML's keys are text


def read_number(where: str, table: Mapping[str, object], key: str) -> int | float:
    """A number. Raises InputError: the value is none."""
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; write a number")
    return value


def read_whole(where: str, table: Mapping[str, object], key: str) -> int:
    """A whole number. Raises InputError: the value is none."""
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; write a whole number")
    return value


def read_truth(where: str, table: Mapping[str, object], key: str) -> bool:
    """A boolean. Raises InputError: the value is none."""
    value = table[key]
    if not isinstance(value, bool):
        raise InputError(f"{where}: {key} is {value!r}; write true or false")
    return value


def choose(where: str, key: str, value: object, choices: Iterable[str]) -> str:
    """One of the choices. Raises InputError: the value is none of them."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        question = did_you_mean(value, names, 1) if isinstance(value, str) else ""
        raise InputError(
            f"{where}: {key} is {value!r}{aside(question)}; choose one of {', '.join(names)}"
        )
    return value
