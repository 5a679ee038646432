"""Sizes of values, where ONNX's own shape inference can tell them. Types never depend on it."""

import logging
from collections.abc import Iterator

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

_log = logging.getLogger(__name__)

# A symbolic dimension counts as this many: sizes only weigh casts against each other, and equal symbols stay equal.
NOMINAL_DIM = 16
# Sizes are capped so that absurd shapes cannot overflow the planner's sums.
MAX_ELEMENTS = 1 << 40


# onnx 1.23.2 crashes the process when it infers one of these, or an operator of its machine learning domains, over an
# operand whose type it does not know.
_CRASHING = frozenset({"EyeLike", "DictVectorizer", "RegexFullMatch"})
_CRASHING_BYTES = (*(op.encode() for op in _CRASHING), b"ai.onnx.")  # cheap to look for in any model


def can_infer(model: onnx.ModelProto) -> bool:
    """Whether onnx's inference, and with it the checker's full check, can be trusted not to crash on the model."""
    data = model.SerializeToString()
    if not any(word in data for word in _CRASHING_BYTES):
        return True
    ops = {(node.domain, node.op_type) for owner in (model.graph, *model.functions) for node in _all_nodes(owner)}
    if not any(op in _CRASHING or domain.startswith("ai.onnx.") for domain, op in ops):
        return True
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError):
        return False  # a name that nothing makes has no type either
    known = {(function.domain, function.name) for function in model.functions}
    return all((d, op) in known or onnx.defs.has(op, "" if d == "ai.onnx" else d) for d, op in ops)


def _all_nodes(owner: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in owner.node:
        yield node
        if node.op_type in _BODIES:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from _all_nodes(attribute.g)


_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def element_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Elements per value name; a name is missing where nothing is known. Never raises on a bad model."""
    inferred = _infer(model)
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


def value_ranks(model: onnx.ModelProto) -> dict[str, int]:
    """Ranks per value name; a name is missing where nothing is known. Never raises on a bad model."""
    inferred = _infer(model)
    return {
        info.name: len(info.type.tensor_type.shape.dim)
        for graph in _graphs(inferred.graph)
        for infos in (graph.value_info, graph.input, graph.output)
        for info in infos
        if info.type.tensor_type.HasField("shape")
    }


def _infer(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        if can_infer(model):
            return onnx.shape_inference.infer_shapes(model)
    except Exception as error:  # noqa: BLE001  a convenience that fails on models that run: "unknown", whatever it was
        _log.debug("shape inference failed: %s", error)
    return model


def _count(shape: onnx.TensorShapeProto) -> int:
    count = 1
    for dim in shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else NOMINAL_DIM
        count *= max(size, 0)
    return min(count, MAX_ELEMENTS)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        if node.op_type in _BODIES:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from _graphs(attribute.g)
