"""Training options: memory, accumulation, gradient reduction and weight updates."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from mezzo.common.errors import InputError
from mezzo.formats.format_words import read_format

_SUMS = ("fp32", "bf16", "fp16")
_REDUCES = ("fp32", "bf16", "fp16")
_UPDATES = ("fp32",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Validated training options; None is the default behaviour.

    `memory` is the weight of bytes saved for the backward, from 0 to 1; None is the largest that
    costs no error and next to no time. `accumulate` is the
    accumulation precision of matmuls across tiles of `tile` terms, which are summed in FP32.
    `weight_grad_reduce` is the precision for reducing weight gradients over workers and
    accumulation steps. `weight_update` is the precision of master weights, whose low-precision
    copies are then made once per step.
    """

    memory: float | None = None
    accumulate: str | None = None
    tile: int | None = None
    weight_grad_reduce: str | None = None
    weight_update: str | None = None


CONTROLS = tuple(one.name for one in fields(Controls))


def read_controls(given: Mapping[str, object]) -> Controls:
    """Validate the options, by the field names of `Controls`.

    Raises InputError: a value is invalid, or `tile` is given without low-precision accumulation.
    """
    read = Controls(
        memory=_read_memory(given.get("memory")),
        accumulate=_one_of("accumulate", given.get("accumulate"), _SUMS),
        tile=_read_tile(given.get("tile")),
        weight_grad_reduce=_one_of("weight_grad_reduce", given.get("weight_grad_reduce"), _REDUCES),
        weight_update=_one_of("weight_update", given.get("weight_update"), _UPDATES),
    )
    if read.tile is not None and read.accumulate in (None, "fp32"):
        raise InputError(
            f"option 'tile' is {read.tile} without accumulate='bf16'; only such sums are made of"
            " tiles"
        )
    return read


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> str | None:
    return None if value is None else read_format(value, f"option {name!r}", choices, {})


def _read_memory(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise InputError(
        f"option 'memory' is {value!r}; give a number from 0, least time and error, to 1, least"
        " memory"
    )


def _read_tile(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise InputError(
        f"option 'tile' is {value!r}; give how many terms are summed in FP32 before they are"
        " rounded"
    )
