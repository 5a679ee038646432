"""Counts the nodes of a model that compute in floats, and how many of them in a low type.

A float node is a node outside of functions' definitions (functions count where they are called, bodies count once) that
has a port with a type variable which, in the schema at the model's opset, admits both FP32 and the low type, and which
holds one of them. The first such port, inputs before outputs, says what the node runs in. Not counted: casts, operators
that read shapes only, constants, control flow, and operators without a registered schema.
"""

from collections import ChainMap
from collections.abc import Iterator
from typing import NamedTuple

import onnx
import onnx.inliner

from mezzo.onnx.schema.value_types import TypedScope, find_node_schema, value_types

EXCLUDED = frozenset(
    {
        "Cast",
        "CastLike",
        "BitCast",
        "Shape",
        "Size",
        "Constant",
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
        "OptionalHasElement",
    }
)
_NAMES = {"fp16": "float16", "bf16": "bfloat16"}


class FloatNode(NamedTuple):
    """A float node and whether it runs in the low type."""

    node: onnx.NodeProto
    is_low: bool


class Count(NamedTuple):
    """Float nodes, those of them that run low, and Cast nodes whose input and output are floats."""

    float_nodes: int
    low_nodes: int
    casts: int


def count_nodes(model: onnx.ModelProto, to: str) -> Count:
    nodes = list(float_nodes(model, to))
    return Count(len(nodes), sum(node.is_low for node in nodes), count_casts(model))


def float_nodes(model: onnx.ModelProto, to: str) -> Iterator[FloatNode]:
    """Give the float nodes of a model in their order."""
    flat = onnx.inliner.inline_local_functions(model, convert_version=True) if model.functions else model
    opsets = {entry.domain: entry.version for entry in flat.opset_import}
    for node, types in _walk(flat.graph, value_types(flat)):
        held = _held_type(node, types, opsets, f"tensor({_NAMES[to]})")
        if held is not None:
            yield FloatNode(node, held != "float")


def count_casts(model: onnx.ModelProto) -> int:
    """Count the Cast nodes from one floating type to another, bodies and called functions included.

    A Cast to the type its operand has does nothing: neither leaving one nor taking one out counts.
    """
    flat = onnx.inliner.inline_local_functions(model, convert_version=True) if model.functions else model
    return sum(
        node.op_type == "Cast" and _changes_float(types.get(node.input[0], ""), types.get(node.output[0], ""))
        for node, types in _walk(flat.graph, value_types(flat))
    )


def _changes_float(before: str, after: str) -> bool:
    return "float" in before and "float" in after and before != after


def holds_float32(model: onnx.ModelProto) -> bool:
    """Say whether any value of the model is FP32."""
    flat = onnx.inliner.inline_local_functions(model, convert_version=True) if model.functions else model
    return _holds(value_types(flat))


def _holds(scope: TypedScope) -> bool:
    return any("(float)" in text for text in scope.types.maps[0].values()) or any(map(_holds, scope.bodies.values()))


def _walk(graph: onnx.GraphProto, scope: TypedScope) -> Iterator[tuple[onnx.NodeProto, ChainMap[str, str]]]:
    for index, node in enumerate(graph.node):
        yield node, scope.types
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _walk(attribute.g, scope.bodies[index, attribute.name])


def _held_type(node: onnx.NodeProto, types: ChainMap[str, str], opsets: dict[str, int], low: str) -> str | None:
    """What the node's deciding port holds: "float", "float16" or "bfloat16"; None if it is no float node."""
    schema = find_node_schema(node, opsets)
    if schema is None or node.op_type in EXCLUDED:
        return None
    allowed = {variable.type_param_str: variable.allowed_type_strs for variable in schema.type_constraints}
    for ports, names in ((schema.inputs, node.input), (schema.outputs, node.output)):
        for position, name in enumerate(names):
            text = types.get(name, "") if name else ""
            element = text.rpartition("(")[2].rstrip(")")
            if element not in ("float", low[7:-1]):
                continue
            admitted = allowed.get(ports[min(position, len(ports) - 1)].type_str, [])
            wanted = {text.replace(f"({element})", f"({other})") for other in ("float", low[7:-1])}
            if wanted <= set(admitted):
                return element
    return None
