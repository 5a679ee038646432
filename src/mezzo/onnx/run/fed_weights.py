"""Large weights as inputs of a model, to run it without copies of them.

Runtimes use inputs in place: they neither copy nor repack them, and fold no constants from them.
"""

from copy import deepcopy

import onnx

from mezzo.onnx.files.marks import is_marked
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.protos.graphs import defined_names, replace_nodes, subgraphs_of
from mezzo.onnx.protos.names import free_prefix, numbered
from mezzo.onnx.protos.rounding import Array


def feed_weights(whole: RunnableModel) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with its marked tensors as inputs of the main graph, and the feeds for these. A
    model without weights in files is returned as it is.
    """
    if whole.weights is None:
        return whole.model, {}
    model = deepcopy(whole.model)
    lifted = _Lifting(model).lifted
    input_names = {port.name for port in model.graph.input}
    for name, tensor in lifted.items():
        if name not in input_names:
            model.graph.input.append(
                onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            )
    moved = whole.weights.moved
    return model, {
        name: moved[name] if name in moved else whole.weights.array(tensor)
        for name, tensor in lifted.items()
    }


class _Lifting:
    """Replaces a model's marked tensors by inputs, in place. `lifted`: tensors by input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.lifted: dict[str, onnx.TensorProto] = {}
        self._fresh = numbered(free_prefix(model.graph, "weight_"))
        for name, tensor in _taken_out(model.graph):
            self.lifted[name] = tensor
        self._lift_bodies(model.graph)

    def _lift_bodies(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            for body in subgraphs_of(node):
                self._lift(body)

    def _lift(self, body: onnx.GraphProto) -> None:
        """Lift a subgraph's tensors under new names, as its names may be reused elsewhere."""
        named: dict[str, str] = {}
        for name, tensor in _taken_out(body):
            named[name] = self._fresh()
            self.lifted[named[name]] = tensor
        _rename(body, named)
        _restore_outputs(body, named)
        self._lift_bodies(body)


def _taken_out(graph: onnx.GraphProto) -> list[tuple[str, onnx.TensorProto]]:
    """Remove marked initializers and Constants of a single graph; returns them by name."""
    removed = [(tensor.name, deepcopy(tensor)) for tensor in graph.initializer if is_marked(tensor)]
    if removed:
        remaining = [tensor for tensor in graph.initializer if not is_marked(tensor)]
        del graph.initializer[:]
        graph.initializer.extend(remaining)
    constants = [node for node in graph.node if _is_marked_constant(node)]
    removed += [(node.output[0], deepcopy(node.attribute[0].t)) for node in constants]
    if constants:
        replace_nodes(graph, [node for node in graph.node if not _is_marked_constant(node)])
    return removed


def _is_marked_constant(node: onnx.NodeProto) -> bool:
    is_constant = node.op_type == "Constant" and len(node.attribute) == 1
    return is_constant and node.attribute[0].HasField("t") and is_marked(node.attribute[0].t)


def _rename(graph: onnx.GraphProto, named: dict[str, str]) -> None:
    """Rename uses of values in a graph, and in its subgraphs unless they shadow the name."""
    if not named:
        return
    for node in graph.node:
        node.input[:] = [named.get(name, name) for name in node.input]
        for body in subgraphs_of(node):
            inner_names = set(defined_names(body))
            inner = {name: new for name, new in named.items() if name not in inner_names}
            _rename(body, inner)
            _restore_outputs(body, inner)


def _restore_outputs(body: onnx.GraphProto, named: dict[str, str]) -> None:
    """Give renamed values that a subgraph returns their old names, by Identities."""
    results = dict.fromkeys(port.name for port in body.output if port.name in named)
    body.node.extend(onnx.helper.make_node("Identity", [named[name]], [name]) for name in results)
