"""Sizes and shapes of values by ONNX's shape inference, guarded against its crashes."""

import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

from mezzo.ir.nodes import NOMINAL_DIM
from mezzo.onnx.protos.graphs import all_graphs, nodes_of
from mezzo.onnx.schema.domains import canonical

_log = logging.getLogger(__name__)

# Sizes are capped, so that absurd shapes cannot overflow the planner's sums.
MAX_ELEMENTS = 1 << 40

# None per unknown dimension.
Shape = tuple[int | None, ...]


# onnx 1.23.2 crashes the process if it infers one of these, or an operator of its machine learning
# domains, with an operand of unknown type.
_CRASHING = frozenset({"EyeLike", "DictVectorizer", "RegexFullMatch"})
# It also crashes on negative dimensions: field 1 of a TensorProto or a Dimension, with a 10-byte
# varint.
_NEGATIVE = re.compile(rb"\x08[\x80-\xff]{9}\x01")
# And on attributes beyond 32 bits, such as an axis: field 3 of AttributeProto, whose varint has
# over four bytes and is no small negative number.
_HUGE = re.compile(rb"\x18(?![\x80-\xff]\xff{8}\x01)[\x80-\xff]{4}")
_OF_ANY_SIZE = "value_int"  # of Constant
# And on Split-18 with more num_outputs than the node has outputs.
_PARTS = "num_outputs"
# Cheap to search for in any model.
_CRASHING_BYTES = (
    *(op.encode() for op in _CRASHING),
    b"ai.onnx.",
    _PARTS.encode(),
)


def can_infer(model: onnx.ModelProto) -> bool:
    """Whether onnx's inference and full check do not crash on the model."""
    return not may_crash(model, model.SerializeToString()) or (
        not _negative_infos(model) and _can_infer(model)
    )


def may_crash(model: onnx.ModelProto, data: bytes) -> bool:
    """Whether a model may crash onnx's inference: cheap, no false negatives. `data` is the model
    serialized.
    """
    return _has_marks(data) and _has_marks(_without_elements(model).SerializeToString())


def _has_marks(data: bytes) -> bool:
    return any(word in data for word in _CRASHING_BYTES) or any(
        mark.search(data) for mark in (_NEGATIVE, _HUGE)
    )


