"""Says in one line what is wrong with a command's words, and what would be right."""

import difflib
from collections.abc import Iterable

from mezzo.cli.console import print_error, print_help

_BAD_INPUT = 2


def explain_usage(error: Exception) -> int:
    """Print the error of a command line that could not be understood, and return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print_help(_message(error))
        return _BAD_INPUT
    name = "mezzo" if context is None else context.command_path
    print_error(f"{_describe(error, context)}; see {name} --help")
    return _BAD_INPUT


def _describe(error: Exception, context: object) -> str:
    option = getattr(error, "option_name", None)
    command = getattr(context, "command", None)
    if type(error).__name__ == "NoSuchOption" and command is not None:
        options = [word for parameter in command.params for word in parameter.opts if word.startswith("--")]
        close = _closest(str(option), options)
        return f"{option!r} is no option of {command.name!r}{close}; choose one of {', '.join(options)}"
    word = _unknown_command(error)
    commands = list(getattr(command, "commands", {}))
    if word is not None and commands:
        return f"{word!r} is no command{_closest(word, commands)}; choose one of {', '.join(commands)}"
    message = _message(error).rstrip(".")
    return message[:1].lower() + message[1:]


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    return str(error if format_message is None else format_message())


def _unknown_command(error: Exception) -> str | None:
    """The word that is no command, out of "No such command 'word'."."""
    head, _, rest = str(getattr(error, "message", error)).partition("No such command ")
    return rest.split("'")[1] if rest.startswith("'") and not head else None


def _closest(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
