"""Checks of input data and reference outputs: NaN, infinities, constants and FP32 noise."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Noise raises a budget up to this: outputs with a larger error than 10 % are never accepted.
MOST_NOISE = 0.1
# Outputs that FP32 rounding alone moves by this relative error are pure noise.
ALL_NOISE = 0.5


# The fault of data without samples.
NO_SAMPLE = ("the data holds no sample",)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why an output cannot be judged. `is_blind`: it cannot even reveal an error."""

    because: str
    is_blind: bool


class Watch:
    """Statistics of one input or output over batches: non-finite and constant elements. Accepts any
    arrays, in lists too; None is an empty optional.
    """

    def __init__(self) -> None:
        self.count = 0  # elements: numbers, booleans or texts
        self.rows = 0
        self._bad = dict.fromkeys(("NaN", "infinities"), 0)
        self._first_bad: str | None = None
        self._bad_rows = 0
        self._finite = 0
        self._is_mask = True  # holds only 0 and -inf
        self._masked: Array | None = None  # where the first row is -inf
        self._is_masked_alike, self._mask_rows = True, 0
        self._number: Any = None
        self.is_one_number = True
        self._row: list[Array] | None = None
        self.is_one_row = True

    def add(self, datum: Any, samples: int, origin: str) -> None:
        """Add one batch. If the first axis has one entry per sample, each is checked alone."""
        parts = list(_parts(datum))
        rows = samples if len(parts) == 1 and _has_rows(parts[0], samples) else 1
        tables = [part.reshape(rows, part.size // rows) for part in parts]
        for table in tables:
            self.count += table.size
            self._look_for_bad(table, origin)
            self._look_for_mask(table if rows > 1 or len(parts) > 1 else _by_first_axis(parts[0]))
            self._look_for_change(table)
        self._compare_rows(tables, rows)
        self.rows += rows

    def _look_for_bad(self, table: Array, origin: str) -> None:
        if not _is_float(table) or not table.size:
            return
        finite = np.isfinite(table)
        count = int(np.count_nonzero(finite))
        self._finite += count
        self._is_mask &= not bool(np.any(table[finite]))
        if count == table.size:
            return
        nan = np.isnan(table)
        self._bad["NaN"] += int(np.count_nonzero(nan))
        self._bad["infinities"] += table.size - count - int(np.count_nonzero(nan))
        self._is_mask &= bool((finite | (table == -np.inf)).all())
        where = np.flatnonzero(~finite.all(axis=1))
        self._bad_rows += len(where)
        if self._first_bad is None:
            self._first_bad = f"sample {where[0]} of {origin}" if len(table) > 1 else origin

    def _look_for_mask(self, table: Array) -> None:
        """Check whether -inf is at the same positions of all rows, and all else is finite."""
        if not self._is_masked_alike or not _is_float(table) or not table.size:
            return
        is_below = table == -np.inf
        self._masked = is_below[0] if self._masked is None else self._masked
        self._is_masked_alike = self._masked.shape == is_below.shape[1:] and bool(
            (is_below == self._masked).all()
        )
        self._is_masked_alike &= bool((np.isfinite(table) | is_below).all())
        self._mask_rows += len(table)

    def _look_for_change(self, table: Array) -> None:
        if not self.is_one_number or not table.size:
            return
        first = table[0, 0]
        self._number = first if self._number is None else self._number
        self.is_one_number = bool(first == self._number) and bool((table == first).all())

    def _compare_rows(self, tables: list[Array], rows: int) -> None:
        if not self.is_one_row:
            return
        firsts = [table[:1] for table in tables]
        self._row = firsts if self._row is None else self._row
        self.is_one_row = len(firsts) == len(self._row) and all(map(_is_same, firsts, self._row))
        if rows > 1 and self.is_one_row:
            self.is_one_row = bool((tables[0] == tables[0][:1]).all())

    @property
    def is_hollow(self) -> bool:
        """Whether all elements are NaN or infinite."""
        return not self._finite and any(self._bad.values())

    @property
    def number(self) -> str:
        """The constant value, as text."""
        if isinstance(self._number, np.str_ | str | bytes | np.bool_):
            return repr(
                self._number.item() if isinstance(self._number, np.generic) else self._number
            )
        value = (
            complex(self._number) if np.iscomplexobj(self._number) else complex(float(self._number))
        )
        return f"{value:.6g}" if value.imag else f"{value.real + 0.0:.6g}"  # -0 is 0

    @property
    def is_zero(self) -> bool:
        """Whether all elements are 0."""
        return self.is_one_number and self._number is not None and self.number == "0"

    def spell_bad(self, *, may_mask: bool) -> str | None:
        """Describe the non-finite elements and where they begin; None if there are none.
        `may_mask`: -inf at the same positions of all samples is a mask, not a fault.
        """
        kinds = [kind for kind, count in self._bad.items() if count]
        if not kinds:
            return None
        is_mask = self._is_mask and self._finite > 0
        if is_mask or (
            may_mask and self._is_masked_alike and self._mask_rows > 1 and not self.is_hollow
        ):
            return None
        total = sum(self._bad.values())
        more = f", and in {self._bad_rows - 1} more" if self._bad_rows > 1 else ""
        return f"{' and '.join(kinds)} in {self._first_bad}{more} ({total} of {self.count} numbers)"


class DataWatch:
    """Checks the inputs of a model."""

    def __init__(self) -> None:
        self.samples = 0
        self._inputs: dict[str, Watch] = {}

    def add(self, feeds: Mapping[str, Any], samples: int, origin: str) -> None:
        """Add one batch of feeds, in the model's types."""
        self.samples += samples
        for name, feed in feeds.items():
            self._inputs.setdefault(name, Watch()).add(feed, samples, origin)

    @property
    def is_repeated(self) -> bool:
        """Whether all samples are identical."""
        return (
            self.samples > 1
            and bool(self._inputs)
            and all(w.is_one_row for w in self._inputs.values())
        )

    def faults(self) -> tuple[str, ...]:
        """Reasons why the data allows no verdict, as text; empty if there are none."""
        if self.samples == 0:
            return NO_SAMPLE
        faults = [
            f"input {name!r} holds {bad}"
            for name, watch in self._inputs.items()
            if (bad := watch.spell_bad(may_mask=False)) is not None
        ]
        numbers = sum(watch.count for watch in self._inputs.values())
        if self._inputs and not numbers:
            faults.append("every input is empty")
        return tuple(faults)

    def spell_constant(self) -> str | None:
        """Describe the inputs if all are constant, within samples too; None if one varies."""
        watches = {name: watch for name, watch in self._inputs.items() if watch.count}
        if sum(watch.count for watch in watches.values()) < 2 or not all(
            w.is_one_number for w in watches.values()
        ):
            return None
        return ", ".join(f"{name!r} is {watch.number}" for name, watch in watches.items())


class AnswerWatch:
    """Checks the outputs of a reference."""

    def __init__(self) -> None:
        self._outputs: dict[str, Watch] = {}

    def add(self, answers: Mapping[str, Any], samples: int, origin: str) -> None:
        """Add the outputs of one batch."""
        for name, answer in answers.items():
            self._outputs.setdefault(name, Watch()).add(answer, samples, origin)

    def unknown(self, data: DataWatch, steady: frozenset[str] = frozenset()) -> dict[str, Unknown]:
        """Why outputs cannot be judged, by name. `steady`: outputs that do not depend on the data,
        and are judged even if constant.
        """
        by_output = {}
        for name, watch in self._outputs.items():
            unknown = _judge(watch, data, is_steady=name in steady)
            if unknown is not None:
                by_output[name] = unknown
        return by_output


def _judge(watch: Watch, data: DataWatch, *, is_steady: bool) -> Unknown | None:
    """Why an output cannot be judged; None if it can."""
    if not watch.count:
        return Unknown("is empty in every sample", True) if not is_steady else None
    if watch.is_hollow:
        return Unknown("is nothing but NaN and infinities in the reference", True)
    bad = watch.spell_bad(may_mask=True)
    if bad is not None:
        return Unknown(f"holds {bad} in the reference", False)
    if is_steady:
        return None
    if watch.is_zero:
        return Unknown("is zero everywhere in the reference", True)
    if watch.is_one_number and watch.count > 1:
        return Unknown(f"is {watch.number} everywhere in the reference", False)
    constant = data.spell_constant() if watch.is_one_row else None
    if constant is not None:
        return Unknown(
            f"never changes in the reference, as no input does: {constant} everywhere", False
        )
    if watch.is_one_row and watch.rows > 1 and not data.is_repeated:
        return Unknown(
            f"never changes in the reference, over {watch.rows} samples that differ", False
        )
    return None


def judge_noise(noise: float, floor: float, budget: float, error: float) -> Unknown | None:
    """Why an output with FP32 noise of `noise` cannot be judged at `error`; None if it can.

    Noise raises a budget only up to `MOST_NOISE`. An error between that budget and `floor`, where
    the noise would put it, may be noise or not. Outputs that are equal to the last bit are always
    the same.
    """
    if error == 0.0 or (noise < ALL_NOISE and not budget < error <= floor):
        return None
    moved = (
        f"moves by {noise:.2g} of itself"
        if math.isfinite(noise)
        else "breaks, or is not zero any more,"
    )
    because = (
        f"{moved} when the reference's numbers move by half a unit in the last place: it is noise"
    )
    return Unknown(because, noise >= ALL_NOISE)


def _parts(datum: Any) -> Iterator[Array]:
    """The arrays of a tensor, a sequence or an optional."""
    if isinstance(datum, list | tuple) and any(
        isinstance(part, np.ndarray | list | tuple) for part in datum
    ):
        for part in datum:
            yield from _parts(part)
    elif datum is not None:
        yield np.asarray(datum)


def _by_first_axis(part: Array) -> Array:
    return part.reshape(part.shape[0], -1) if part.ndim > 1 and part.size else part.reshape(1, -1)


def _has_rows(part: Array, samples: int) -> bool:
    return samples > 0 and part.ndim > 0 and part.shape[0] > 0 and part.shape[0] % samples == 0


def _is_float(values: Array) -> bool:
    return values.dtype.kind in "fc" or values.dtype.name.startswith(("bfloat", "float"))


def _is_same(array: Array, other: Array) -> bool:
    return array.shape == other.shape and bool((array == other).all())
