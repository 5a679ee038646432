"""Execution of one command: errors become one line and an exit code."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mezzo.cli import INTERRUPTED
from mezzo.cli.app import COMMANDS, load_commands, make_app
from mezzo.cli.console import print_error, print_log
from mezzo.cli.exit_codes import BAD_INPUT, REFUSED
from mezzo.cli.interrupts import Interrupts
from mezzo.cli.project_file import choose_file
from mezzo.common.errors import ContractError, InputError, MezzoError, ModelError, bound_line
from mezzo.common.message_style import MessageStyle, using_message_style
from mezzo.common.telemetry import opt_out_of_telemetry

if TYPE_CHECKING:
    from mezzo.cli.project_config import ProjectConfig

# Base class of usage errors. Typer exports only a subclass; the base's module depends on the
# version.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    """Run the command line; exit code 0 done, 1 refused by a contract, 2 bad input, 3 cannot tell.

    Errors are printed in one line; the caller prints interrupts.
    """
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            # Names outside the terminal's encoding are escaped.
            reconfigure(errors="backslashreplace")
    # OpenBLAS reads it when NumPy loads it: its idle threads sleep after 2**4 cycles, not 2**26.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    opt_out_of_telemetry()  # early, as a metric or a plug-in may import a library before mezzo does
    command = typer.main.get_command(make_app())
    words = respell(sys.argv[1:] if arguments is None else arguments)
    try:
        with using_message_style(MessageStyle.SHELL):
            file, words = choose_file(words)
            config: ProjectConfig | None = None
            if words and words[0] in COMMANDS:
                check_said_once(COMMANDS[words[0]].load().params, words[1:])
                words = _with_trtexec(words)
                config = _read_config(file, words)
            run = partial(
                command.main, args=words, prog_name="mezzo", standalone_mode=False, obj=config,
                default_map=None if config is None else {words[0]: dict(config.defaults)},
            )  # fmt: skip
            code = _complete(run) if "_MEZZO_COMPLETE" in os.environ else run()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if interrupts.was_raised:  # an interrupted call may raise any exception
            return INTERRUPTED
        exit_code = _print_fault(error, words)
        if exit_code is None:
            raise
        return exit_code
    return code if isinstance(code, int) else 0


def _complete(run: partial[Any]) -> Any:
    """Answer a shell that completes a word."""
    from mezzo.cli.hints.completion import answer_bash, is_asked_by_bash

    return answer_bash(os.environ, run) if is_asked_by_bash(os.environ) else run()


def _with_trtexec(words: list[str]) -> list[str]:
    """The words of a command with those that its trtexec line means, if it has one."""
    if not any(word.startswith("--from-trtexec") for word in words):
        return words
    from mezzo.cli.options.trtexec_words import expand

    return expand(words, COMMANDS[words[0]].load().params)


def _read_config(file: Path | None, words: Sequence[str]) -> "ProjectConfig | None":
    """The options in mezzo.toml for a command; with -v it is named. Errors as in `load_config`."""
    if file is None or not {"--help", "--help-all", "-h"}.isdisjoint(words):
        return None
    from mezzo.cli.project_config import load_config

    config = load_config(file, load_commands(), words[0])
    if not {"--verbose", "-v"}.isdisjoint(words) and (config.defaults or config.models):
        print_error(f"options that are not given come from {os.path.relpath(file)!r}")
    return config


def check_said_once(parameters: Iterable[Any], words: Sequence[str]) -> None:
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


def _print_fault(error: Exception, words: Sequence[str]) -> int | None:
    """Print an error that a user can cause, and return the exit code; None for internal errors."""
    match error:
        case _ if isinstance(error, _USAGE_ERROR):
            from mezzo.cli.usage import explain_usage

            return explain_usage(error, words, partial(_report, words, "UsageError", BAD_INPUT))
        case MezzoError():
            for note in getattr(error, "__notes__", ()):  # the end of another program's log
                print_log(note)
            code = REFUSED if isinstance(error, ContractError) else BAD_INPUT
            _report(words, _public_name(error), code, str(error))
            return code
        case OSError():
            location = "" if error.filename is None else f"{error.filename}: "
            message = f"{location}{error.strerror or error}; nothing was written"
            _report(words, "OSError", BAD_INPUT, message)
            return BAD_INPUT
        case ImportError() if (name := _package_of(error)) is not None:
            message = f"{name} cannot be imported ({error}); 'mezzo doctor' says what to do"
            _report(words, "ImportError", REFUSED, message)
            return REFUSED
        case _:
            return None


def _public_name(error: MezzoError) -> str:
    """The name of the nearest class of an error that callers know."""
    names = {each.__name__ for each in (ModelError, ContractError, InputError, MezzoError)}
    return next(each.__name__ for each in type(error).__mro__ if each.__name__ in names)


def _report(words: Sequence[str], kind: str, exit_code: int, message: str) -> None:
    """Print an error as a line on stderr, and with --json as a document on stdout."""
    print_error(message)
    options = words[: words.index("--")] if "--" in words else words
    if "--json" in options:
        from mezzo.cli.console import print_document
        from mezzo.report.records.documents import document

        error = {"kind": kind, "message": bound_line(message), "exit_code": exit_code}
        with suppress(MezzoError):  # stdout is closed
            print_document(document("error", {"command": words[0], "error": error}))


def _package_of(error: ImportError) -> str | None:
    """The dependency of mezzo that cannot be imported; None if it is another module."""
    from mezzo.common.packages import BASE

    module = error.name or ""
    return next(
        (p.name for p in BASE if module == p.module or module.startswith(f"{p.module}.")), None
    )


def respell(words: Sequence[str]) -> list[str]:
    """The words of a command, with "plan diff A B" replaced by "diff A B", and "help COMMAND" by
    "COMMAND --help".

    `diff` is a command of its own, and a model follows `plan`; but people try "plan diff" first.
    """
    words = list(words)
    if words[:2] == ["plan", "diff"] and not os.path.lexists("diff"):
        return ["diff", *words[2:]]
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return words
