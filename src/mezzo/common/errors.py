"""Errors a caller can cause. Each is one line: where, what was found, what was wanted, what to do."""

_LONGEST_WORD, _LONGEST_LINE = 300, 2000


def spell_raised(error: Exception, longest: int) -> str:
    """What a library has raised, on one line: its type, and so many letters of its message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:longest]}"


def bound_line(text: str) -> str:
    """A text on one line of bounded length: of words and lines that are too long, the middle is left out."""
    words = [_leave_out_middle(word, _LONGEST_WORD) for word in text.split()]
    return _leave_out_middle(" ".join(words), _LONGEST_LINE)


def _leave_out_middle(text: str, longest: int) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}...{text[-half:]}"


class MezzoError(Exception):
    """Base of every error mezzo raises on purpose. Its message is one line of bounded length, whatever the names in it
    hold.
    """

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        super().__init__(bound_line(shown))


class InputError(MezzoError):
    """The input is at fault: a file, an option, a pattern or a plan. The command line exits with 2."""


class ListError(InputError, ValueError):
    """Lists of operators that cannot be, as callers from older tools write them; those raise a ValueError."""


class ModelError(InputError):
    """The model cannot be read: truncated, corrupt, cyclic, hostile or not ONNX."""


class ContractError(MezzoError):
    """A result would break a promise, or a contract that the caller set refuses it. The command line exits with 1."""
