"""Sizes of values, where ONNX's own shape inference can tell them. Types never depend on it."""

import logging
from collections.abc import Iterator

import onnx
import onnx.shape_inference

_log = logging.getLogger(__name__)

# A symbolic dimension counts as this many: sizes only weigh casts against each other, and equal symbols stay equal.
NOMINAL_DIM = 16
# Sizes are capped so that absurd shapes cannot overflow the planner's sums.
MAX_ELEMENTS = 1 << 40


def element_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Elements per value name; a name is missing where nothing is known. Never raises on a bad model."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # inference is a convenience, and fails on models that run: any error means "unknown"
        _log.debug("shape inference failed: %s", error)
        inferred = model
    found: dict[str, int] = {}
    counts: dict[bytes, int] = {}  # models repeat few shapes
    for graph in _graphs(inferred.graph):
        for infos in (graph.value_info, graph.input, graph.output):
            for info in infos:
                tensor = info.type.tensor_type
                if tensor.HasField("shape"):
                    key = tensor.shape.SerializeToString()
                    if key not in counts:
                        counts[key] = _count(tensor.shape)
                    found[info.name] = counts[key]
    return found


def _count(shape: onnx.TensorShapeProto) -> int:
    count = 1
    for dim in shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else NOMINAL_DIM
        count *= max(size, 0)
    return min(count, MAX_ELEMENTS)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        if node.op_type in ("If", "Loop", "Scan", "SequenceMap"):
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from _graphs(attribute.g)
