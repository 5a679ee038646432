"""Types, shapes and constants of a model's values by scope, from ONNX's inference and the model."""

from collections import ChainMap
from collections.abc import Iterator, Mapping, Set
from copy import deepcopy
from functools import cached_property
from typing import TypeVar

import onnx
from onnx import helper

from mezzo.onnx.opset_steps.site import Values
from mezzo.onnx.protos.graphs import Owner, all_nodes, nodes_of, reads_in, subgraphs_of
from mezzo.onnx.schema.shapes import infer

# A graph or function: "" or its name, then for each nested subgraph "first output of its
# node/number of the subgraph".
Path = tuple[str, ...]
_Types = dict[str, onnx.TypeProto.Tensor]
_Entry = TypeVar("_Entry")


def owners(model: onnx.ModelProto) -> Iterator[tuple[Path, Owner]]:
    """Every graph and function with its path; subgraphs precede their enclosing graph."""
    yield from _owners(model.graph, ("",))
    for function in model.functions:
        yield from _owners(function, (title_of(function),))


def _owners(owner: Owner, path: Path) -> Iterator[tuple[Path, Owner]]:
    for node in owner.node:
        for number, body in enumerate(subgraphs_of(node)):
            holder = next(filter(None, node.output), "")
            yield from _owners(body, (*path, f"{holder}/{number}"))
    yield path, owner


def title_of(function: onnx.FunctionProto) -> str:
    """A function's name in paths."""
    return f"{function.domain}::{function.name}"


class Knowledge:
    """Types of the original model's values, inferred on first use. They stay valid over steps,
    which keep the names and contents of values.
    """

    def __init__(self, source: onnx.ModelProto) -> None:
        self._source = source

    @cached_property
    def types(self) -> Mapping[Path, _Types]:
        return _infer_types(self._source)

    @cached_property
    def node_names(self) -> Set[str]:
        return {node.name for node in nodes_of(self._source)}


class Snapshot:
    """A model's constants and uses between two steps, collected on first use."""

    def __init__(self, model: onnx.ModelProto, knowledge: Knowledge) -> None:
        self.owners = list(owners(model))
        self._knowledge = knowledge

    @cached_property
    def _constants(self) -> Mapping[Path, dict[str, onnx.TensorProto]]:
        return {path: _constants(owner) for path, owner in self.owners}

    @cached_property
    def _reads(self) -> frozenset[str]:
        return frozenset(name for _, owner in self.owners for name in reads_in(owner))

    def values(self, path: Path) -> Values:
        """The values visible in a scope."""
        constants = _visible(self._constants, path)
        return Values(lambda: _visible(self._knowledge.types, path), constants, self._reads)


def _visible(by_scope: Mapping[Path, dict[str, _Entry]], path: Path) -> ChainMap[str, _Entry]:
    """The entries of a scope and of those that enclose it, innermost first."""
    scopes = [path[:end] for end in range(len(path), 0, -1)]
    return ChainMap(*[by_scope[scope] for scope in scopes if scope in by_scope])


def _constants(owner: Owner) -> dict[str, onnx.TensorProto]:
    constants = {
        node.output[0]: attribute.t
        for node in owner.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    if isinstance(owner, onnx.GraphProto):
        fed = {info.name for info in owner.input}  # an input's initializer is a default
        constants |= {tensor.name: tensor for tensor in owner.initializer if tensor.name not in fed}
    return constants


def _infer_types(model: onnx.ModelProto) -> dict[Path, _Types]:
    types = _types_of(infer(without_stated_shapes(model)))
    pending = {title_of(function): function for function in model.functions}
    while pending:  # callers are inferred before the functions that they call
        called = {
            f"{node.domain}::{node.op_type}"
            for function in pending.values()
            for node in all_nodes(function)
        }
        ready = [title for title in pending if title not in called] or list(pending)
        for title in ready:
            types |= _infer_function(model, pending.pop(title), types)
    return types


def without_stated_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without declared inner shapes, which may be out of date. Those of constants stay: onnx
    takes the axes of a Slice for others where their shape is not known.
    """
    copy = deepcopy(model)
    for path, owner in owners(copy):
        if isinstance(owner, onnx.GraphProto):
            declared = (*owner.value_info, *owner.output, *(owner.input if len(path) > 1 else ()))
            constants = {tensor.name for tensor in owner.initializer}
            for info in declared:
                if info.type.HasField("tensor_type") and info.name not in constants:
                    info.type.tensor_type.ClearField("shape")
    return copy


def _types_of(model: onnx.ModelProto, title: str = "") -> dict[Path, _Types]:
    types: dict[Path, _Types] = {}
    for path, owner in owners(model):
        if not isinstance(owner, onnx.GraphProto):
            continue
        infos = (*owner.value_info, *owner.output, *owner.input)
        scope = {
            info.name: info.type.tensor_type for info in infos if info.type.HasField("tensor_type")
        }
        for tensor in owner.initializer:
            scope[tensor.name] = helper.make_tensor_type_proto(
                tensor.data_type, list(tensor.dims)
            ).tensor_type
        types[title, *path[1:]] = scope
    return types


def _infer_function(
    model: onnx.ModelProto, function: onnx.FunctionProto, types: Mapping[Path, _Types]
) -> dict[Path, _Types]:
    """Types inside a function, from input types on which all calls agree."""
    calls = []
    for path, owner in owners(model):
        visible = _visible(types, path)
        for node in owner.node:
            if (node.domain, node.op_type) == (function.domain, function.name):
                calls.append([visible.get(name) for name in node.input])
    inputs = []
    for index, name in enumerate(function.input):
        argument_types = [call[index] if index < len(call) else None for call in calls]
        first, *others = argument_types or [None]
        info = helper.make_empty_tensor_value_info(name)
        if first is not None and all(other == first for other in others):
            info.type.tensor_type.CopyFrom(first)
        inputs.append(info)
    graph = helper.make_graph(
        list(function.node),
        function.name,
        inputs,
        [helper.make_empty_tensor_value_info(n) for n in function.output],
    )
    body = helper.make_model(
        graph, opset_imports=list(function.opset_import), functions=list(model.functions)
    )
    return _types_of(infer(body), title_of(function))
