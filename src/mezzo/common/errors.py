"""Exceptions that a caller can cause. Each message is one line: where, found, wanted, remedy."""

_LONGEST_WORD, _LONGEST_LINE = 300, 2000


def spell_raised(error: Exception, longest: int) -> str:
    """A library's exception on one line: type, and the first `longest` characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:longest]}"


def bound_line(text: str) -> str:
    """Shorten a text to one line by cutting the middle of long words and lines."""
    words = [_leave_out_middle(word, _LONGEST_WORD) for word in text.split()]
    return _leave_out_middle(" ".join(words), _LONGEST_LINE)


def _leave_out_middle(text: str, longest: int) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}...{text[-half:]}"


class MezzoError(Exception):
    """Base class of mezzo's errors. The message is one printable line of bounded length."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        super().__init__(bound_line(shown))


class InputError(MezzoError):
    """Invalid input: a file, an option, a pattern or a plan. The command line exits with 2."""


class ListError(InputError, ValueError):
    """Invalid operator lists. A ValueError too, as tools with the same lists raise."""


class ModelError(InputError):
    """A model that cannot be read: truncated, corrupt, cyclic, hostile or not ONNX."""


class ContractError(MezzoError):
    """A result that breaks a guarantee or a limit of the caller. Exit code 1."""
