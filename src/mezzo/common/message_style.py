"""Message wording for the command line or for Python. Messages that name an option, a value or a
command get its spelling here, so that one message serves both.
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class MessageStyle(enum.Enum):
    """How the caller spells options: in Python or in a shell."""

    PYTHON = "keywords and calls"
    SHELL = "options and commands"


_message_style: ContextVar[MessageStyle] = ContextVar(
    "using_message_style", default=MessageStyle.PYTHON
)
# Keywords whose command-line option has another name.
_OPTIONS = {"batch_size": "batch", "time_limit_s": "time_limit"}
# Keywords that are True by default, so that False is spelled --no-NAME.
_ON = frozenset({"provenance", "layers"})


@contextmanager
def using_message_style(style: MessageStyle) -> Iterator[None]:
    """Use a message style inside this context."""
    token = _message_style.set(style)
    try:
        yield
    finally:
        _message_style.reset(token)


def current_message_style() -> MessageStyle:
    """The message style in effect."""
    return _message_style.get()


def either(shell: str, python: str) -> str:
    """`shell` or `python`, whichever the current message style calls for."""
    return shell if _message_style.get() is MessageStyle.SHELL else python


def option(name: str) -> str:
    """An option's spelling, given its keyword: "--keep-region" or "keep_region"."""
    return either(f"--{_OPTIONS.get(name, name).replace('_', '-')}", name)


def setting(name: str, value: object) -> str:
    """An option with its value: "--to bf16" or 'to="bf16"'; "--overwrite" or "overwrite=True"."""
    if isinstance(value, bool):
        word = option(name) if value or name not in _ON else option(f"no_{name}")
        return either(word, f"{name}={value}")
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return either(f"{option(name)} {value}", f"{name}={text}")


def verb(name: str) -> str:
    """A public verb, quoted: 'mezzo plan' for the command line, 'mezzo.plan' for Python."""
    return either(f"'mezzo {name}'", f"'mezzo.{name}'")


def listing(model: str = "MODEL") -> str:
    """The quoted command or call that lists all nodes of a model."""
    return either(f"'mezzo plan {model} --nodes'", "'mezzo.plan(model).nodes'")
