"""Normal form of a model: simplification passes, repeated until none changes it."""

from collections.abc import Callable, Set
from copy import deepcopy
from dataclasses import replace

import onnx

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.normal_form.constant_folding import fold_constants
from mezzo.onnx.normal_form.hoisting import hoist_weights
from mezzo.onnx.normal_form.no_ops import remove_no_ops
from mezzo.onnx.normal_form.padding import merge_pads
from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.normal_form.shape_folding import fold_shapes
from mezzo.onnx.protos.entries import DEFAULTS_SINCE, remove_named, remove_where
from mezzo.onnx.protos.graphs import all_graphs, all_nodes, bodies_of, reads_in
from mezzo.onnx.protos.names import names_of
from mezzo.onnx.schema.shapes import infer_types

_PASSES: tuple[Callable[[GraphScope], bool], ...] = (
    fold_shapes,
    fold_constants,
    remove_no_ops,
    merge_pads,
    hoist_weights,
)
# Constants of one round give shapes that the next one folds. Exporters' chains need three or four.
_MOST_ROUNDS = 12


def normalize(source: ModelSource, kept: Set[str], copied: float) -> ModelSource | None:
    """The model in normal form; None if it already is. `kept` are results of operators to keep.

    `copied` is the size of a duplicated constant in the converted model, relative to the original.
    Remaining names keep their meaning. The source is not changed; large weights stay where they
    are, and newly computed ones are stored in temporary files.
    """
    opset = default_opset(source.model)
    if opset is None:
        return None
    model = deepcopy(source.model)
    is_changed = remove_dead(model, kept)
    for _ in range(_MOST_ROUNDS):
        types, names_in_use = infer_types(model), names_of(model)
        main = GraphScope(
            model=model,
            graph=model.graph,
            source=source,
            kept=kept,
            types=types,
            opset=opset,
            outer={},
            taken=names_in_use,
            copied=copied,
        )
        if not _pass_over(main):
            break
        is_changed = True
        remove_dead(model, kept)
    return replace(source, model=model) if is_changed else None


def _pass_over(scope: GraphScope) -> bool:
    """Run each pass once on a graph and its subgraphs."""
    is_changed = False
    for run_pass in _PASSES:
        is_changed |= run_pass(replace(scope))  # a new scope: passes invalidate cached uses
    constants = replace(scope).constants
    for body in bodies_of(scope.graph):
        is_changed |= _pass_over(replace(scope, graph=body, outer=constants))
    return is_changed


def remove_dead(model: onnx.ModelProto, kept: Set[str]) -> bool:
    """Remove unused operators, initializers and value_info; True if an operator was removed."""
    is_changed = False
    while _remove_unread(model, kept):
        is_changed = True
    defined = {name for node in all_nodes(model.graph) for name in node.output}
    for graph in all_graphs(model.graph):
        remove_where(graph.value_info, lambda info: info.name not in defined)
    return is_changed


def _remove_unread(model: onnx.ModelProto, kept: Set[str]) -> bool:
    read = {name for graph in all_graphs(model.graph) for name in reads_in(graph)}
    needed, is_changed = read | kept, False
    for graph in all_graphs(model.graph):
        is_changed |= remove_where(graph.node, lambda node: needed.isdisjoint(node.output))
        is_main_before_defaults = graph is model.graph and model.ir_version < DEFAULTS_SINCE
        fed = set() if is_main_before_defaults else {port.name for port in graph.input}
        unread = {tensor.name for tensor in graph.initializer} - read - fed
        remove_named(graph.initializer, unread)
        remove_named(graph.input, unread)
    return is_changed
