"""Says in one line what is wrong with a command's words, and what would be right."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Protocol

from mezzo.cli.console import print_error, print_help
from mezzo.common.errors import InputError
from mezzo.common.name_matching import aside, ask_for, names_meant, nearest
from mezzo.contracts.options.option import about, spell_option
from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.formats.format_words import plain_word

_BAD_INPUT = 2
# What people and other tools call commands and options that have another name here. Those of a request stand in it.
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "convert": ("quantize", "cast", "fp16", "bf16", "half", "optimize", "run", "export", "amp", "transform"),
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
    "--data": ("calibration", "calib", "calibration-data", "dataset", "samples", "inputs", "input-data", "feeds"),
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
_RESULT = ("o", "out", "output", "output-model", "dst", "dest", "result", "save", "save-as")
_SOURCE = ("i", "input", "in", "model", "m", "src", "source", "input-model", "onnx")


class _Parameter(Protocol):
    """What is asked of a parameter of a command."""

    name: str
    opts: Sequence[str]
    param_type_name: str
    multiple: bool
    is_flag: bool
    metavar: str | None
    help: str | None


def explain_usage(error: Exception, words: Sequence[str]) -> int:
    """Print the error of a command line that could not be understood, and return the exit code."""
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
    """Raises InputError: an option that holds one value is given two, of which the parser would drop one."""
    taken = {word: parameter for parameter in parameters for word in parameter.opts if word.startswith("--")}
    values: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        option, sign, value = word.partition("=")
        parameter = taken.get(option)
        if parameter is None or parameter.is_flag or parameter.multiple:
            if parameter is not None and not parameter.is_flag and not sign:
                next(rest, None)
            continue
        value = value if sign else next(rest, "")
        if values.setdefault(option, value) != value:
            raise InputError(f"{option} is given twice, {values[option]!r} and {value!r}; keep one")


def _describe(error: Exception, context: object, words: Sequence[str]) -> str:
    command = getattr(context, "command", None)
    parameters: list[_Parameter] = list(getattr(command, "params", []))
    parameter: _Parameter | None = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption" if command is not None:
            return _unknown_option(str(getattr(error, "option_name", "")), str(command.name), parameters)
        case "MissingParameter" if parameter is not None and command is not None:
            return _missing(parameter, str(command.name), parameters)
        case "BadParameter" if parameter is not None and parameter.opts[0].startswith("--"):
            return _bad_value(parameter, str(getattr(error, "message", "")), words)
        case "BadOptionUsage" if (option := getattr(error, "option_name", None)) and "requires" in _message(error):
            return f"{option} is the last word, and lacks its value; write it behind {option}"
    word = _unknown_command(error)
    commands = list(getattr(command, "commands", {}))
    if word is not None and commands:
        return _no_command(word, commands)
    told = _message(error).rstrip(".")
    _, found, extra = told.partition("unexpected extra argument(s) (")
    if found and command is not None:
        return _too_many(extra.rstrip(")").split()[0], str(command.name), parameters)
    return told[:1].lower() + told[1:]


def _unknown_option(option: str, command: str, parameters: Sequence[_Parameter]) -> str:
    options = [word for parameter in parameters for word in parameter.opts if word.startswith("--")]
    arguments = [_metavar(p) for p in parameters if p.param_type_name == "argument"]
    said, bare = f"{option!r} is no option of {command!r}", option.lstrip("-").replace("_", "-")
    if bare in _RESULT and len(arguments) > 1:
        return f"{said}: the result is the second word; write mezzo {command} {' '.join(arguments)}"
    if bare in _SOURCE and arguments:
        return f"{said}: the model is the first word; write mezzo {command} {' '.join(arguments)}"
    if "--to" in options and plain_word(bare) in LOW_DTYPES:
        return f"{said}; write --to {plain_word(bare)}"
    also = {spell_option(o.name, about(o).form, o.default): about(o).also for o in fields(Request)}
    aliases = {word: (*_OPTIONS.get(word, ()), *also.get(word, ())) for word in options}
    meant = names_meant(bare, aliases) or nearest(bare, options, 1)
    if not meant:
        return f"{said}; choose one of {', '.join(options)}"
    return f"{said}{aside(ask_for(meant))}"


def _missing(parameter: _Parameter, command: str, parameters: Sequence[_Parameter]) -> str:
    """What a command lacks, with what it is for, as its help has it."""
    name = parameter.opts[0] if parameter.opts[0].startswith("--") else _metavar(parameter)
    purpose = (parameter.help or "").rstrip(".")
    arguments = " ".join(_metavar(p) for p in parameters if p.param_type_name == "argument")
    if name.startswith("--"):
        arguments = f"{arguments} {name} {parameter.metavar or ''}".rstrip()
    return f"{command!r} lacks {name}: {purpose[:1].lower()}{purpose[1:]}; write mezzo {command} {arguments}"


def _bad_value(parameter: _Parameter, told: str, words: Sequence[str]) -> str:
    option = parameter.opts[0]
    value = next((after for word, after in zip(words, (*words[1:], ""), strict=True) if word == option), None)
    if value is None:
        value = next((word.partition("=")[2] for word in words if word.startswith(f"{option}=")), "")
    kinds = {"integer": "a whole number", "int": "a whole number", "number": "a number", "float": "a number"}
    kind = next((kinds[word] for word in told.rstrip(".").split() if word in kinds), None)
    return f"{option} is {value!r}; {told.lower() if kind is None else f'give {kind}'}"


def _too_many(word: str, command: str, parameters: Sequence[_Parameter]) -> str:
    arguments = [_metavar(p) for p in parameters if p.param_type_name == "argument"]
    options = [o for p in parameters for o in p.opts if o.startswith("--")]
    name, sign, value = word.partition("=")
    if sign and f"--{name.replace('_', '-')}" in options:
        return f"{word!r} is no option of {command!r}; write --{name.replace('_', '-')} {value}"
    takes = f"takes {' and '.join(arguments)}" if arguments else "takes options alone"
    return f"{word!r} is one word too many: {command!r} {takes}; leave it out"


def _no_command(word: str, commands: Sequence[str]) -> str:
    if word.lower().endswith(".onnx"):
        return f"{word!r} is a file, and a command comes first; write mezzo convert {word} OUT"
    known = {name: _COMMANDS.get(name, ()) for name in (*commands, "--help", "--version")}
    meant = names_meant(word, known) or nearest(word, commands, 1)
    listed = f"; choose one of {', '.join(commands)}" if not meant else ""
    return f"{word!r} is no command{aside(ask_for(f'mezzo {name}' for name in meant))}{listed}"


def _metavar(parameter: _Parameter) -> str:
    return parameter.metavar or parameter.name.upper()


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    return str(error if format_message is None else format_message())


def _unknown_command(error: Exception) -> str | None:
    """The word that is no command, out of "No such command 'word'."."""
    head, _, rest = str(getattr(error, "message", error)).partition("No such command ")
    return rest.split("'")[1] if rest.startswith("'") and not head else None
