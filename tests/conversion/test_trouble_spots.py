"""Models with the magnitudes of reports of FP16 that went wrong; benchmarks/trouble_spots.py compares converters."""

import pytest
from trouble_models import ROWS, make_spot

import mezzo

_LARGEST_ERROR = 0.01  # relative L2: some 10 eps of FP16, what the reports' users would not notice


@pytest.mark.parametrize("name", ROWS)
def test_a_trouble_spot_is_right_on_unseen_data(name: str) -> None:
    spot = make_spot(name)
    converted = mezzo.convert(spot.model, data=list(spot.seen))
    compared = mezzo.compare(spot.model, converted.model, list(spot.unseen), max_error=_LARGEST_ERROR)
    assert [output.fault for output in compared.outputs if output.fault] == []
    assert compared.verdict.error.estimate <= _LARGEST_ERROR
