"""`mezzo.toml`: defaults for the options of commands, and options of single models.

The file may come with a repository that no one has read: it names no code to run, no address to
connect to, and no path outside of its folder. What an option may be is listed here, so a new option
is refused until it is known to be safe.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Protocol

from mezzo.cli.options import words
from mezzo.cli.options.options import options_by_name
from mezzo.cli.options.words import Written
from mezzo.common.documents import parse_toml
from mezzo.common.errors import InputError
from mezzo.contracts.options.option import about, spell_option
from mezzo.tables.files.tomlfile import TomlTable, load_text

_KIND = "project file"
# The table whose options hold for every command that has them, and the list of tables for models.
_ALL, _MODEL, _MATCH = "defaults", "model", "match"
# A model's external data may then be anywhere.
_UNSAFE = frozenset({"trust_external_paths"})
# Further options. Missing are those that name a cluster.
_OTHERS = frozenset(
    {
        "accumulate", "baseline", "batch", "data", "held-out", "jobs", "json", "junit", "labels",
        "layers", "layout", "markdown", "max-drop", "max-error", "memory", "metric", "overwrite",
        "preprocess", "quiet", "report", "resume", "run", "runs", "save", "save-plan", "seconds",
        "starts", "threads", "tile", "time-limit", "tokenizer", "top", "verbose",
    }
)  # fmt: skip
# Values of these options that have a colon are functions, "module:function".
_MAY_BE_CODE = frozenset({"metric", "calibrator", "data", "held-out"})
_RANDOM_DATA = re.compile(r"random(:\d+)?")
_PATHS = frozenset({"path", "file", "directory"})  # the parser's names for such types


class _Parameter(Protocol):
    """The fields of a command's option that reading uses."""

    name: str
    opts: Sequence[str]
    param_type_name: str
    multiple: bool
    is_flag: bool
    type: Any


class _Command(Protocol):
    @property
    def params(self) -> Sequence[_Parameter]: ...


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of the models whose paths match a glob."""

    match: str
    written: Mapping[str, Written]


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A file's options of one command, by parameter, and those of models."""

    path: Path
    defaults: Mapping[str, object]
    models: tuple[ModelOptions, ...]

    def of_model(self, model: Path, name: str = "") -> dict[str, Written]:
        """The options of a model: by its path from the file's folder, or by its name in a folder of
        models. Later tables win.
        """
        folder, path = os.path.realpath(self.path.parent), os.path.realpath(model)
        names = {name, PurePath(os.path.relpath(path, folder)).as_posix()} - {""}
        written: dict[str, Written] = {}
        for options in self.models:
            if any(fnmatchcase(each, options.match) for each in names):
                written |= options.written
        return written


def load_config(path: Path, commands: Mapping[str, _Command], command: str) -> ProjectConfig:
    """Read a file. All its keys are checked, and the values for `command` and for models.

    Raises InputError: it cannot be read, has an unknown key, or a value that is not allowed.
    """
    shown = os.path.relpath(path)
    try:
        document = parse_toml(load_text(_KIND, path))
    except ValueError as error:
        raise InputError(f"{_KIND} {shown!r} is not TOML ({error}); mend it") from error
    root = TomlTable(shown, document)
    root.check_keys([_ALL, _MODEL, *commands])
    by_command = {name: _by_flag(each) for name, each in commands.items()}
    every_flag = {flag: o for options in by_command.values() for flag, o in options.items()}
    defaults: dict[str, object] = {}
    for name in (_ALL, *commands):
        table = root.table(name).inside(f": [{name}]")
        _check(table, every_flag if name == _ALL else by_command[name])
        own = by_command[command] if name in (_ALL, command) else {}
        for flag in sorted(table.fields.keys() & own.keys()):
            defaults[own[flag].name] = _read(table, flag, own[flag], path.parent)
    return ProjectConfig(path, defaults, tuple(_models(root, every_flag, path.parent)))


