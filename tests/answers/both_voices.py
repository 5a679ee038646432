"""Commands as calls: what a command line asks for, asked of Python with keywords."""

import shlex
from dataclasses import dataclass

from mezzo.cli.app import COMMANDS

_VERBS = frozenset({"convert", "plan", "compare", "tune", "ranges", "explain"})
_KEYWORDS = {"batch": "batch_size", "plan_file": "plan"}
_NUMBERS = frozenset({"max_error"})
_PAIRS = frozenset({"fix_region", "io", "assume"})
_PRINTED = frozenset({"as_json", "quiet", "every_node", "top"})
_OF_COMMANDS = frozenset({"report", "save_plan", "layout_name", "resume", "format"})


@dataclass(frozen=True, slots=True)
class Call:
    """A verb of the library, its arguments and keywords."""

    verb: str
    arguments: tuple[str, ...]
    keywords: dict[str, object]


def call_of(line: str) -> Call | None:
    """The call that asks what a command asks; None where the words are no command that Python has."""
    words = shlex.split(line.removeprefix("$ "))[1:]
    if not words or words[0] not in _VERBS:
        return None
    command = COMMANDS[words[0]].load()
    options = {word: p for p in command.params for word in p.opts if word.startswith("--")}
    wanted = [p for p in command.params if not p.opts[0].startswith("--")]
    arguments: list[str] = []
    keywords: dict[str, object] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("--"):
            arguments.append(word)
            continue
        option, sign, value = word.partition("=")
        parameter = options.get(option)
        if parameter is None or parameter.name in _OF_COMMANDS:
            return None
        if parameter.name in _PRINTED:
            continue
        if parameter.is_flag:
            return None
        value = value if sign else next(rest, "")
        name = _KEYWORDS.get(parameter.name, parameter.name)
        if name in keywords and not parameter.multiple:
            return None
        if not _add(keywords, name, value, is_repeated=parameter.multiple):
            return None
    return Call(words[0], tuple(arguments), keywords) if len(arguments) == len(wanted) else None


def _add(keywords: dict[str, object], name: str, value: str, *, is_repeated: bool) -> bool:
    """Add an option in the form that Python has it; False where it has none."""
    if name in _PAIRS and "=" in value:
        key, _, thing = value.rpartition("=")
        pairs = keywords.setdefault(name, {})
        assert isinstance(pairs, dict)
        pairs[key] = thing
    elif name in _PAIRS:
        keywords[name] = value
    elif is_repeated:
        several = keywords.setdefault(name, [])
        assert isinstance(several, list)
        several.append(value)
    elif name in ("batch_size", "tile", *_NUMBERS):
        try:
            keywords[name] = float(value) if name in _NUMBERS else int(value)
        except ValueError:
            return False
    else:
        keywords[name] = value
    return True
