"""Entries of a graph's repeated fields: removal in place, and new initializers."""

from collections.abc import Callable, Container, MutableSequence, Set
from typing import Any, TypeVar

import onnx
from onnx import TensorProto, helper

_Entry = TypeVar("_Entry")
# IR version: before it, every initializer is also an input; since then, such inputs have defaults.
DEFAULTS_SINCE = 4


def remove_where(entries: MutableSequence[_Entry], condition: Callable[[_Entry], bool]) -> bool:
    """Remove entries in place, so that references to others remain valid; True if any."""
    positions = [position for position, entry in enumerate(entries) if condition(entry)]
    for position in reversed(positions):
        del entries[position]
    return bool(positions)


def remove_named(entries: MutableSequence[Any], names: Container[str]) -> None:
    """Remove the entries with these names, in place."""
    remove_where(entries, lambda entry: entry.name in names)


def fed_names(model: onnx.ModelProto, graph: onnx.GraphProto) -> Set[str]:
    """Inputs of a graph that may be fed; an initializer of such a name is only a default."""
    if model.ir_version < DEFAULTS_SINCE:
        return frozenset()
    return {port.name for port in graph.input}


def add_initializer(
    model: onnx.ModelProto, graph: onnx.GraphProto, tensor: TensorProto, name: str
) -> TensorProto:
    """Add a copy of a tensor to a graph as an initializer, and return the copy."""
    added: TensorProto = graph.initializer.add()
    added.CopyFrom(tensor)
    added.name = name
    if model.ir_version < DEFAULTS_SINCE and graph is model.graph:
        graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    return added
