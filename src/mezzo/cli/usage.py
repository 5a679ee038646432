"""Usage errors in one line, with a correction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol

from mezzo.cli.console import print_error, print_help
from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, ask_for, matching_names, nearest
from mezzo.contracts.options.option import about, spell_option
from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import plain_word

_BAD_INPUT = 2
# Names of commands and options in other tools. Aliases of a request's options are in its fields.
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "convert": (
        "quantize",
        "cast",
        "fp16",
        "bf16",
        "half",
        "optimize",
        "run",
        "export",
        "amp",
        "transform",
    ),
    "compare": ("validate", "verify", "check", "evaluate", "eval", "test", "accuracy", "judge"),
    "tune": ("autotune", "search", "optimise", "calibrate-and-convert"),
    "bench": ("benchmark", "time", "perf", "speed", "profile", "measure", "latency", "throughput"),
    "ranges": ("calibrate", "calibration", "stats", "statistics"),
    "explain": ("why", "describe", "reason"),
    "show": ("inspect", "info", "print", "dump", "view", "cat", "list"),
    "doctor": ("env", "environment", "diagnose", "status"),
    "--help": ("help", "usage", "man"),
    "--version": ("version",),
}
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--data": (
        "calibration",
        "calib",
        "calibration-data",
        "dataset",
        "samples",
        "inputs",
        "input-data",
        "feeds",
    ),
    "--max-error": ("tolerance", "tol", "rtol", "atol", "threshold", "max-err"),
    "--batch": ("batch-size", "b"),
    "--labels": ("label", "targets", "y"),
    "--overwrite": ("force", "f", "yes", "replace", "in-place", "inplace"),
    "--quiet": ("q", "silent", "s"),
    "--exclude": ("exclude-nodes", "blacklist"),
    "--include": ("allow", "whitelist", "allow-list"),
    "--out-of-range": ("clip", "max-finite-val", "min-positive-val"),
    "--report": ("html",),
    "--runs": ("iterations", "repeat", "repeats", "n"),
    "--threads": ("num-threads", "intra-op-num-threads", "nthreads", "t"),
    "--seconds": ("duration", "time-limit", "time"),
    "--baseline": ("reference",),
    "--help": ("usage",),
}
# Words of the parser's messages on numbers, and what to give.
_NUMBERS = {
    "integer": "a whole number", "int": "a whole number", "number": "a number", "float": "a number",
}  # fmt: skip
_RESULT = ("o", "out", "output", "output-model", "dst", "dest", "result", "save", "save-as")
_SOURCE = ("i", "input", "in", "model", "m", "src", "source", "input-model", "onnx")


class _Parameter(Protocol):
    """The fields of a command's parameter that messages use."""

    name: str
    opts: Sequence[str]
    param_type_name: str
    multiple: bool
    is_flag: bool
    metavar: str | None
    help: str | None


