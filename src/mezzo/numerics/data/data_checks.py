"""What data cannot tell: inputs that hold no numbers or never change, answers of the reference that say nothing."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Noise raises a budget up to this: answers farther off than a tenth are not to pass as the same.
MOST_NOISE = 0.1
# Answers that FP32 itself moves by this share are noise altogether.
ALL_NOISE = 0.5


# What is wrong with data that holds nothing at all.
NO_SAMPLE = ("the data holds no sample",)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why an output cannot be judged. `is_blind`: none of its numbers shows anything, not even an error."""

    because: str
    is_blind: bool


class Watch:
    """Looks at one input or output over batches. Arrays may be any, in lists too; None is an empty optional."""

    def __init__(self) -> None:
        self.count = 0  # of numbers, truth values or texts
        self.rows = 0
        self._bad = dict.fromkeys(("NaN", "infinities"), 0)
        self._first_bad: str | None = None
        self._bad_rows = 0
        self._finite = 0
        self._is_mask = True  # but for -inf, nothing but 0
        self._masked: Array | None = None  # places of the first row that are -inf
        self._is_masked_alike, self._mask_rows = True, 0
        self._number: Any = None
        self.is_one_number = True
        self._row: list[Array] | None = None
        self.is_one_row = True

    def add(self, datum: Any, samples: int, origin: str) -> None:
        """Look at one batch. Where an array's first axis has one entry per sample, each is looked at on its own."""
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
        """See whether -inf stands in the same places of all rows, and nothing else is not finite."""
        if not self._is_masked_alike or not _is_float(table) or not table.size:
            return
        is_below = table == -np.inf
        self._masked = is_below[0] if self._masked is None else self._masked
        self._is_masked_alike = self._masked.shape == is_below.shape[1:] and bool((is_below == self._masked).all())
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
        """Whether it held nothing but NaN and infinities."""
        return not self._finite and any(self._bad.values())

    @property
    def number(self) -> str:
        """The number that it held everywhere, in words."""
        if isinstance(self._number, np.str_ | str | bytes | np.bool_):
            return repr(self._number.item() if isinstance(self._number, np.generic) else self._number)
        value = complex(self._number) if np.iscomplexobj(self._number) else complex(float(self._number))
        return f"{value:.6g}" if value.imag else f"{value.real + 0.0:.6g}"  # -0 is 0

    @property
    def is_zero(self) -> bool:
        """Whether it is a number, and 0 everywhere."""
        return self.is_one_number and self._number is not None and self.number == "0"

    def spell_bad(self, *, may_mask: bool) -> str | None:
        """What it held that is not finite, and where first; None if nothing. `may_mask`: -inf in the same places of all
        samples says which places do not count, and is no number gone wrong."""
        kinds = [kind for kind, count in self._bad.items() if count]
        if not kinds:
            return None
        is_mask = self._is_mask and self._finite > 0
        if is_mask or (may_mask and self._is_masked_alike and self._mask_rows > 1 and not self.is_hollow):
            return None
        total = sum(self._bad.values())
        more = f", and in {self._bad_rows - 1} more" if self._bad_rows > 1 else ""
        return f"{' and '.join(kinds)} in {self._first_bad}{more} ({total} of {self.count} numbers)"


class DataWatch:
    """Looks at what a model is fed."""

    def __init__(self) -> None:
        self.samples = 0
        self._inputs: dict[str, Watch] = {}

    def add(self, feeds: Mapping[str, Any], samples: int, origin: str) -> None:
        """Look at one batch, in the types that the model takes."""
        self.samples += samples
        for name, feed in feeds.items():
            self._inputs.setdefault(name, Watch()).add(feed, samples, origin)

    @property
    def is_repeated(self) -> bool:
        """Whether all samples are one and the same."""
        return self.samples > 1 and bool(self._inputs) and all(w.is_one_row for w in self._inputs.values())

    def faults(self) -> tuple[str, ...]:
        """Why nothing can be told from the data, in words; empty where something can."""
        if self.samples == 0:
            return NO_SAMPLE
        told = [
            f"input {name!r} holds {bad}"
            for name, watch in self._inputs.items()
            if (bad := watch.spell_bad(may_mask=False)) is not None
        ]
        numbers = sum(watch.count for watch in self._inputs.values())
        if self._inputs and not numbers:
            told.append("every input is empty")
        return tuple(told)

    def spell_constant(self) -> str | None:
        """What the inputs are where none ever changes, not even within a sample; None where one does."""
        watches = {name: watch for name, watch in self._inputs.items() if watch.count}
        if sum(watch.count for watch in watches.values()) < 2 or not all(w.is_one_number for w in watches.values()):
            return None
        return ", ".join(f"{name!r} is {watch.number}" for name, watch in watches.items())


class AnswerWatch:
    """Looks at what a reference answers."""

    def __init__(self) -> None:
        self._outputs: dict[str, Watch] = {}

    def add(self, answers: Mapping[str, Any], samples: int, origin: str) -> None:
        """Look at the answers to one batch."""
        for name, answer in answers.items():
            self._outputs.setdefault(name, Watch()).add(answer, samples, origin)

    def unknown(self, data: DataWatch, steady: frozenset[str] = frozenset()) -> dict[str, Unknown]:
        """Why outputs cannot be judged, by name. `steady` are those that no number of the data reaches: they are what
        they are, whatever the data, and judged as they are."""
        by_output = {}
        for name, watch in self._outputs.items():
            unknown = _judge(watch, data, is_steady=name in steady)
            if unknown is not None:
                by_output[name] = unknown
        return by_output


def _judge(watch: Watch, data: DataWatch, *, is_steady: bool) -> Unknown | None:
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
        return Unknown(f"never changes in the reference, as no input does: {constant} everywhere", False)
    if watch.is_one_row and watch.rows > 1 and not data.is_repeated:
        return Unknown(f"never changes in the reference, over {watch.rows} samples that differ", False)
    return None


def judge_noise(noise: float, floor: float, budget: float, error: float) -> Unknown | None:
    """Whether an output that FP32 itself moves by `noise` can be judged at an error.

    Between the budget, which noise raises so far and no further, and `floor`, what it would have to be raised to,
    nobody knows. Answers that are equal to the last bit are the same, however they came about.
    """
    if error == 0.0 or (noise < ALL_NOISE and not budget < error <= floor):
        return None
    moved = f"moves by {noise:.2g} of itself" if math.isfinite(noise) else "breaks, or is not zero any more,"
    because = f"{moved} when the reference's numbers move by half a unit in the last place: it is noise"
    return Unknown(because, noise >= ALL_NOISE)


def _parts(datum: Any) -> Iterator[Array]:
    """The arrays of a tensor, a sequence or an optional."""
    if isinstance(datum, list | tuple) and any(isinstance(part, np.ndarray | list | tuple) for part in datum):
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


def _is_same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((one == other).all())
