"""What weights hold, looked at when somebody asks."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from mezzo.aten.program import Held
from mezzo.aten.read.retype import without_python_dispatcher
from mezzo.ir.graph import ConstantFacts

_FEW = 8  # numbers that are kept whole
_PIECE = 1 << 18  # numbers looked at at once: a cache holds them
_FAINT = 2.0**-10  # far below the root mean square
_SAMPLE = 1 << 12
_STRETCHES, _STRETCH = 64, 512
_SAFE = (1e-12, 1e12)  # magnitudes of which FP32 adds up a piece's squares


class Constants(Mapping[int, ConstantFacts]):
    """Facts by value id, of weights in FP32 whose numbers are at hand. Of large ones they are those of a sample where
    `is_sampled`, as nothing hangs on the largest number where a format reaches as far as FP32.
    """

    def __init__(
        self,
        held: Mapping[int, Held],
        numbers: Mapping[int, float],
        elements: Mapping[int, int],
        *,
        is_sampled: bool,
    ) -> None:
        self._describe = describe_sample if is_sampled else describe
        self._numbers = {
            value: tensor
            for value, one in held.items()
            if one.tensor is not None and _is_readable(tensor := one.tensor())
        }
        self._known = {value: describe_number(number, elements[value]) for value, number in numbers.items()}
        self._order: tuple[int, ...] = (*self._numbers, *self._known)

    def __getitem__(self, value: int) -> ConstantFacts:
        if value not in self._known:
            numbers = self._numbers[value]
            with unset_fake_temporarily(), without_python_dispatcher():  # a compiler may be tracing
                self._known[value] = self._describe(numbers)
        return self._known[value]

    def release(self) -> None:
        """Let the numbers go. What nobody has asked about is not known any more."""
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
    """What a tensor holds that is one number everywhere."""
    is_finite = math.isfinite(number)
    held = number if is_finite else 0.0
    return ConstantFacts(
        elements=elements,
        largest=abs(held),
        smallest=abs(held),
        has_infinity=math.isinf(number),
        has_nan=math.isnan(number),
        has_negative=held < 0,
        values=(number,) * elements if elements <= _FEW else None,
        mean=held,
        rms=abs(held),
        minimum=held,
        maximum=held,
        is_whole=is_finite and held.is_integer(),
    )


def describe_sample(numbers: torch.Tensor) -> ConstantFacts:
    """What FP32 numbers of any shape hold, by stretches of them that lie evenly apart; by all of them where they are
    few, or where those are special: whole, of one magnitude, not finite, very large or small.
    """
    count = numbers.numel()
    if count <= _STRETCHES * _STRETCH:
        return describe(numbers)
    rows = numbers.detach().reshape(-1)[: count // _STRETCHES * _STRETCHES].view(_STRETCHES, -1)
    found = describe(rows[:, :_STRETCH])
    low, high = _SAFE
    is_special = found.is_whole or found.has_infinity or found.has_nan or found.smallest == found.largest
    return describe(numbers) if is_special or not low < found.largest < high else found._replace(elements=count)


def describe(numbers: torch.Tensor) -> ConstantFacts:
    """What FP32 numbers of any shape hold. They are read a piece at a time."""
    flat = numbers.detach().reshape(-1)
    total, squares, largest, smallest = 0.0, 0.0, 0.0, float("inf")
    lowest, highest, finite_count = float("inf"), -float("inf"), 0
    has_infinity = has_nan = False
    is_whole = True
    room = torch.empty(min(_PIECE, flat.numel()))
    for start in range(0, flat.numel(), _PIECE):
        piece = flat[start : start + _PIECE].to("cpu")
        finite, (low, high) = piece, (float(end) for end in torch.aminmax(piece))
        if not (math.isfinite(low) and math.isfinite(high)):  # picking copies, which takes longest here
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
        smallest = min(smallest, _smallest(finite, room))
        is_whole = is_whole and all(map(float.is_integer, finite[:_FEW].tolist())) and _are_whole(finite)
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
    """The sum of a piece and that of its squares, in FP32 where nothing passes its range or falls below it."""
    low, high = _SAFE
    if not low < largest < high:
        finite = finite.double()
    return float(finite.sum()), float(torch.dot(finite, finite))


def _smallest(finite: torch.Tensor, room: torch.Tensor) -> float:
    """The smallest magnitude but zero; infinite where there is none. `room` has as many places, and is written."""
    sizes = torch.abs(finite, out=room[: finite.numel()])
    least = float(sizes.min())
    if least > 0.0:
        return least
    sizes = sizes[sizes > 0]
    return float(sizes.min()) if sizes.numel() else math.inf


def _are_whole(finite: torch.Tensor) -> bool:
    return bool((finite == finite.round()).all())


def _faint(flat: torch.Tensor, rms: float, *, is_finite: bool) -> float | None:
    """The magnitude that a quarter of the numbers, zeros apart, stay below, where it is far below `rms`: of an even
    sample.
    """
    step = max(1, flat.numel() // _SAMPLE)
    sampled = flat[::step].to("cpu").abs()
    if is_finite and int((sampled <= _FAINT * rms).sum()) <= sampled.numel() // 4:
        return None  # nor without the zeros among them
    sizes = sampled.double()
    sizes = sizes[(sizes > 0) & torch.isfinite(sizes)]
    if not sizes.numel():
        return None
    quarter = float(sizes.kthvalue(sizes.numel() // 4 + 1).values)
    return quarter if quarter < _FAINT * rms else None