def explain_usage(error: Exception, words: Sequence[str]) -> int:
    """Print a usage error and return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print_help(_message(error))
        return _BAD_INPUT
    name = "mezzo" if context is None else context.command_path
    if context is None and words and not words[0].startswith("-"):
        name = f"mezzo {words[0]}"
    print_error(f"{_describe(error, context, words)}; see {name} --help")
    return _BAD_INPUT


def check_said_once(parameters: Iterable[_Parameter], words: Sequence[str]) -> None:
    """Raises InputError: a single-valued option has two values; the parser would drop one."""
    by_option = {
        word: parameter
        for parameter in parameters
        for word in parameter.opts
        if word.startswith("--")
    }
    values: dict[str, str] = {}
    remaining = iter(words)
    for word in remaining:
        if word == "--":
            return
        option, equals, value = word.partition("=")
        parameter = by_option.get(option)
        if parameter is None or parameter.is_flag or parameter.multiple:
            if parameter is not None and not parameter.is_flag and not equals:
                next(remaining, None)
            continue
        value = value if equals else next(remaining, "")
        if values.setdefault(option, value) != value:
            raise InputError(f"{option} is given twice, {values[option]!r} and {value!r}; keep one")


def _describe(error: Exception, context: object, words: Sequence[str]) -> str:
    command = getattr(context, "command", None)
    parameters: list[_Parameter] = list(getattr(command, "params", []))
    parameter: _Parameter | None = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption" if command is not None:
            return _unknown_option(
                str(getattr(error, "option_name", "")), str(command.name), parameters
            )
        case "MissingParameter" if parameter is not None and command is not None:
            return _missing(parameter, str(command.name), parameters)
        case "BadParameter" if parameter is not None and parameter.opts[0].startswith("--"):
            return _bad_value(parameter, str(getattr(error, "message", "")), words)
        case "BadOptionUsage" if (
            option := getattr(error, "option_name", None)
        ) and "requires" in _message(error):
            return f"{option} is the last word, and lacks its value; write it behind {option}"
    word = _unknown_command(error)
    commands = list(getattr(command, "commands", {}))
    if word is not None and commands:
        return _no_command(word, commands)
    text = _message(error).rstrip(".")
    _, has_extra, extra = text.partition("unexpected extra argument(s) (")
    if has_extra and command is not None:
        return _too_many(extra.rstrip(")").split()[0], str(command.name), parameters)
    return text[:1].lower() + text[1:]


def _unknown_option(option: str, command: str, parameters: Sequence[_Parameter]) -> str:
    options = [word for parameter in parameters for word in parameter.opts if word.startswith("--")]
    arguments = [_metavar(p) for p in parameters if p.param_type_name == "argument"]
    fault, plain_name = (
        f"{option!r} is no option of {command!r}",
        option.lstrip("-").replace("_", "-"),
    )
    if plain_name in _RESULT and len(arguments) > 1:
        return (
            f"{fault}: the result is the second word; write mezzo {command} {' '.join(arguments)}"
        )
    if plain_name in _SOURCE and arguments:
        return f"{fault}: the model is the first word; write mezzo {command} {' '.join(arguments)}"
    if "--to" in options and plain_word(plain_name) in LOW_DTYPES:
        return f"{fault}; write --to {plain_word(plain_name)}"
    request_aliases = {
        spell_option(o.name, about(o).form, o.default): about(o).also for o in fields(Request)
    }
    aliases = {word: (*_OPTIONS.get(word, ()), *request_aliases.get(word, ())) for word in options}
    suggestions = matching_names(plain_name, aliases) or nearest(plain_name, options, 1)
    if not suggestions:
        return f"{fault}; choose one of {', '.join(options)}"
    return f"{fault}{aside(ask_for(suggestions))}"


def _missing(parameter: _Parameter, command: str, parameters: Sequence[_Parameter]) -> str:
    """A missing parameter, with its purpose from the help."""
    name = parameter.opts[0] if parameter.opts[0].startswith("--") else _metavar(parameter)
    purpose = (parameter.help or "").rstrip(".")
    arguments = " ".join(_metavar(p) for p in parameters if p.param_type_name == "argument")
    if name.startswith("--"):
        arguments = f"{arguments} {name} {parameter.metavar or ''}".rstrip()
    return (
        f"{command!r} lacks {name}: {purpose[:1].lower()}{purpose[1:]}; write mezzo {command}"
        f" {arguments}"
    )


def _bad_value(parameter: _Parameter, message: str, words: Sequence[str]) -> str:
    option = parameter.opts[0]
    after = [value for word, value in zip(words, (*words[1:], ""), strict=True) if word == option]
    joined = [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    value = next(iter([*after, *joined]), "")
    kind = next((_NUMBERS[word] for word in message.rstrip(".").split() if word in _NUMBERS), None)
    return f"{option} is {value!r}; {message.lower() if kind is None else f'give {kind}'}"


def _too_many(word: str, command: str, parameters: Sequence[_Parameter]) -> str:
    arguments = [_metavar(p) for p in parameters if p.param_type_name == "argument"]
    options = [o for p in parameters for o in p.opts if o.startswith("--")]
    name, equals, value = word.partition("=")
    if equals and f"--{name.replace('_', '-')}" in options:
        return f"{word!r} is no option of {command!r}; write --{name.replace('_', '-')} {value}"
    takes = f"takes {' and '.join(arguments)}" if arguments else "takes options alone"
    return f"{word!r} is one word too many: {command!r} {takes}; leave it out"


def _no_command(word: str, commands: Sequence[str]) -> str:
    if word.lower().endswith(".onnx"):
        return f"{word!r} is a file, and a command comes first; write mezzo convert {word} OUT"
    aliases = {name: _COMMANDS.get(name, ()) for name in (*commands, "--help", "--version")}
    suggestions = matching_names(word, aliases) or nearest(word, commands, 1)
    choices = f"; choose one of {', '.join(commands)}" if not suggestions else ""
    return (
        f"{word!r} is no command{aside(ask_for(f'mezzo {name}' for name in suggestions))}{choices}"
    )


def _metavar(parameter: _Parameter) -> str:
    return parameter.metavar or parameter.name.upper()


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    return str(error if format_message is None else format_message())


def _unknown_command(error: Exception) -> str | None:
    """The word in "No such command 'word'."; None for other errors."""
    head, _, quoted = str(getattr(error, "message", error)).partition("No such command ")
    return quoted.split("'")[1] if quoted.startswith("'") and not head else None
