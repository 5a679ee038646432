"""Parts of exported programs that torch.export writes apart: what is computed under an autocast, or with gradients
switched on or off.

PyTorch writes them back when it decomposes a program, and calls each as a whole: what is in it would have the metadata
of the call, and not its own region, module and line.
"""

import copy
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from mezzo.aten.marks import WRITTEN_APART, mark_disabled_autocast


def with_parts_node_by_node(exported: ExportedProgram) -> ExportedProgram:
    """A program whose parts run node by node, so that each node's metadata stays, with disabled autocasts marked.

    Weights are shared, and the program that came in is not changed; it is returned itself where it has no parts.
    """
    if not any(map(_is_part, exported.graph.nodes)):
        return exported
    module = _copied(exported.graph_module)
    mark_disabled_autocast(module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=exported.graph_signature,
        state_dict=exported.state_dict,
        range_constraints=exported.range_constraints,
        module_call_graph=exported.module_call_graph,
        example_inputs=exported.example_inputs,
        constants=exported.constants,
        verifiers=exported.verifiers,
    )


def _is_part(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in WRITTEN_APART


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph and of its parts, without assertions about types, which autocasts change."""
    graph = copy.deepcopy(module.graph)
    for node, twin in zip(module.graph.nodes, graph.nodes, strict=True):
        twin.name = node.name
    without_assertions(graph)
    made = fx.GraphModule(module, graph)
    made.meta.update(module.meta)
    for part in [node for node in graph.nodes if _is_part(node)]:
        for name in [str(operand.target) for operand in part.all_input_nodes if operand.op == "get_attr"]:
            inner = _copied(getattr(module, name))
            inner.forward = _NodeByNode(inner)
            setattr(made, name, inner)
    return made


def without_assertions(graph: fx.Graph) -> fx.Graph:
    """The graph without what pins types that were true as it was traced."""
    for node in list(graph.nodes):
        if node.op == "call_function" and str(node.target) == "aten._assert_tensor_metadata.default":
            graph.erase_node(node)
    return graph


class _NodeByNode:
    """Calls a graph as the interpreter of PyTorch does, which tells tracers of each node's metadata."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._module = module

    def __call__(self, *args: Any) -> Any:
        return fx.Interpreter(self._module).run(*args)
