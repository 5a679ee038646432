"""What a weight holds is read as numpy reads it, whatever it holds and however it lies."""

import math
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import numpy as np
import torch

from mezzo.aten.read.constants import describe, describe_sample

HELD: dict[str, Callable[[], torch.Tensor]] = {
    "normal": lambda: torch.randn(37, 53),
    "several pieces": lambda: torch.randn(3, 1 << 19),
    "zeros among them": lambda: torch.randn(64, 64).relu(),
    "zeros": lambda: torch.zeros(5, 7),
    "minus zero": lambda: torch.full((9,), -0.0),
    "whole": lambda: torch.arange(-40.0, 41.0),
    "whole but the last": lambda: torch.cat([torch.arange(99.0), torch.tensor([0.5])]),
    "infinite": lambda: torch.tensor([1.0, math.inf, -2.0]),
    "nothing finite": lambda: torch.tensor([math.inf, -math.inf]),
    "no number": lambda: torch.tensor([1.0, math.nan, -2.0, 0.0]),
    "subnormal": lambda: torch.tensor([1e-41, -3e-40, 1.0]),
    "tiny": lambda: torch.full((700,), 1e-30),
    "huge": lambda: torch.full((700,), -1e30),
    "the largest": lambda: torch.full((4, 4), torch.finfo(torch.float32).max),
    "transposed": lambda: torch.randn(12, 31).t(),
    "every other": lambda: torch.randn(40, 10)[::2, 1::3],
    "one": lambda: torch.tensor(-3.25),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_said_of_numbers_is_what_they_are(name: str) -> None:
    torch.manual_seed(7)
    numbers = HELD[name]()
    told = describe(numbers)
    plain = numbers.numpy().astype(np.float64).ravel()
    finite = plain[np.isfinite(plain)]
    sizes = np.abs(finite[finite != 0])
    assert told.elements == plain.size
    assert (told.has_infinity, told.has_nan) == (bool(np.isinf(plain).any()), bool(np.isnan(plain).any()))
    assert (told.largest, told.smallest) == (sizes.max(initial=0.0), sizes.min() if sizes.size else 0.0)
    assert (told.minimum, told.maximum) == ((finite.min(), finite.max()) if finite.size else (0.0, 0.0))
    assert told.has_negative == bool((finite < 0).any())
    assert told.is_whole == bool(finite.size and (finite == np.round(finite)).all())
    # Sums in FP32 of pieces of 2^18 numbers, sixteen lanes each: at most 2^14 roundings of 2^-24 one behind the other.
    bound = 2.0**-10 * (np.abs(finite).sum() + 1e-300)
    assert abs(told.mean * max(finite.size, 1) - finite.sum()) <= bound
    assert told.rms == pytest.approx(np.sqrt(np.mean(finite**2)) if finite.size else 0.0, rel=2.0**-10)


SPECIAL: dict[str, Callable[[], torch.Tensor]] = {
    "a mask": lambda: torch.full((512, 512), -1e9).triu(1),
    "a mask by columns": lambda: torch.cat([torch.zeros(4096, 32), torch.full((4096, 1), -1e9)], 1),
    "whole": lambda: torch.arange(100_000.0).reshape(100, -1),
    "of one magnitude": lambda: torch.full((70_000,), 0.1),
    "infinite": lambda: torch.full((300, 300), -math.inf).triu(1),
    "tiny": lambda: torch.randn(70_000) * 1e-30,
    "few": lambda: torch.randn(100),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers_are_looked_at_one_and_all(name: str) -> None:
    torch.manual_seed(3)
    numbers = SPECIAL[name]()
    assert describe_sample(numbers) == describe(numbers)


def test_sample_of_plain_numbers_tells_their_size() -> None:
    torch.manual_seed(3)
    numbers = torch.randn(700, 700) * 0.02 + 0.01
    told, exact = describe_sample(numbers), describe(numbers)
    assert told.elements == exact.elements and told.largest <= exact.largest and told.has_negative
    # Of 2^15 independent numbers a mean errs by 2^-7.5 deviations; four times that is not chance.
    assert abs(told.mean - exact.mean) <= 2.0**-5.5 * 0.02
    assert told.rms == pytest.approx(exact.rms, rel=2.0**-5.5)
