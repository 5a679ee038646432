"""TOML reading for hand-written files: bounded, with typed fields and precise errors."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from mezzo.common.documents import parse_toml
from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.common.safe_paths import read_file

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


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table of a file. `where`: its place, for errors; a field is read by its key.

    Readers return their default for an absent field, and raise InputError for another type.
    """

    where: str
    fields: Mapping[str, object]

    def __contains__(self, key: str) -> bool:
        return key in self.fields

    def inside(self, label: str) -> Self:
        """The same table with a longer name in errors."""
        return replace(self, where=self.where + label)

    def fault(self, problem: str) -> InputError:
        """The error for a problem in this table."""
        return InputError(f"{self.where}: {problem}")

    def check_keys(self, known: Iterable[str]) -> None:
        """Raises InputError: the table has an unknown key."""
        unknown = sorted(self.fields.keys() - set(known))
        if unknown:
            raise self.fault(f"{unknown[0]!r} is unknown; choose of {', '.join(sorted(known))}")

    def require(self, keys: Iterable[str], remedy: str) -> None:
        """Raises InputError: one of the keys is absent."""
        for key in keys:
            if key not in self:
                raise InputError(f"{self.where} lacks {key!r}; {remedy}")

    def tables(self, key: str, label: str = "") -> Iterator["TomlTable"]:
        """The tables under [[key]], or none; in errors each has a label, by default the key, and a
        number.
        """
        tables = self.fields.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.fault(
                f"{key!r} is {type(tables).__name__}; write each {key} under [[{key}]]"
            )
        for number, table in enumerate(tables, 1):
            yield TomlTable(f"{self.where}, {label or key} {number}", table)

    def table(self, key: str) -> "TomlTable":
        """The table under a key, empty if absent."""
        value = self.fields.get(key, {})
        if not isinstance(value, dict):
            raise self.fault(f"{key} is {value!r}; write a table such as {{ operand = 1 }}")
        return TomlTable(self.where, value)

    def text(self, key: str, default: str = "") -> str:
        """A text that is not empty."""
        if key not in self:
            return default
        value = self.fields[key]
        if not isinstance(value, str) or not value:
            raise self.fault(f"{key} is {value!r}; write text")
        return value

    def texts(self, key: str, default: Iterable[str] = ()) -> tuple[str, ...]:
        """One text or a list of texts."""
        if key not in self:
            return tuple(default)
        value = self.fields[key]
        texts = (value,) if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(
            isinstance(text, str) and text for text in texts
        ):
            raise self.fault(f"{key} is {value!r}; write a list of texts")
        return tuple(texts)

    def number(self, key: str) -> int | float:
        """A number."""
        value = self.fields.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.fault(f"{key} is {value!r}; write a number")
        return value

    def whole(self, key: str, least: int | None = None, most: int | None = None) -> int:
        """A whole number, from `least` to `most`."""
        value = self.fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fault(f"{key} is {value!r}; write a whole number")
        if least is not None and most is not None and not least <= value <= most:
            raise self.fault(f"{key} is {value}; write a whole number from {least} to {most}")
        return value

    def truth(self, key: str) -> bool:
        """A boolean, False by default."""
        value = self.fields.get(key, False)
        if not isinstance(value, bool):
            raise self.fault(f"{key} is {value!r}; write true or false")
        return value

    def choice(self, key: str, choices: Iterable[str], default: str = "") -> str:
        """One of the choices."""
        value, names = self.fields.get(key, default), tuple(choices)
        if not isinstance(value, str) or value not in names:
            question = did_you_mean(value, names, 1) if isinstance(value, str) else ""
            raise self.fault(
                f"{key} is {value!r}{aside(question)}; choose one of {', '.join(names)}"
            )
        return value


def parse(where: str, text: str) -> TomlTable:
    """Parse a document. Raises InputError: the text is not TOML."""
    try:
        return TomlTable(where, parse_toml(text))
    except ValueError as error:
        raise InputError(f"{where} is not TOML: {error}; mend that line") from error
