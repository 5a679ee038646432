"""Usage errors in one line, with the command to type instead."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from mezzo.cli.app import COMMANDS
from mezzo.cli.console import print_error, print_help
from mezzo.cli.exit_codes import BAD_INPUT
from mezzo.cli.help import HELP_ALL
from mezzo.cli.hints.correction import Correction, correct, quote_options
from mezzo.cli.hints.examples import EXAMPLES
from mezzo.cli.hints.other_tools import COMMANDS as OTHER_COMMANDS
from mezzo.cli.hints.other_tools import PYTORCH
from mezzo.common.name_matching import fold, matching_names, nearest

_DATA_SUFFIXES = (".npz", ".npy", ".csv", ".tsv", ".txt", ".png", ".jpg", ".jpeg", ".webp")
# Words of the parser's messages on numbers, and what to give.
_NUMBERS = {
    "integer": "a whole number", "int": "a whole number", "number": "a number", "float": "a number",
}  # fmt: skip


def explain_usage(
    error: Exception, words: Sequence[str], report: Callable[[str], None] = print_error
) -> int:
    """Report a usage error in one line, or print help, and return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print_help(_message(error))
        return BAD_INPUT
    report(_describe(error, words))
    return BAD_INPUT


def _describe(error: Exception, words: Sequence[str]) -> str:
    first = words[0] if words else ""
    if first not in COMMANDS:
        return _no_command(first, words)
    correction = correct(words)
    assert correction is not None, f"{first} is a command"
    parameter: Any = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption":
            correction.replaced.insert(0, str(getattr(error, "option_name", "")))
            return _unknown_option(first, correction)
        case "MissingParameter" if parameter is not None:
            return _missing(parameter, words, correction)
        case "BadParameter" if parameter is not None and parameter.opts[0].startswith("--"):
            text = _bad_value(parameter, str(getattr(error, "message", "")), words)
            return f"{text}; see mezzo {first} --help"
    option = getattr(error, "option_name", None)
    if option and "requires" in _message(error):
        purpose = _purpose(option, correction)
        return f"{option} is the last word, and lacks its value: {purpose}; {_write(correction)}"
    text = _message(error).rstrip(".")
    _, has_extra, extra = text.partition("unexpected extra argument(s) (")
    if has_extra:
        return _too_many(first, extra.rstrip(")").split(), correction)
    return f"{text[:1].lower()}{text[1:]}; {_write(correction)}"


def _no_command(word: str, words: Sequence[str]) -> str:
    """A first word that is no command: another tool's name, an option, a file, or misspelled."""
    kind = "option of 'mezzo'" if word.startswith("-") else "command"
    if fold(word) in map(fold, PYTORCH):
        return (
            f"{word!r} is no command: PyTorch models are compiled in Python; write"
            " mezzo.torch.compile(model)"
        )
    options = {name: OTHER_COMMANDS[name] for name in ("--help", "--version")}
    own_options = matching_names(word, options)
    if not own_options and word.startswith("-"):
        own_options = nearest(word, options, 1)
    if own_options:
        return f"{word!r} is no {kind}; write mezzo {own_options[0]}"
    correction = correct(words)
    if correction is None:
        choices = "" if word.startswith("-") else f"; choose one of {', '.join(COMMANDS)}"
        return f"{word!r} is no {kind}{choices}; see mezzo --help"
    if not word.startswith("-") and word.lower().endswith(".onnx"):
        return f"{word!r} is a file, and a command comes first; {_write(correction)}"
    if correction.unknown:
        return _unknown_option(correction.verb, correction)
    if word.startswith("-"):
        return f"{quote_options([word])} comes before a command; {_write(correction)}"
    return f"{word!r} is no command; {_write(correction)}"


def _unknown_option(command: str, correction: Correction) -> str:
    if correction.unknown:
        names = correction.unknown
        lists = f"mezzo {command} {HELP_ALL} lists its options by group"
        return f"{_are_no_options(names, command)}; {lists}"
    return f"{_are_no_options(correction.replaced, command)}; {_write(correction)}"


def _are_no_options(names: Sequence[str], command: str) -> str:
    verb = "is no option" if len(set(names)) == 1 else "are no options"
    return f"{quote_options(names)} {verb} of {command!r}"


def _write(correction: Correction) -> str:
    """What to know about the corrected command, and the command."""
    result = correction.models[1] if len(correction.models) > 1 else "OUT"
    notes = [note.replace("OUT", result) for note in correction.notes]
    return "; ".join([*notes, f"write {correction.spell()}"])


def _missing(parameter: Any, words: Sequence[str], correction: Correction) -> str:
    """A missing parameter, with its purpose from the help."""
    name = parameter.opts[0] if parameter.opts[0].startswith("--") else _metavar(parameter)
    text = f"{words[0]!r} lacks {name}: {_lower(parameter.help)}"
    if len(words) == 1:
        return f"{text}; for example {EXAMPLES[words[0]][0][0]}; see mezzo {words[0]} --help"
    return f"{text}; {_write(correction)}"


def _purpose(option: str, correction: Correction) -> str:
    known = {word: p for p in correction.parameters() for word in p.opts}
    return _lower((known[option].help or "").partition(". ")[0])


def _bad_value(parameter: Any, message: str, words: Sequence[str]) -> str:
    option = parameter.opts[0]
    after = [value for word, value in zip(words, (*words[1:], ""), strict=True) if word == option]
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    value = next(iter([*after, *joined]), "")
    kind = next((_NUMBERS[word] for word in message.rstrip(".").split() if word in _NUMBERS), None)
    return f"{option} is {value!r}; {message.lower() if kind is None else f'give {kind}'}"


def _too_many(command: str, extra: Sequence[str], correction: Correction) -> str:
    word = extra[0]
    if not correction.extra:
        return f"{command!r} takes formats behind --to, without spaces; {_write(correction)}"
    arguments = [p for p in correction.parameters() if p.param_type_name == "argument"]
    options = [o for p in correction.parameters() for o in p.opts if o.startswith("--")]
    name, equals, value = word.partition("=")
    if equals and f"--{name.replace('_', '-')}" in options:
        written = f"--{name.replace('_', '-')} {shlex.quote(value)}"
        return f"{word!r} is no option of {command!r}; write {written}; see mezzo {command} --help"
    if "--data" in options and word.lower().endswith(_DATA_SUFFIXES):
        pattern = os.path.join(os.path.dirname(word), f"*{os.path.splitext(word)[1]}")
        return (
            f"{word!r} is one word too many, as a pattern without quotes gives; write --data"
            f" '{pattern}', or --data before each file"
        )
    takes = (
        f"takes {' and '.join(map(_metavar, arguments))}" if arguments else "takes options alone"
    )
    models = [word for word in correction.models if word.lower().endswith(".onnx")]
    is_several = command == "convert" and len(models) > 1
    folder = "; give the folder of the models" if is_several else ""
    fault = f"{correction.extra[0]!r} is one word too many: {command!r} {takes}"
    return f"{fault}{folder}; {_write(correction)}"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _lower(text: str | None) -> str:
    text = (text or "").rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    return str(error if format_message is None else format_message())
