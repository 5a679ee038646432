"""The smallest failing part of a sequence: one element in few tries, several as a whole."""

import math
import random

import pytest
from sweeps import swept

from mezzo.evaluate.kernels.delta_debugging import Part, minimize


def _closed(part: object) -> Part:
    return tuple(sorted(part))  # type: ignore[call-overload]


@pytest.mark.parametrize("seed", range(swept(30)))
def test_one_faulty_element_is_found_in_few_tries(seed: int) -> None:
    rng = random.Random(seed)
    length = rng.randint(1, 1000)
    faulty, tried = rng.randrange(length), list[Part]()

    def fails(part: Part) -> bool:
        tried.append(part)
        return faulty in part

    assert minimize(tuple(range(length)), _closed, fails) == (faulty,), seed
    assert len(tried) <= 2 * math.ceil(math.log2(length + 1)), seed


@pytest.mark.parametrize("seed", range(swept(30)))
def test_elements_that_fail_only_together_are_found_together(seed: int) -> None:
    rng = random.Random(seed)
    length = rng.randint(2, 60)
    faulty = set(rng.sample(range(length), rng.randint(2, min(4, length))))
    assert minimize(tuple(range(length)), _closed, lambda part: faulty <= {*part}) == _closed(faulty), seed


def test_first_of_several_faults_is_found() -> None:
    assert minimize(tuple(range(64)), _closed, lambda part: not {9, 40}.isdisjoint(part)) == (9,)


def test_no_part_is_tried_that_is_not_closed() -> None:
    def convex(part: object) -> Part:
        elements = _closed(part)
        return tuple(range(elements[0], elements[-1] + 1)) if elements else ()

    def fails(part: Part) -> bool:
        assert part == convex(part)
        return {3, 7} <= {*part}

    assert minimize(tuple(range(20)), convex, fails) == (3, 4, 5, 6, 7)
