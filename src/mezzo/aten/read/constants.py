"""Statistics of weights (range, mean, RMS, special values), computed on demand."""

import math
from collections.abc import Iterator, Mapping

import torch

from mezzo.aten.program import ProgramTensor
from mezzo.aten.torch_internals import FakeTensor, unset_fake_temporarily, without_python_dispatcher
from mezzo.ir.graph import ConstantFacts

_FEW = 8  # tensors of up to this many elements keep all their values
_PIECE = 1 << 18  # elements per chunk, which fits in the CPU's cache
_FAINT = 2.0**-10  # ratio to the RMS below which magnitudes count as faint
_SAMPLE = 1 << 12
_STRETCHES, _STRETCH = 64, 512
_SAFE = (1e-12, 1e12)  # magnitudes whose squares FP32 can sum over a chunk


class Constants(Mapping[int, ConstantFacts]):
    """Statistics of available FP32 weights, by value id. With `is_sampled`, statistics of large
    weights come from a sample: the exact maximum does not matter when the low format has FP32's
    exponent range.
    """

    def __init__(
        self,
        held: Mapping[int, ProgramTensor],
        numbers: Mapping[int, float],
        elements: Mapping[int, int],
        *,
        is_sampled: bool,
    ) -> None:
        self._describe = describe_sample if is_sampled else describe
        self._numbers = {
            value: weight
            for value, source in held.items()
            if source.tensor is not None and _is_readable(weight := source.tensor())
        }
        self._exponents = {v: source.exponent for v, source in held.items() if source.exponent}
        self._known = {
            value: describe_number(number, elements[value]) for value, number in numbers.items()
        }
        self._order: tuple[int, ...] = (*self._numbers, *self._known)

    def __getitem__(self, value: int) -> ConstantFacts:
        if value not in self._known:
            numbers = self._numbers[value]
            with unset_fake_temporarily(), without_python_dispatcher():  # a compiler may be tracing
                facts = self._describe(numbers)
            self._known[value] = facts.times_two_to_the(self._exponents.get(value, 0))
        return self._known[value]

    def release(self) -> None:
        """Drop the references to weights; statistics not yet computed become unavailable."""
        self._numbers = {}
        self._order = tuple(self._known)

    def __contains__(self, value: object) -> bool:
        return value in self._known or value in self._numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _is_readable(numbers: torch.Tensor) -> bool:
    is_real = not isinstance(numbers, FakeTensor) and numbers.device.type != "meta"
    return is_real and numbers.dtype is torch.float32 and numbers.numel() > 0


def describe_number(number: float, elements: int) -> ConstantFacts:
    """Statistics of a tensor whose elements all equal `number`."""
    is_finite = math.isfinite(number)
    value = number if is_finite else 0.0
    return ConstantFacts(
        elements=elements,
        largest=abs(value),
        smallest=abs(value),
        has_infinity=math.isinf(number),
        has_nan=math.isnan(number),
        has_negative=value < 0,
        values=(number,) * elements if elements <= _FEW else None,
        mean=value,
        rms=abs(value),
        minimum=value,
        maximum=value,
        is_whole=is_finite and value.is_integer(),
    )


