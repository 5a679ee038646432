"""Shell completion: names and operators of the model on the command line.

Without matches the shell offers files. The model is read, never run, and its names are cached for
the user. Names are untrusted, and Typer's scripts pass them to a shell that evaluates them: only
names of harmless characters are offered.
"""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import read_file, write_file
from mezzo.formats.dtypes import LOW_DTYPES

# Letters, digits and signs without meaning in any shell. Other names can be typed in quotes.
_HARMLESS = re.compile(r"[\w./][\w./:@%+,=-]*")
_MODEL_PARAMETERS = ("model", "source", "reference")
_FORMAT = "mezzo-names/1"
_MOST_KEPT = 32
_LARGEST_KEPT_BYTES = 16 << 20
_OPERATOR = "op:"
# Bash splits words at these characters, and replaces only the part after the last one.
_BREAKS = ":="


@dataclass(frozen=True, slots=True)
class ModelNames:
    """The names of a model that options accept, in graph order."""

    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    inputs_and_outputs: tuple[str, ...]


_NOTHING = ModelNames((), (), ())


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    """Nodes of the model or saved plan on the command line."""
    return _matching(_names_of(ctx).nodes, incomplete)


def complete_pattern(ctx: typer.Context, incomplete: str) -> list[str]:
    """Nodes of the model by name, and operators as "op:Softmax": the model's, or all known ones."""
    names = _names_of(ctx)
    operators = names.operators or tuple(_known_operators())
    patterns = [f"{_OPERATOR}{op}" for op in operators]
    if not incomplete:
        return _matching((*names.nodes, _OPERATOR), "")
    return _matching((*patterns, *names.nodes), incomplete)


def complete_operator(incomplete: str) -> list[str]:
    """Operators in the tables."""
    return _matching(_known_operators(), incomplete)


def completing_ports(for_all: Iterable[str]) -> Callable[[typer.Context, str], list[str]]:
    """A completion function for the words for all ports, or a port's name with a dtype."""
    words_for_all = tuple(for_all)

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        ports = [
            f"{name}={word}"
            for name in _names_of(ctx).inputs_and_outputs
            for word in ("fp32", *LOW_DTYPES)
        ]
        return _matching((*words_for_all, *ports), incomplete)

    return complete


def _known_operators() -> list[str]:
    from mezzo.tables.ops import known_operators

    return sorted(known_operators())


def _matching(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and _HARMLESS.fullmatch(word)]


def _names_of(ctx: typer.Context) -> ModelNames:
    model = next((ctx.params[name] for name in _MODEL_PARAMETERS if ctx.params.get(name)), None)
    model = _model_among_words() if model is None else model
    if model is None:
        return _NOTHING
    with suppress(Exception):  # completion never fails: an unreadable file has no names
        return names_in(Path(model).expanduser())
    return _NOTHING


def _model_among_words() -> str | None:
    """The first word that is a model's or a plan's file.

    The parser stops at an option without its value, before it reads the arguments.
    """
    command_line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = command_line.split("\n" if "\n" in command_line else " ")
    files = (word for word in words[2:] if word.lower().endswith((".onnx", ".json")))
    return next((word for word in files if Path(word).expanduser().is_file()), None)


def names_in(path: Path) -> ModelNames:
    """The names of a model or saved plan, cached until the file changes. Errors: as for reading."""
    import hashlib

    from mezzo.io.planfile import load_plan

    if path.suffix.lower() == ".json":
        return ModelNames(tuple(node.name for node in load_plan(path).nodes), (), ())
    status = path.resolve().stat()
    state = {
        "format": _FORMAT,
        "path": str(path.resolve()),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
    }
    cache_file = (
        _cache_folder() / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.json"
    )
    names = _read_kept(cache_file, state)
    if names is None:
        names = _read_model(path)
        with suppress(OSError, InputError):
            _keep(cache_file, state, names)
    return names


def _read_model(path: Path) -> ModelNames:
    from mezzo.conversion.results import open_source
    from mezzo.formats.dtypes import DType
    from mezzo.ir.nodes import Kind, port_of

    graph = open_source(path, trust=False, progress=None).read(DType.FLOAT16).graph
    nodes = [
        n for n in graph.nodes if n.kind in (Kind.OP, Kind.TIE) and n.signature.dtype is not None
    ]
    ports = [port_of(n) for n in graph.nodes if n.kind in (Kind.INPUT, Kind.OUTPUT)]
    operators = sorted({node.op for node in nodes if node.kind is Kind.OP})
    return ModelNames(tuple(node.name for node in nodes), tuple(operators), tuple(ports))


def _cache_folder() -> Path:
    """The folder of cached names: mezzo/names in $XDG_CACHE_HOME, %LOCALAPPDATA% or ~/.cache."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        if root := os.environ.get(variable):
            return Path(root) / "mezzo" / "names"
    return Path.home() / ".cache" / "mezzo" / "names"


def _read_kept(path: Path, state: dict[str, object]) -> ModelNames | None:
    """Cached names of a file in this state; None without a valid cache file."""
    from mezzo.common.documents import parse_json

    try:
        data = read_file(path, _LARGEST_KEPT_BYTES)
        if data is None:
            return None
        document = parse_json(data)
        if any(document.get(name) != value for name, value in state.items()):
            return None
        lists = [document[option.name] for option in fields(ModelNames)]
        if not all(isinstance(word, str) for words in lists for word in words):
            return None
        return ModelNames(*map(tuple, lists))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError):
        return None


def _keep(path: Path, state: dict[str, object], names: ModelNames) -> None:
    """Write names to the cache, and remove the oldest cache files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps({**state, **asdict(names)}).encode())
    by_age = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for old in by_age[:-_MOST_KEPT]:
        old.unlink(missing_ok=True)


def is_asked_by_bash(environment: MutableMapping[str, str]) -> bool:
    """Whether bash started this process to complete a word."""
    return environment.get("_MEZZO_COMPLETE") == "complete_bash" and "COMP_WORDS" in environment


def answer_bash(environment: MutableMapping[str, str], answer: Callable[[], Any]) -> int:
    """Print completions for bash, and return the exit code.

    Bash splits words at ":" and "=", but "op:Softmax" and "x=fp16" are single words here.
    """
    cut = join_words(environment)
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        answer()
    for line in text.getvalue().splitlines():
        print(line[len(cut) :] if line.startswith(cut) else line)
    sys.stdout.flush()
    return 0


def join_words(environment: MutableMapping[str, str]) -> str:
    """Join words that bash split; return the part of the last word that bash will not replace."""
    command_line = environment["COMP_WORDS"]
    separator = "\n" if "\n" in command_line else " "
    words, current = command_line.split(separator), int(environment.get("COMP_CWORD", "0"))
    joined: list[str] = []
    is_open = False
    for number, word in enumerate(words[: current + 1]):
        is_break = bool(word) and not word.strip(_BREAKS) and number > 1
        if is_break or is_open:
            joined[-1] += word
        else:
            joined.append(word)
        is_open = is_break
    environment["COMP_WORDS"] = separator.join(joined)
    environment["COMP_CWORD"] = str(len(joined) - 1)
    last = joined[-1] if joined else ""
    if current >= len(words) or last == words[current]:
        return ""
    prefix = last[: len(last) - len(words[current].lstrip(_BREAKS))]
    # The parser removes "--io=" itself before it completes values.
    return prefix.partition("=")[2] if prefix.startswith("-") else prefix
