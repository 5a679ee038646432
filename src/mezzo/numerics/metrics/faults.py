"""Fault detection: NaN, infinities, zeros or constants that the reference lacks."""

import math
from array import array

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import Format
from mezzo.numerics.metrics.decisions import kept_share

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# A sample far smaller than the others may round to zero or a constant unnoticed: samples below this
# fraction of the root mean square over samples are skipped.
NOTICED = 1e-2
# Fewer elements may be equal by chance, or all zero after a Relu.
_TELLING = 16
# A value that spans no more units in the last place than this may become constant by rounding
# alone: a few roundings move each number by half a unit.
_SPAN_ULP = 8.0


class Faults:
    """Collects faults of one value. Each batch comes as row blocks between `begin` and `end`."""

    def __init__(self, fmt: Format) -> None:
        self._format = fmt
        self._first: str | None = None  # first mismatch of shape or kind
        self._counts = dict.fromkeys(_WORDS, 0)  # samples, by kind
        self._unequal = self._compared = self._varied = 0
        self._flags: dict[str, Flags] = {}
        self._spans = np.empty((4, 0))
        self._elements = np.zeros(0, np.int64)
        self._whole_span = _no_span(1)
        self._suspects: dict[str, array[int]] = {"zero": array("q"), "constant": array("q")}
        self._samples = 0

    def note(self, fault: str) -> None:
        """Store a mismatch of shape or kind; the first one is reported."""
        self._first = self._first or fault

    def note_shape(self, want: tuple[int, ...], found: tuple[int, ...]) -> None:
        """Two arrays of different shapes."""
        self.note(f"shape {list(found)} where the reference has {list(want)}")

    def note_unequal(self, differing: int, compared: int, varied: int = 0) -> None:
        """Count differing integers, booleans or texts. `varied`: how many labels are not the most
        common one; a fraction of these may differ.
        """
        self._unequal += differing
        self._compared += compared
        self._varied += varied

    @property
    def spared(self) -> str | None:
        """The labels that differ, if they are few enough to be tolerated, as text."""
        is_spared = 0 < self._unequal <= (1.0 - kept_share(self._format)) * self._varied
        return f"{self._unequal} of {self._compared} labels are others" if is_spared else None

    def begin(self, units: int) -> None:
        """Start a batch of `units` samples."""
        self._flags = {kind: np.zeros(units, bool) for kind in _WORDS}
        self._spans = _no_span(units)
        self._elements = np.zeros(units, np.int64)

    def add(self, want: Floats, found: Floats, usable: Flags, rows: slice) -> None:
        """Add a block of a batch. `usable`: where both are finite. `rows`: the block's samples
        within the batch.
        """
        finite = np.isfinite(want)
        is_whole = bool(usable.all())
        if not is_whole:
            self._add_nonfinite(want, found, finite, rows)
        self._elements[rows] += want.shape[1]
        spans = self._spans[:, rows]
        for at, values in ((0, want), (2, found)):
            low, high = (
                (values, values)
                if is_whole
                else (np.where(usable, values, end) for end in (np.inf, -np.inf))
            )
            np.minimum(spans[at], low.min(axis=1), out=spans[at])
            np.maximum(spans[at + 1], high.max(axis=1), out=spans[at + 1])

    def _add_nonfinite(self, want: Floats, actual: Floats, finite: Flags, rows: slice) -> None:
        nan, want_nan = np.isnan(actual), np.isnan(want)
        infinite = np.isinf(actual)
        self._flags["NaN"][rows] |= (nan & ~want_nan).any(axis=1)
        self._flags["infinite"][rows] |= (infinite & (finite | want_nan)).any(axis=1)
        self._flags["sign"][rows] |= (infinite & np.isinf(want) & (want != actual)).any(axis=1)
        self._flags["finite"][rows] |= (np.isfinite(actual) & ~finite).any(axis=1)

    def end(self) -> None:
        """Finish the batch."""
        for kind, flags in self._flags.items():
            self._counts[kind] += int(np.count_nonzero(flags))
        low, high, found_low, found_high = self._spans
        is_flat = (found_low == found_high) & (self._elements >= _TELLING)
        is_zero = is_flat & (found_low == 0)
        zero = is_zero & (np.maximum(-low, high) > 0)
        constant = is_flat & ~zero & self._spreads(low, high)
        for kind, flags in (("zero", zero), ("constant", constant)):
            self._suspects[kind].extend((np.flatnonzero(flags) + self._samples).tolist())
        self._samples += len(low)
        whole = self._whole_span
        for at, pick in enumerate((np.min, np.max, np.min, np.max)):
            whole[at, 0] = pick([whole[at, 0], *(self._spans[at] if len(low) else ())])

    def find_broken(self) -> str | None:
        """Faults that rounding cannot cause, as text: shapes, integers, NaN, infinities."""
        return "; ".join(self._broken()) or None

    @property
    def is_exact(self) -> bool:
        """Whether the value holds integers, booleans or text."""
        return self._compared > 0

    def _broken(self) -> list[str]:
        faults = [self._first] if self._first else []
        if self._unequal and self.spared is None:
            share = (
                f"labels are others, and of those that vary {100 * kept_share(self._format):g} %"
                " have to stay"
            )
            rule = share if self._varied else "elements differ, and only equal ones are right"
            faults.append(f"{self._unequal} of {self._compared} {rule}")
        faults += [
            f"{words} in {_share(self._counts[kind], self._samples)}"
            for kind, words in _WORDS.items()
            if self._counts[kind]
        ]
        return faults

    def find(self, wholes: Floats, *, is_zero_reference: bool, largest: float) -> str | None:
        """All faults as text, the gravest first; None if there are none. `wholes`: squared norms of
        the reference per sample.
        """
        faults = self._broken()
        if is_zero_reference and not self._compared:
            faults.append(f"the reference is all zero, and this is up to {largest:.3g}")
        low, high, found_low, found_high = self._whole_span[:, 0]
        if found_low == found_high == 0 and max(-low, high) > 0:
            faults.append("all zero, and the reference is not")
        elif found_low == found_high and bool(self._spreads(np.array([low]), np.array([high]))[0]):
            faults.append(f"constant ({found_low:.6g} everywhere), and the reference is not")
        else:
            faults += self._find_flat_samples(wholes)
        if not faults and largest > 0 and not math.isfinite(math.fsum(wholes)):
            faults.append("too large to be measured: squares pass what FP64 holds")
        return "; ".join(faults) or None

    def _find_flat_samples(self, wholes: Floats) -> list[str]:
        least = NOTICED**2 * float(wholes.mean()) if len(wholes) else 0.0
        faults = []
        for kind, words in (("zero", "all zero"), ("constant", "constant")):
            suspects = np.frombuffer(self._suspects[kind], np.int64)
            count = int(np.count_nonzero(wholes[suspects] >= least)) if len(suspects) else 0
            if count:
                faults.append(
                    f"{words} in {_share(count, self._samples)}, where the reference is not"
                )
        return faults

    def _spreads(self, low: Floats, high: Floats) -> Flags:
        """Whether a span from `low` to `high` is wider than a rounded constant has."""
        with np.errstate(all="ignore"):
            magnitude = np.maximum(
                np.maximum(np.abs(low), np.abs(high)), self._format.smallest_normal
            )
            spread: Flags = high - low > _SPAN_ULP * np.ldexp(
                self._format.eps, np.frexp(magnitude)[1] - 1
            )
        return spread


# Kinds of unexpected elements around NaN and infinity, with their descriptions.
_WORDS = {
    "NaN": "NaN that the reference does not have",
    "infinite": "infinities that the reference does not have",
    "sign": "infinities of the other sign",
    "finite": "finite numbers where the reference is NaN or infinite",
}


def _no_span(units: int) -> Floats:
    """Initial minima and maxima, of the reference and of the candidate."""
    return np.repeat(np.array([np.inf, -np.inf, np.inf, -np.inf])[:, None], units, axis=1)


def _share(count: int, samples: int) -> str:
    return f"{count} of {samples} sample{'' if samples == 1 else 's'}"
