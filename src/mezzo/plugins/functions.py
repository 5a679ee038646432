"""Import of a user's function, written as module:function; modules of the current folder come
first.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError


def load_function(place: str, what: str, of: str) -> Callable[..., Any]:
    """Import a user's function. `what`: the option, and `of`: its arguments, for messages.

    Raises InputError: no such function, importing fails, or it is not callable.
    """
    module, _, path = place.partition(":")
    try:
        with _current_folder_first():
            loaded: Any = importlib.import_module(module)
        for name in path.split("."):
            loaded = getattr(loaded, name)
    except Exception as error:
        raise InputError(
            f"{what} {place!r} cannot be imported: {say(error)}; write module:function"
        ) from error
    if not callable(loaded):
        raise InputError(
            f"{what} {place!r} is a {type(loaded).__name__}, wanted a function of {of}"
        )
    function: Callable[..., Any] = loaded
    return function


def find_source(function: Callable[..., Any]) -> Path | None:
    """The file of a function's module, None if it has none."""
    file = getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None)
    return Path(file) if file is not None and os.path.isfile(file) else None


def say(error: Exception) -> str:
    """The exception of a user's function, as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


@contextmanager
def _current_folder_first() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)
