"""Who is spoken to: somebody at a command line, or somebody who writes Python. A sentence that names an option, a
setting or a command asks here how, so that one sentence serves both.
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class MessageStyle(enum.Enum):
    """A caller, by what it writes."""

    PYTHON = "keywords and calls"
    SHELL = "options and commands"


_speaking_to: ContextVar[MessageStyle] = ContextVar("speaking_to", default=MessageStyle.PYTHON)
# Keywords whose option is not called as they are.
_OPTIONS = {"batch_size": "batch"}
# Keywords that are true unless said otherwise.
_ON = frozenset({"provenance", "layers"})


@contextmanager
def speaking_to(voice: MessageStyle) -> Iterator[None]:
    """Speak so while this lasts."""
    token = _speaking_to.set(voice)
    try:
        yield
    finally:
        _speaking_to.reset(token)


def either(shell: str, python: str) -> str:
    """The words for whoever is spoken to."""
    return shell if _speaking_to.get() is MessageStyle.SHELL else python


def option(name: str) -> str:
    """An option by its keyword: "--keep-region", or "keep_region"."""
    return either(f"--{_OPTIONS.get(name, name).replace('_', '-')}", name)


def setting(name: str, value: object) -> str:
    """An option with a value, as it is written: "--to bf16", or 'to="bf16"'; "--overwrite", or "overwrite=True"."""
    if isinstance(value, bool):
        word = option(name) if value or name not in _ON else option(f"no_{name}")
        return either(word, f"{name}={value}")
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return either(f"{option(name)} {value}", f"{name}={text}")


def verb(name: str) -> str:
    """A verb as it is asked for, in quotes: "'mezzo plan'", or "'mezzo.plan'"."""
    return either(f"'mezzo {name}'", f"'mezzo.{name}'")


def listing(model: str = "MODEL") -> str:
    """What lists all nodes of a model, as a quoted command or call."""
    return either(f"'mezzo plan {model} --nodes'", "'mezzo.plan(model).nodes'")
