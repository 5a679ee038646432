"""Checks of what the functions of `mezzo.torch` are called with, before anything runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from mezzo.common.errors import InputError


def check_module(model: object, what: str = "model") -> torch.nn.Module:
    """Raises InputError: it is no module."""
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise InputError(f"{what} is the class {model.__name__}; give a module: {model.__name__}(...)")
    remedy = "put the function into the forward of one" if callable(model) else "give one"
    raise InputError(f"{what} is {_spelled(model)}, which is no torch.nn.Module; {remedy}")


def check_callable(run: object, what: str) -> None:
    """Raises InputError: it cannot be called."""
    if not callable(run):
        raise InputError(f"{what} is {_spelled(run)}; give what mezzo.torch.compile returns")


def batches_of(data: object) -> Iterable[object]:
    """What is to be called with, one by one.

    Raises InputError: it is one batch, whose rows would be taken for some; or it holds none.
    """
    if isinstance(data, torch.Tensor | Mapping):
        raise InputError(f"data is a {type(data).__name__}, which is one batch; give a list of batches: [data]")
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InputError(f"data is {_spelled(data)}; give a list of batches, each the arguments of one call")
    return data


def call_arguments(args: object, kwargs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call. Raises InputError: they are none."""
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        remedy = "(x,) for one tensor x" if isinstance(args, torch.Tensor) else "() for none"
        raise InputError(f"args is {_spelled(args)}; give the arguments of one call as a tuple, {remedy}")
    if not isinstance(kwargs, Mapping | None):
        raise InputError(f"kwargs is {_spelled(kwargs)}; give a mapping of arguments by their names")
    return tuple(args), dict(kwargs or {})


def _spelled(given: object) -> str:
    """What was given, in a few words: None and the like as they are, all else by its kind."""
    return repr(given) if given is None or isinstance(given, bool | int | float) else f"a {type(given).__name__}"
