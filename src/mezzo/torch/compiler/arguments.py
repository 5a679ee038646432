"""Validation of arguments of the functions in `mezzo.torch`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from mezzo.common.errors import InputError


def check_module(model: object, what: str = "model") -> torch.nn.Module:
    """The model itself. Raises InputError: it is not a module."""
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise InputError(
            f"{what} is the class {model.__name__}; give a module: {model.__name__}(...)"
        )
    remedy = "put the function into the forward of one" if callable(model) else "give one"
    raise InputError(f"{what} is {_spelled(model)}, which is no torch.nn.Module; {remedy}")


def check_callable(run: object, what: str) -> None:
    """Raises InputError: `run` cannot be called."""
    if not callable(run):
        raise InputError(f"{what} is {_spelled(run)}; give what mezzo.torch.compile returns")


def batches_of(data: object) -> Iterable[object]:
    """The batches in `data`.

    Raises InputError: it is a single batch, whose rows would be mistaken for batches; or it is not
    iterable.
    """
    if isinstance(data, torch.Tensor | Mapping):
        raise InputError(
            f"data is a {type(data).__name__}, which is one batch; give a list of batches: [data]"
        )
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InputError(
            f"data is {_spelled(data)}; give a list of batches, each the arguments of one call"
        )
    return data


def call_with(model: Callable[..., Any], batch: object) -> object:
    """Call a model with a batch."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def call_arguments(args: object, kwargs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one call as a tuple and a dict. Raises InputError: they are neither."""
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        remedy = "(x,) for one tensor x" if isinstance(args, torch.Tensor) else "() for none"
        raise InputError(
            f"args is {_spelled(args)}; give the arguments of one call as a tuple, {remedy}"
        )
    if not isinstance(kwargs, Mapping | None):
        raise InputError(
            f"kwargs is {_spelled(kwargs)}; give a mapping of arguments by their names"
        )
    return tuple(args), dict(kwargs or {})


def _spelled(value: object) -> str:
    """A short description: the literal for None and numbers, otherwise the type name."""
    return (
        repr(value)
        if value is None or isinstance(value, bool | int | float)
        else f"a {type(value).__name__}"
    )
