"""Late binding: methods of results that call a function of a package above theirs, such as
`plan.save` or `result.compare`. The function is found by name when the method is called.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def function_above(module: str, name: str) -> Callable[..., Any]:
    """A function of `mezzo.MODULE`, which is imported now."""
    function: Callable[..., Any] = getattr(import_module(f"mezzo.{module}"), name)
    return function
