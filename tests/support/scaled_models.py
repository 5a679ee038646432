"""Models whose values have random power-of-two scales, and whether they answer as before, bit for bit."""

import random
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.analysis.power_scales import ScaledGraph
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import Opened, open_model
from mezzo.planner.planner import rows_of

# Masks near FP32's end leave its range with any scale.
_LARGEST = 1e30


def scaled_graph(model: Opened) -> ScaledGraph:
    graph = model.read(DType.FLOAT16).graph
    return ScaledGraph(GraphView(graph, rows_of(graph)))


def told_components(model: onnx.ModelProto, largest: Mapping[str, float] | None = None) -> list[str]:
    """The components as text: each value with its factor, in graph order."""
    opened = open_model(model)
    values = opened.read(DType.FLOAT16).graph.values
    sizes = {n: (largest or {}).get(value.name, 0.0) for n, value in enumerate(values)}
    return [
        " ".join(f"{values[value].name}:{factor}" for value, factor in sorted(component.factors.items()))
        for component in scaled_graph(opened).components(sizes)
    ]


def with_random_scales(model: onnx.ModelProto, rng: random.Random) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The model with a random exponent for each component, and the exponents by value name."""
    opened = open_model(model)
    reading, graph = opened.read(DType.FLOAT16), scaled_graph(opened)
    values = reading.graph.values
    exponents: dict[int, int] = {}
    for component in graph.components({number: rng.random() for number in range(len(values))}):
        exponents |= component.exponents(rng.randint(-4, 6))
    result = opened.rescaled(reading, graph.rescaling(exponents)).original
    return result, {values[value].name: exponent for value, exponent in exponents.items()}


def answers(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[object]:
    """Answers of ONNX Runtime without optimisations, which would add in other orders."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    found: list[object] = session.run(None, dict(feeds))
    return found


def is_same(first: object, second: object) -> bool:
    """Whether two answers are equal, NaN to NaN."""
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_same, first, second))
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return first is None and second is None
    is_float = first.dtype.kind == "f"
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=is_float)


def is_near_the_end(model: onnx.ModelProto, found: list[object]) -> bool:
    """Whether a constant or an answer is so large, or no number, that scales may change it."""
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    arrays += [
        onnx.numpy_helper.to_array(attribute.t)
        for node in model.graph.node
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    arrays += [array for array in found if isinstance(array, np.ndarray)]
    floats = [array for array in arrays if array.dtype.kind == "f"]
    return any(not (np.abs(array.astype(np.float64)) < _LARGEST).all() for array in floats)
