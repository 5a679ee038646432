"""How OpenVINO's CPU casts FP32 to BF16, which a note of its target tells: to be taken back once it is mended."""

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx.parser
import pytest

from mezzo.plugins.discovery import target

openvino = pytest.importorskip("openvino", reason="openvino is not installed")

Floats = npt.NDArray[np.float32]


def cast(numbers: Floats, length: str) -> Floats:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{length}] x) => (float[{length}] y) '
        "{ b = Cast<to=16>(x)  y = Cast<to=1>(b) }"
    )
    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()), "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}
    )
    return np.array(compiled([numbers])[0])


def rounded_up_from_odd(numbers: Floats) -> Floats:
    bits = numbers.view(np.uint32)
    return ((bits + ((bits & 0x10000) >> 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def nearest_even(numbers: Floats) -> Floats:
    return numbers.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_a_cast_of_an_open_length_rounds_as_the_note_says_and_one_of_a_fixed_length_to_nearest() -> None:
    numbers = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    assert any("up only where the last digit that stays is odd" in note for note in target("openvino-cpu").notes)
    np.testing.assert_array_equal(cast(numbers, "4096"), nearest_even(numbers))
    np.testing.assert_array_equal(cast(numbers, "N"), rounded_up_from_odd(numbers))
    errors = [np.linalg.norm(numbers - low(numbers)) for low in (rounded_up_from_odd, nearest_even)]
    assert 1.5 < errors[0] / errors[1] < 1.7