def _without_elements(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without elements of weights, which may look like any mark."""
    copy = deepcopy(model)
    for tensor in copy.graph.initializer:
        tensor.ClearField("raw_data")
    return copy


def _can_infer(model: onnx.ModelProto) -> bool:
    """Exact test for crashes, for a model without negative dimensions in its types."""
    nodes = [*nodes_of(model)]
    if any(_is_too_much(a, node) for node in nodes for a in node.attribute):
        return False
    constants = [a.t for node in nodes for a in node.attribute if a.HasField("t")]
    tensors = [tensor for graph in all_graphs(model.graph) for tensor in graph.initializer]
    if any(size < 0 for tensor in (*tensors, *constants) for size in tensor.dims):
        return False
    ops = {(node.domain, node.op_type) for node in nodes}
    if not any(op in _CRASHING or domain.startswith("ai.onnx.") for domain, op in ops):
        return True
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError):
        return False  # an undefined name has no type either
    functions = {(function.domain, function.name) for function in model.functions}
    return all((d, op) in functions or onnx.defs.has(op, canonical(d)) for d, op in ops)


def _is_too_much(attribute: onnx.AttributeProto, node: onnx.NodeProto) -> bool:
    """Whether an attribute exceeds 32 bits, or requests more outputs than the node has."""
    if attribute.name == _PARTS:
        return attribute.i > len(node.output)
    return attribute.name != _OF_ANY_SIZE and not -(1 << 31) <= attribute.i < 1 << 31


def _negative_infos(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Declarations with a negative dimension, which old exporters write for an unknown one."""
    infos = [
        info
        for graph in all_graphs(model.graph)
        for info in (*graph.value_info, *graph.input, *graph.output)
    ]
    infos += [info for function in model.functions for info in function.value_info]
    return [info for info in infos if _NEGATIVE.search(info.type.SerializeToString())]


def _with_unknown_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with negative dimensions turned into unknown ones."""
    copy = deepcopy(model)
    for info in _negative_infos(copy):
        if not info.type.HasField("tensor_type"):
            info.ClearField("type")
        for dim in info.type.tensor_type.shape.dim if info.HasField("type") else ():
            if dim.dim_value < 0:
                dim.ClearField("dim_value")
    return copy


# Operators with subgraphs.
BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# The serialized op_type of such nodes (field 4 of NodeProto): a search takes 1 ms, a loop over
# 16,000 nodes 4 ms.
_BODY_MARKS = tuple(bytes([4 << 3 | 2, len(op)]) + op.encode() for op in sorted(BODIES))


@dataclass(frozen=True, slots=True)
class KnownShapes:
    """Numbers of elements, and shapes, by value name; unknown values are missing."""

    counts: Mapping[str, int]
    shapes: Mapping[str, Shape]


def value_sizes(model: onnx.ModelProto, data: bytes, *, may_crash: bool) -> KnownShapes:
    """Infer sizes. `data` is the serialized model, `may_crash` the result of `may_crash`.
    Never raises on a malformed model.
    """
    inferred = _infer(model, data, may_crash=may_crash)
    counts: dict[str, int] = {}
    shapes: dict[str, Shape] = {}
    measured: dict[bytes, tuple[int, Shape] | None] = {}  # models repeat few types
    has_bodies = any(mark in data for mark in _BODY_MARKS)
    for graph in all_graphs(inferred.graph) if has_bodies else (inferred.graph,):
        for infos in (graph.value_info, graph.input, graph.output):
            for info in infos:
                value_type = info.type
                key = value_type.SerializeToString()
                if key not in measured:
                    shape = shape_of(value_type.tensor_type)
                    measured[key] = None if shape is None else (_count(shape), shape)
                sizes = measured[key]
                if sizes is not None:
                    name = info.name
                    counts[name], shapes[name] = sizes
    return KnownShapes(counts, shapes)


def value_shapes(model: onnx.ModelProto) -> Mapping[str, Shape]:
    """Inferred shapes by value name; unknown ones are missing. Never raises."""
    data = model.SerializeToString()
    return value_sizes(model, data, may_crash=may_crash(model, data)).shapes


def infer_types(model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto]:
    """Types and shapes by value name, inferred from inputs and constants alone.

    Declared inner shapes are ignored, as they may be out of date. Names that occur in two graphs
    are left out. Never raises on a malformed model.
    """
    stripped = deepcopy(model)
    functions = {(function.domain, function.name) for function in model.functions}
    for graph in all_graphs(stripped.graph):
        without_inference = {
            name
            for node in graph.node
            if (node.domain, node.op_type) not in functions
            and not onnx.defs.has(node.op_type, node.domain)
            for name in node.output
        }
        # Outputs of operators without inference.
        undefined = [info for info in graph.value_info if info.name in without_inference]
        del graph.value_info[:]
        graph.value_info.extend(undefined)
        for port in graph.output:
            if port.type.HasField("tensor_type"):
                port.type.tensor_type.ClearField("shape")
    inferred = infer(stripped, data_prop=True)
    types: dict[str, onnx.TypeProto] = {}
    ambiguous: set[str] = set()
    for graph in all_graphs(inferred.graph):
        for info in (*graph.value_info, *graph.input, *graph.output):
            if info.name in types:
                ambiguous.add(info.name)
            types[info.name] = info.type
    return {name: value_type for name, value_type in types.items() if name not in ambiguous}


def infer(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto:
    """A copy with inferred types; the model itself if inference fails. Never raises.

    `data_prop`: also propagate the values of small constants, such as shapes.
    """
    data = model.SerializeToString()
    return _infer(model, data, may_crash=may_crash(model, data), data_prop=data_prop)


def shape_of(tensor: onnx.TypeProto.Tensor) -> Shape | None:
    """The dimensions of a declared type, None for each unknown one; None if the rank is unknown."""
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    return tuple([dim.dim_value if dim.HasField("dim_value") else None for dim in dims])


def length_of(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """The length of a dimension, or its symbol; None if it is unknown or negative."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _count(shape: Shape) -> int:
    """Nominal number of elements."""
    count = 1
    for size in shape:
        count *= NOMINAL_DIM if size is None else max(size, 0)
    return min(count, MAX_ELEMENTS)


def _infer(
    model: onnx.ModelProto, data: bytes, *, may_crash: bool, data_prop: bool = False
) -> onnx.ModelProto:
    if may_crash and _negative_infos(model):
        model = _with_unknown_sizes(model)
        data = model.SerializeToString()
    try:
        if not may_crash or _can_infer(model):
            return onnx.shape_inference.infer_shapes(data, data_prop=data_prop)
    except Exception as error:  # noqa: BLE001  fails on some valid models: sizes are then unknown
        _log.debug("shape inference failed: %s", error)
    return model
