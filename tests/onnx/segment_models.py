"""Models that are cut, and ways to run them: in one piece, and in segments."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from switch_models import is_same

from mezzo.common.errors import ContractError
from mezzo.common.memory import MemoryLimit
from mezzo.contracts.segments import Course, Segment, crossing_bytes
from mezzo.onnx.run import segmented
from mezzo.onnx.run.runtime import EMULATING, JUDGING, MEASURING, NATIVE, SessionSettings
from mezzo.onnx.run.segmented import Uncuttable, cut_model
from mezzo.onnx.run.session import Engine, Session

WAYS = (JUDGING, NATIVE, EMULATING, MEASURING)
Feeds = Mapping[str, Any]


def in_one_piece(model: onnx.ModelProto, feeds: list[Feeds], how: SessionSettings) -> list[Mapping[str, Any]] | None:
    """Answers of one piece; None where ONNX Runtime does not run the model."""
    try:
        session = Session(model, model.graph.input, Engine.ONNXRUNTIME, how)
        return [session.run(each) for each in feeds]
    except ContractError:
        return None


def in_segments(model: onnx.ModelProto, feeds: list[Feeds], how: SessionSettings, place: int | None = None) -> Any:
    """Answers of as many segments as can be, or of the two around a place, with the number of segments; None where the
    model cannot be cut.
    """

    def cut(course: Course, room_bytes: int) -> tuple[Segment, ...]:
        allowed = [at for at, size in enumerate(crossing_bytes(course)) if size is not None]
        chosen = allowed if place is None else sorted({0, allowed[place % len(allowed)], allowed[-1]})
        return tuple(Segment(start, stop, 0) for start, stop in itertools.pairwise(chosen))

    memory = MemoryLimit(bound_bytes=1, is_asked=False)
    result = cut_model(model, {}, how, memory)
    if result is None:
        return None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segmented, "cut_course", cut)
        try:
            first = result.compute(feeds[:1])
            runs = [*first, *result.compute(feeds)]
        except Uncuttable:
            return None
        return [result.answers(run) for run in runs], memory.segments


def check_same(expected: list[Mapping[str, Any]], found: list[Mapping[str, Any]], why: object) -> None:
    for wanted, answers in zip(expected, found, strict=True):
        assert [*wanted] == [*answers], why
        for name in wanted:
            assert is_same(wanted[name], answers[name]), f"{why}: {name}"


def network(seed: int) -> onnx.ModelProto:
    """Convolutions with norms, products with biases and activations, one weight read twice, a norm in pieces."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int, low: float = 0.0) -> onnx.TensorProto:
        numbers = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:] or (1,)))
        return numpy_helper.from_array((np.abs(numbers) + low if low else numbers).astype(np.float32), name)

    node = helper.make_node
    nodes = [
        node("Conv", ["x", "k1", "kb1"], ["c1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", "g", "b", "m", "v"], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node("Conv", ["r1", "k2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Add", ["c2", "r1"], ["s1"]),
        node("Relu", ["s1"], ["r2"]),
        node("MaxPool", ["r2"], ["p"], kernel_shape=[4, 4], strides=[4, 4]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "w1"], ["h1"]),
        node("Add", ["h1", "b1"], ["h2"]),
        node("Gelu", ["h2"], ["h3"]),
        node("MatMul", ["h3", "w2"], ["h4"]),
        node("MatMul", ["h4", "w2"], ["h5"]),
        node("Add", ["h5", "h3"], ["h6"]),
        node("LayerNormalization", ["h6", "lg", "lb"], ["h7"]),
        node("Gemm", ["h7", "w3", "b3"], ["y"]),
        node("Softmax", ["h7"], ["z"]),
    ]
    weights = [
        weight("k1", 32, 3, 3, 3), weight("kb1", 32), weight("k2", 32, 32, 3, 3), weight("g", 32, low=0.5),
        weight("b", 32), weight("m", 32), weight("v", 32, low=0.5), weight("w1", 512, 256), weight("b1", 256),
        weight("w2", 256, 256), weight("lg", 256), weight("lb", 256), weight("w3", 256, 100), weight("b3", 100),
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 16, 16])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z", "r2")]
    graph = helper.make_graph(nodes, "g", ports, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def deep(layers: int = 12) -> onnx.ModelProto:
    """Products with weights of 16 KB each."""
    rng = np.random.default_rng(1)
    matrix = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])
    names = ["x", *(f"v{at}" for at in range(1, layers)), "y"]
    nodes = [helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], f"mm{at}") for at in range(layers)]
    weights = [rng.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(layers)]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 64])
    held = [numpy_helper.from_array(array, f"w{at}") for at, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "g", [matrix], [result], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def rows(count: int, seed: int = 0) -> Feeds:
    return {"x": np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)}