def describe_sample(numbers: torch.Tensor) -> ConstantFacts:
    """Statistics of an FP32 tensor, estimated from evenly spaced blocks. Uses all elements for
    small tensors and for special ones: integer-valued, of constant magnitude, non-finite, very
    large or very small.
    """
    count = numbers.numel()
    if count <= _STRETCHES * _STRETCH:
        return describe(numbers)
    rows = numbers.detach().reshape(-1)[: count // _STRETCHES * _STRETCHES].view(_STRETCHES, -1)
    sample = describe(rows[:, :_STRETCH])
    low, high = _SAFE
    is_special = (
        sample.is_whole
        or sample.has_infinity
        or sample.has_nan
        or sample.smallest == sample.largest
    )
    return (
        describe(numbers)
        if is_special or not low < sample.largest < high
        else sample._replace(elements=count)
    )


def describe(numbers: torch.Tensor) -> ConstantFacts:
    """Statistics of an FP32 tensor of any shape, computed chunk by chunk."""
    flat = numbers.detach().reshape(-1)
    total, squares, largest, smallest = 0.0, 0.0, 0.0, float("inf")
    lowest, highest, finite_count = float("inf"), -float("inf"), 0
    has_infinity = has_nan = False
    is_whole = True
    buffer = torch.empty(min(_PIECE, flat.numel()))
    for start in range(0, flat.numel(), _PIECE):
        piece = flat[start : start + _PIECE].to("cpu")
        finite, (low, high) = piece, (float(end) for end in torch.aminmax(piece))
        # The slow path: boolean indexing copies.
        if not (math.isfinite(low) and math.isfinite(high)):
            has_infinity = has_infinity or bool(torch.isinf(piece).any())
            has_nan = has_nan or bool(torch.isnan(piece).any())
            finite = piece[torch.isfinite(piece)]
            if not finite.numel():
                continue
            low, high = (float(end) for end in torch.aminmax(finite))
        lowest, highest, largest = min(lowest, low), max(highest, high), max(largest, -low, high)
        sums = _sums(finite, max(-low, high))
        total, squares = total + sums[0], squares + sums[1]
        finite_count += finite.numel()
        smallest = min(smallest, _smallest(finite, buffer))
        is_whole = (
            is_whole and all(map(float.is_integer, finite[:_FEW].tolist())) and _are_whole(finite)
        )
    rms = (squares / finite_count) ** 0.5 if finite_count else 0.0
    return ConstantFacts(
        elements=flat.numel(),
        largest=largest,
        smallest=smallest if largest else 0.0,
        has_infinity=has_infinity,
        has_nan=has_nan,
        has_negative=lowest < 0,
        values=tuple(flat.to(torch.float64).tolist()) if flat.numel() <= _FEW else None,
        mean=total / finite_count if finite_count else 0.0,
        rms=rms,
        minimum=lowest if finite_count else 0.0,
        maximum=highest if finite_count else 0.0,
        faint=_faint(flat, rms, is_finite=finite_count == flat.numel()),
        is_whole=is_whole and finite_count > 0,
    )


def _sums(finite: torch.Tensor, largest: float) -> tuple[float, float]:
    """The sum of a chunk and of its squares; FP64 only where FP32 could over- or underflow."""
    low, high = _SAFE
    if not low < largest < high:
        finite = finite.double()
    return float(finite.sum()), float(torch.dot(finite, finite))


def _smallest(finite: torch.Tensor, room: torch.Tensor) -> float:
    """The smallest nonzero magnitude, or infinity; `room` is scratch memory as large."""
    sizes = torch.abs(finite, out=room[: finite.numel()])
    least = float(sizes.min())
    if least > 0.0:
        return least
    sizes = sizes[sizes > 0]
    return float(sizes.min()) if sizes.numel() else math.inf


def _are_whole(finite: torch.Tensor) -> bool:
    return bool((finite == finite.round()).all())


def _faint(flat: torch.Tensor, rms: float, *, is_finite: bool) -> float | None:
    """The lower quartile of nonzero magnitudes if far below `rms`, else None; sampled evenly."""
    step = max(1, flat.numel() // _SAMPLE)
    sampled = flat[::step].to("cpu").abs()
    if is_finite and int((sampled <= _FAINT * rms).sum()) <= sampled.numel() // 4:
        return None  # excluding zeros could only raise the quartile
    sizes = sampled.double()
    sizes = sizes[(sizes > 0) & torch.isfinite(sizes)]
    if not sizes.numel():
        return None
    quarter = float(sizes.kthvalue(sizes.numel() // 4 + 1).values)
    return quarter if quarter < _FAINT * rms else None
