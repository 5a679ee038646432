"""Inlining of torch.export's autocast and set_grad_enabled regions, node by node.

torch.export moves such regions into submodules, and decomposition inlines each as one call, so that
the nodes would get the call's metadata in place of their own region, module and line.
"""

import copy
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from mezzo.aten.marks import WRITTEN_APART, mark_disabled_autocast


def with_parts_node_by_node(exported: ExportedProgram) -> ExportedProgram:
    """A program whose submodule regions run node by node, so that nodes keep their metadata.

    Disabled autocasts are marked. Weights are shared; the input is not changed, and is returned as
    is if it has no such regions.
    """
    if not any(map(_is_part, exported.graph.nodes)):
        return exported
    module = _copied(exported.graph_module)
    mark_disabled_autocast(module)
    return with_module(exported, module)


def with_module(
    exported: ExportedProgram, module: fx.GraphModule, **changes: Any
) -> ExportedProgram:
    """The program with another module; `changes` are further parts of it."""
    parts = {
        "graph_signature": exported.graph_signature,
        "state_dict": exported.state_dict,
        "range_constraints": exported.range_constraints,
        "module_call_graph": exported.module_call_graph,
        "example_inputs": exported.example_inputs,
        "constants": exported.constants,
        "verifiers": exported.verifiers,
    }
    return ExportedProgram(root=module, graph=module.graph, **{**parts, **changes})


def _is_part(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in WRITTEN_APART


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph and its regions, without dtype assertions, which autocast invalidates."""
    graph = copy.deepcopy(module.graph)
    for node, twin in zip(module.graph.nodes, graph.nodes, strict=True):
        twin.name = node.name
    without_assertions(graph)
    result = fx.GraphModule(module, graph)
    result.meta.update(module.meta)
    for part in [node for node in graph.nodes if _is_part(node)]:
        for name in [
            str(operand.target) for operand in part.all_input_nodes if operand.op == "get_attr"
        ]:
            inner = _copied(getattr(module, name))
            inner.forward = _NodeByNode(inner)
            setattr(result, name, inner)
    return result


def without_assertions(graph: fx.Graph) -> fx.Graph:
    """Remove the dtype assertions recorded during tracing, in place, and return the graph."""
    for node in list(graph.nodes):
        if (
            node.op == "call_function"
            and str(node.target) == "aten._assert_tensor_metadata.default"
        ):
            graph.erase_node(node)
    return graph


class _NodeByNode:
    """Runs a graph through `fx.Interpreter`, which gives tracers each node's metadata."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module

    def __call__(self, *args: Any) -> Any:
        return fx.Interpreter(self._module).run(*args)
