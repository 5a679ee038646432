"""Models that a careless conversion to FP16 ruins: comparing sees it, and data and a budget lead to right ones."""

import pytest
from trap_cases import TRAPS
from trap_models import Trap, blindly_converted

import mezzo

# A conversion of these small graphs that is right is off by tens of roundings of 2^-11; a wrong one by whole numbers.
BUDGET = 20 * 2.0**-11
SEEN, UNSEEN = 1, 2

every_trap = pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)


@every_trap
def test_naive_conversion_is_condemned_where_something_breaks(trap: Trap) -> None:
    model = trap.make_model()
    found = mezzo.compare(model, blindly_converted(model), trap.make_batches(UNSEEN), max_error=BUDGET)
    assert found.verdict.is_same is trap.is_harmless, found.verdict.because


@every_trap
def test_conversion_on_data_is_right_on_other_data(trap: Trap) -> None:
    model = trap.make_model()
    made = mezzo.convert(model, data=trap.make_batches(SEEN))
    found = mezzo.compare(model, made.model, trap.make_batches(UNSEEN), max_error=BUDGET)
    assert found.verdict.is_same, found.verdict.because


@every_trap
def test_tuned_conversion_is_right_on_other_data(trap: Trap) -> None:
    model = trap.make_model()
    made = mezzo.tune(model, data=trap.make_batches(SEEN), max_error=BUDGET)
    found = mezzo.compare(model, made.model, trap.make_batches(UNSEEN), max_error=BUDGET)
    assert found.verdict.is_same, found.verdict.because


def test_blind_conversion_leaves_no_fp32_behind() -> None:
    for trap in TRAPS:
        text = str(blindly_converted(trap.make_model()).graph)
        assert "data_type: 1\n" not in text and "elem_type: 1\n" not in text, trap.name
