"""Power-of-two scales change no FP32 answer by a bit, over random graphs. ONNX's own operator tests, and many more
graphs, are in benchmarks/rescaling.py."""

import random

import numpy as np
import onnx
import onnx.parser
import pytest
from random_models import random_feeds, random_model
from scaled_models import answers, is_near_the_end, is_same, with_random_scales


@pytest.mark.parametrize("part", range(8))
def test_random_graphs_answer_the_same_with_any_scales(part: int) -> None:
    """If, Loop, Scan, sequences, functions, weights that several read, casts: whatever the generator makes."""
    scaled = 0
    for seed in range(part * 40, part * 40 + 40):
        rng = random.Random(seed)
        model = random_model(rng, rng.randint(5, 25))
        feeds = random_feeds(model, rng)
        try:
            expected = answers(model, feeds)
        except Exception:  # noqa: BLE001, what the runtime refuses shows nothing
            continue
        if is_near_the_end(model, expected):
            continue
        changed, exponents = with_random_scales(model, rng)
        onnx.checker.check_model(changed)
        assert is_same(expected, answers(changed, feeds)), (seed, exponents)
        scaled += bool(exponents)
    assert scaled > 15


_CAST_OUTPUT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y, float[2,2] z, float[2,2] h)
<float[2,2] w = {1, 2, 3, 4}, float[2,2] v = {1, 0, 0, 1}> {
    h = MatMul(x, w)
    y = Cast<to: int = 1>(h)
    z = MatMul(h, w)
}"""


def test_outputs_keep_their_names_and_values() -> None:
    """A value that is an output itself, another's source, and an output behind a Cast without effect."""
    model = onnx.parser.parse_model(_CAST_OUTPUT)
    feeds = {"x": np.array([[1, -2], [0.5, 3]], np.float32)}
    for seed in range(8):
        changed, exponents = with_random_scales(model, random.Random(seed))
        onnx.checker.check_model(changed)
        assert [port.name for port in changed.graph.output] == ["y", "z", "h"]
        assert is_same(answers(model, feeds), answers(changed, feeds)), exponents


def test_a_weight_is_scaled_in_place_and_copied_only_for_readers_that_disagree() -> None:
    """The first product's weight and the second's are one tensor."""
    model = onnx.parser.parse_model(_CAST_OUTPUT)
    for seed in range(8):
        changed, exponents = with_random_scales(model, random.Random(seed))
        weights = [tensor.name for tensor in changed.graph.initializer if tensor.name.startswith("w")]
        first, second = exponents.get("h", 0), exponents.get("z", 0) - exponents.get("h", 0)
        assert weights == (["w"] if first == second else ["w", "w_scaled"])
