"""Inputs of products as GPTQ needs them: second moments on data, in bounded memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mezzo.common.memory import current_memory_limit
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.gptq import error_feedback

if TYPE_CHECKING:
    from mezzo.contracts.lab import Lab
    from mezzo.contracts.reading import Reading
    from mezzo.numerics.data.datasets import Batch

# Largest size of all matrices that are kept at once: of the moments in FP64, which become FP32.
_MOST_BYTES = 1 << 31
_ELEMENT_BYTES = 8


class GptqInputs:
    """The error feedback of values that products read, by value id.

    Values whose matrices together exceed the memory are collected in groups, each in a pass of its
    own over the data. One whose own matrix exceeds it is left out.
    """

    def __init__(
        self,
        lab: "Lab",
        read: "Callable[[], Reading]",
        widths: Mapping[int, int],
        batches: "Callable[[], Iterable[Batch]]",
    ) -> None:
        """`read`: reads the model anew. `widths`: lengths of the values' last axes, in the order
        in which they are asked for; `batches`: data that no error is measured on.
        """
        self._lab, self._read, self._batches = lab, read, batches
        most = current_memory_limit().share_bytes(_MOST_BYTES)
        self._groups = [*_groups(widths, most)]
        self._kept: dict[int, Floats | None] = {}

    def __contains__(self, value: object) -> bool:
        return any(value in group for group in self._groups)

    def feedback(self, value: int) -> Floats | None:
        """`error_feedback` of a value, [inputs, inputs]; None if the data shows nothing of it."""
        group = next(group for group in self._groups if value in group)
        if value not in self._kept and self._kept.keys() != group.keys():
            self._kept = {}  # its memory is needed
            self._kept = self._collect(group)
        return self._kept[value]

    def _collect(self, group: Mapping[int, int]) -> dict[int, Floats | None]:
        squares: dict[int, npt.NDArray[np.float64]] = {}
        observe = self._lab.observer(self._read(), [*group])
        for batch in self._batches():
            for value, numbers in observe(batch.feeds):
                rows = numbers.reshape(-1, numbers.shape[-1]).astype(np.float64)
                squares.setdefault(value, np.zeros((rows.shape[1],) * 2))
                squares[value] += rows.T @ rows
        return {
            value: error_feedback(squares.pop(value)) if value in squares else None
            for value in group
        }


def _groups(widths: Mapping[int, int], most_bytes: int) -> Iterator[dict[int, int]]:
    """Values in order, together up to a size; one alone may be larger, and is left out."""
    group: dict[int, int] = {}
    left = most_bytes
    for value, width in widths.items():
        size = _ELEMENT_BYTES * width**2
        if size > most_bytes:
            continue
        if size > left:
            yield group
            group, left = {}, most_bytes
        group[value] = width
        left -= size
    if group:
        yield group
