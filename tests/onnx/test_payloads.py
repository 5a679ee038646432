"""Numbers are rounded and measured as a plain computation would."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.onnx.files.files import from_proto
from mezzo.onnx.files.magnitudes import facts
from mezzo.onnx.protos.rounding import round_few, round_to


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("is_clamped", [False, True])
def test_rounding_keeps_specials_and_clamps_only_finite_numbers(dtype: DType, is_clamped: bool) -> None:
    numbers = [0.0, -0.0, 1.0, -np.inf, np.inf, 65519.0, 65520.0, -7e4, 3.4028234663852886e38, 1e-8, 6e-8, 1.00390625]
    values = np.array([*numbers, np.nan, -np.nan], np.float32)
    values = np.append(values, np.array([0x7F800001, 0xFF800001], np.uint32).view(np.float32))
    rounded = round_to(values, dtype, FORMATS[dtype].max_finite if is_clamped else None)
    wide = rounded.astype(np.float32)
    assert np.array_equal(np.isnan(wide), np.isnan(values))
    assert np.array_equal(np.signbit(wide), np.signbit(values))
    assert np.isinf(wide[3:5]).all()
    assert np.isinf(wide[8]) != is_clamped
    if dtype is DType.FLOAT16:
        assert wide[5] == 65504
        assert wide[7] == (-65504 if is_clamped else -np.inf)
    few = np.frombuffer(
        round_few(values.tobytes(), dtype, FORMATS[dtype].max_finite if is_clamped else None), rounded.dtype
    )
    numbers_only = ~np.isnan(wide)
    assert few[numbers_only].tobytes() == rounded[numbers_only].tobytes()
    assert np.isnan(few.astype(np.float32)[~numbers_only]).all()


def test_f64_rounds_once_to_bf16() -> None:
    # Just above the midpoint of two bf16 numbers by less than f32 can tell: rounding twice would go down to even.
    above = np.array([1 + 2.0**-8 + 2.0**-40, -(1 + 2.0**-8 + 2.0**-40), 1 + 2.0**-8, 1e300, np.nan, -np.inf, 1e-42])
    rounded = round_to(above, DType.BFLOAT16).astype(np.float64)
    assert rounded[:4].tolist() == [1 + 2.0**-7, -(1 + 2.0**-7), 1.0, np.inf]
    assert np.isnan(rounded[4])
    assert rounded[5] == -np.inf


def measured(values: np.ndarray) -> tuple[object, ...]:
    """What facts must say, computed the plain way."""
    wide = values.astype(np.float64).ravel()
    finite = np.abs(wide[np.isfinite(wide) & (wide != 0)])
    return (
        wide.size,
        finite.max() if finite.size else 0.0,
        finite.min() if finite.size else 0.0,
        bool(np.isinf(wide).any()),
        bool(np.isnan(wide).any()),
        bool((wide < 0).any()),
    )


@pytest.mark.parametrize("size", [0, 1, 3, 8, 9, 16, 17, 5000, 600_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "bfloat16"])
def test_facts_equal_a_plain_computation(size: int, dtype: str) -> None:
    numbers = np.random.default_rng(size).standard_normal(size) * 3
    for change in (
        {},
        {0: np.inf},
        {0: -np.inf},
        {0: np.nan},
        {0: -np.nan},
        {0: 0.0},
        {0: -0.0},
        {0: np.nan, -1: 5e-5},
    ):
        values = np.abs(numbers)
        for position, value in change.items() if size else ():
            values[position] = value
        values = values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        model = helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "w")]))
        source = from_proto(model)
        found = facts(source.model.graph.initializer[0], source.blobs)
        expected = measured(values)
        got = (found.elements, found.largest, found.smallest, found.has_infinity, found.has_nan, found.has_negative)
        assert got == expected, (dtype, size, change)
        assert (found.values is not None) == (size <= 8)
        if found.values is not None:
            assert np.array_equal(found.values, values.astype(np.float64), equal_nan=True)
