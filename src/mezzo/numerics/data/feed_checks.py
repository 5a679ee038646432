"""Checks of feeds against a model's inputs, with the errors that both front ends raise."""

from collections.abc import Collection, Iterable
from typing import NoReturn

from mezzo.common.errors import InputError


def check_names(
    fed: Iterable[str], inputs: Collection[str], optional: Collection[str], model: str
) -> None:
    """Check that every input is fed. `model`: the word for the model.

    Raises InputError: a feed is missing or unknown.
    """
    fed = list(fed)
    missing = [repr(name) for name in inputs if name not in fed and name not in optional]
    unknown = [repr(name) for name in fed if name not in inputs]
    if not missing and not unknown:
        return
    faults = [f"nothing for {', '.join(missing)}"] if missing else []
    faults += [f"{', '.join(unknown)}, which the {model} does not have"] if unknown else []
    expected = ", ".join(
        f"{name!r} (optional)" if name in optional else repr(name) for name in inputs
    )
    raise InputError(
        f"feeds: found {' and '.join(faults)}; feed the {model}'s inputs:"
        f" {expected or 'it has none'}"
    )


def refuse(where: str, actual: str, expected: str, remedy: str) -> NoReturn:
    """Raise the error for a feed that does not fit its input."""
    raise InputError(f"{where}: found {actual}, wanted {expected}; {remedy}")


def length_remedy(axis: int, expected: int, actual: int, rank: int) -> str:
    """What to feed in place of an array whose length along an axis differs from the input's."""
    remedy = f"feed an array whose dimension {axis} is {expected} long"
    # Probably the last, incomplete batch.
    if axis == 0 and 0 < actual < expected and rank > 1:
        remedy += f"; where that is the batch, as many samples as {expected} divides"
    return remedy
