"""Errors a caller can cause. Each is one line: where, what was found, what was wanted, what to do."""


def spell_raised(error: Exception, longest: int) -> str:
    """What a library has raised, on one line: its type, and so many letters of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:longest]}"


class MezzoError(Exception):
    """Base of every error mezzo raises on purpose. Its message is one line, whatever the names in it hold."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line))


class InputError(MezzoError):
    """The input is at fault: a file, an option, a pattern or a plan. The command line exits with 2."""


class ListError(InputError, ValueError):
    """Lists of operators that cannot be, as callers from older tools write them; those raise a ValueError."""


class ModelError(InputError):
    """The model cannot be read: truncated, corrupt, cyclic, hostile or not ONNX."""


class ContractError(MezzoError):
    """A result would break a promise, or a contract that the caller set refuses it. The command line exits with 1."""
