"""Says in one line what is wrong with a command's words, and what would be right."""

import difflib
from collections.abc import Iterable

from mezzo.cli.console import print_error

_BAD_INPUT = 2


def explain_usage(error: Exception) -> int:
    """Print the error of a command line that could not be understood, and return the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return _BAD_INPUT  # the help text, already printed, is the message
    name = "mezzo" if context is None else context.command_path
    print_error(f"{_describe(error, context)}; see {name} --help")
    return _BAD_INPUT


def _describe(error: Exception, context: object) -> str:
    option = getattr(error, "option_name", None)
    command = getattr(context, "command", None)
    if type(error).__name__ == "NoSuchOption" and command is not None:
        options = [word for parameter in command.params for word in parameter.opts if word.startswith("--")]
        return f"{option!r} is no option of {command.name!r}{_closest(str(option), options)}; options: {', '.join(options)}"
    word = _unknown_command(error)
    commands = list(getattr(command, "commands", {}))
    if word is not None and commands:
        return f"{word!r} is no command{_closest(word, commands)}; choose one of {', '.join(commands)}"
    format_message = getattr(error, "format_message", None)
    message = str(format_message() if format_message is not None else error)
    return message.rstrip(".")[:1].lower() + message.rstrip(".")[1:]


def _unknown_command(error: Exception) -> str | None:
    """The word that is no command, out of "No such command 'word'."."""
    head, _, rest = str(getattr(error, "message", error)).partition("No such command ")
    return rest.split("'")[1] if rest.startswith("'") and not head else None


def _closest(word: str, choices: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(choices), n=1)
    return f", did you mean {found[0]!r}?" if found else ""
