"""What is asked of training beside the plan: what is kept, and in what precision numbers are summed and updated."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from mezzo.common.errors import InputError
from mezzo.formats.format_words import read_format

_SUMS = ("fp32", "bf16", "fp16")
_REDUCES = ("fp32", "bf16", "fp16")
_UPDATES = ("fp32",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Options that were checked; None asks for nothing.

    `memory` weighs what is kept between the passes, from 0 to 1. `accumulate` is the precision of products' sums over
    tiles of `tile` terms, which are summed in FP32. `weight_grad_reduce` is that of the sums of weights' gradients over
    workers and over steps of accumulation. `weight_update` is that of the weights that are updated, whose low copies
    are then made once a step.
    """

    memory: float | None = None
    accumulate: str | None = None
    tile: int | None = None
    weight_grad_reduce: str | None = None
    weight_update: str | None = None


CONTROLS = tuple(one.name for one in fields(Controls))


def read_controls(given: Mapping[str, object]) -> Controls:
    """Check what was asked for, by the names of `Controls`.

    Raises InputError: an option has no such value, or there are tiles of sums that are not rounded.
    """
    read = Controls(
        memory=_read_memory(given.get("memory")),
        accumulate=_one_of("accumulate", given.get("accumulate"), _SUMS),
        tile=_read_tile(given.get("tile")),
        weight_grad_reduce=_one_of("weight_grad_reduce", given.get("weight_grad_reduce"), _REDUCES),
        weight_update=_one_of("weight_update", given.get("weight_update"), _UPDATES),
    )
    if read.tile is not None and read.accumulate in (None, "fp32"):
        raise InputError(f"option 'tile' is {read.tile} without accumulate='bf16'; only such sums are made of tiles")
    return read


def _one_of(name: str, given: object, known: tuple[str, ...]) -> str | None:
    return None if given is None else read_format(given, f"option {name!r}", known, {})


def _read_memory(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
        return float(given)
    raise InputError(f"option 'memory' is {given!r}; give a number from 0, least time and error, to 1, least memory")


def _read_tile(given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    raise InputError(f"option 'tile' is {given!r}; give how many terms are summed in FP32 before they are rounded")
