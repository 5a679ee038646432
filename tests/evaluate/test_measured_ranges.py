"""Ranges of random models equal what running the models with all values as outputs shows."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
import pytest
from random_models import random_feeds, random_model
from sweeps import swept

from mezzo.api.ranges import ranges
from mezzo.onnx.schema.value_types import value_types


def evaluate(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Every float value of the main graph, functions inlined, by running the model with all of them as outputs."""
    full = onnx.ModelProto()
    full.CopyFrom(onnx.inliner.inline_local_functions(model) if model.functions else model)
    types = value_types(full).types
    made = [name for node in full.graph.node if node.op_type != "Constant" for name in node.output]
    names = [name for name in made if types.get(name) == "tensor(float)"]
    del full.graph.output[:]
    full.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(full.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(None, dict(feeds)), strict=True))


@pytest.mark.parametrize("seed", range(swept(25)))
def test_random_models_have_the_extremes_that_running_them_shows(seed: int) -> None:
    """Engines fuse other operators when other values are outputs, and these models add up at most a few thousand
    roundings: 4096 eps of the largest magnitude.
    """
    model = random_model(random.Random(seed), 12, is_tame=True)
    feeds = random_feeds(model, random.Random(seed))
    expected = evaluate(model, feeds)
    found = {held.value: held for held in ranges(model, [feeds]).values}
    common = found.keys() & expected.keys()
    assert len(common) >= len(expected) // 2, f"seed {seed}"
    for name in common:
        numbers, held = expected[name], found[name]
        slack = 4096 * 2.0**-23 * max(np.abs(numbers).max(), 1.0)
        assert abs(held.minimum - numbers.min()) <= slack, f"seed {seed}, {name}"
        assert abs(held.maximum - numbers.max()) <= slack, f"seed {seed}, {name}"
        assert held.count == numbers.size, f"seed {seed}, {name}"