def _by_flag(command: _Command) -> dict[str, _Parameter]:
    """A command's options by their long flags without dashes."""
    return {
        flag.removeprefix("--"): parameter
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("--") and parameter.param_type_name == "option"
    }


def _check(table: TomlTable, known: Mapping[str, _Parameter]) -> None:
    """Raises InputError: a key is no option, or may not be set in a file."""
    safe = _OTHERS | {
        spell_option(o.name, about(o).form, o.default)[2:] for o in options_by_name().values()
    }
    safe -= {name.replace("_", "-") for name in _UNSAFE}
    for key in sorted((table.fields.keys() & known.keys()) - safe):
        raise table.fault(
            f"{key!r} may not be set in a file, which others may have written; give --{key} on the"
            " command line"
        )
    table.check_keys(known.keys() & safe)


def _models(
    root: TomlTable, known: Mapping[str, _Parameter], folder: Path
) -> Iterator[ModelOptions]:
    """The tables of models, which have options of a request alone."""
    options = {flag: each for flag, each in known.items() if each.name in options_by_name()}
    for table in root.tables(_MODEL, f"[[{_MODEL}]]"):
        table.require([_MATCH], "give a glob, such as 'encoder/*.onnx'")
        own = replace(table, fields={k: v for k, v in table.fields.items() if k != _MATCH})
        _check(own, options)
        values = {
            options[key].name: _written(_read(own, key, options[key], folder)) for key in own.fields
        }
        yield ModelOptions(table.text(_MATCH), values)


def _written(value: object) -> Written:
    """A value of an option of a request, as a command line has it."""
    if isinstance(value, list):
        return tuple(value)
    assert isinstance(value, str | bool), "options of a request are words and flags"
    return value


def _read(table: TomlTable, key: str, option: _Parameter, folder: Path) -> object:
    """A value as the command line's parser gives it. Raises InputError: it has another type, names
    code or a path outside, or the option has no such value.
    """
    value = table.fields[key]
    if option.multiple:
        values = value if isinstance(value, list) else [value]
        return [_read_word(table, key, option, each, folder) for each in values]
    if option.is_flag:
        if not isinstance(value, bool):
            raise table.fault(f"{key!r} is {value!r}; give true or false")
        return value
    return _read_word(table, key, option, value, folder)


def _read_word(
    table: TomlTable, key: str, option: _Parameter, value: object, folder: Path
) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise table.fault(f"{key!r} is {value!r}; give a text or a number")
    word = str(value)
    is_random = _RANDOM_DATA.fullmatch(word) is not None
    if key in _MAY_BE_CODE and ":" in word and not is_random:
        raise table.fault(
            f"{key!r} is {word!r}, a function, and a file runs no code; give --{key} on the command"
            " line"
        )
    is_path = option.type.name in _PATHS and not is_random
    if is_path or (key in ("policy", "target") and word.endswith(".toml")):
        word = _inside(table, key, word, folder)
    try:
        converted = option.type.convert(word, None, None)
        if option.name in options_by_name():
            request_option = options_by_name()[option.name]
            settled = words.settle(request_option, (word,) if option.multiple else word)
            words.read(request_option, settled)
    except InputError as error:
        raise table.fault(str(error)) from error
    except ValueError as error:
        raise table.fault(f"{key!r} is {value!r}; {error}") from error
    except Exception as error:  # the parser's, whose class depends on its version
        raise table.fault(f"{key!r} is {value!r}; {getattr(error, 'message', error)}") from error
    return converted


def _inside(table: TomlTable, key: str, word: str, folder: Path) -> str:
    """A path in the file's folder, from the working directory. Raises InputError: it is outside."""
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, word))
    if os.path.commonpath([root, path]) != root:
        raise table.fault(
            f"{key!r} is {word!r}, which is outside of the file's folder; give --{key} on the"
            " command line"
        )
    return os.path.relpath(path)
