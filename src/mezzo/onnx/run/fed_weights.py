"""Large weights as inputs of a model, to run it without copies of them.

Runtimes use inputs in place: they neither copy nor repack them, and fold no constants from them.
"""

import onnx

from mezzo.onnx.files.marks import is_marked
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.protos.graphs import bodies_of, defined_names, subgraphs_of
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.protos.rounding import Array


def feed_weights(whole: RunnableModel) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model with its marked tensors as inputs of the main graph, and the feeds for these."""
    assert whole.weights is not None, "asked of models whose weights are in files"
    model = onnx.ModelProto()
    model.CopyFrom(whole.model)
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
        self._prefix = free_prefix(model.graph, "weight_")
        for name, tensor in _taken_out(model.graph):
            self.lifted[name] = tensor
        for body in bodies_of(model.graph):
            self._lift(body)

    def _lift(self, body: onnx.GraphProto) -> None:
        """Lift a subgraph's tensors under new names, as its names may be reused elsewhere."""
        named: dict[str, str] = {}
        for name, tensor in _taken_out(body):
            named[name] = f"{self._prefix}{len(self.lifted)}"
            self.lifted[named[name]] = tensor
        _rename(body, named)
        results = [port.name for port in body.output if port.name in named]
        body.node.extend(
            onnx.helper.make_node("Identity", [named[name]], [name])
            for name in dict.fromkeys(results)
        )
        for inner in bodies_of(body):
            self._lift(inner)


def _taken_out(graph: onnx.GraphProto) -> list[tuple[str, onnx.TensorProto]]:
    """Remove marked initializers and Constants of a single graph; returns them by name."""
    removed = [(tensor.name, _copy(tensor)) for tensor in graph.initializer if is_marked(tensor)]
    if removed:
        remaining = [tensor for tensor in graph.initializer if not is_marked(tensor)]
        del graph.initializer[:]
        graph.initializer.extend(remaining)
    constants = [node for node in graph.node if _is_marked_constant(node)]
    removed += [(node.output[0], _copy(node.attribute[0].t)) for node in constants]
    if constants:
        other_nodes = [node for node in graph.node if not _is_marked_constant(node)]
        del graph.node[:]
        graph.node.extend(other_nodes)
    return removed


def _is_marked_constant(node: onnx.NodeProto) -> bool:
    is_constant = node.op_type == "Constant" and len(node.attribute) == 1
    return is_constant and node.attribute[0].HasField("t") and is_marked(node.attribute[0].t)


def _copy(tensor: onnx.TensorProto) -> onnx.TensorProto:
    result = onnx.TensorProto()
    result.CopyFrom(tensor)
    return result


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
            results = dict.fromkeys(port.name for port in body.output if port.name in inner)
            body.node.extend(
                onnx.helper.make_node("Identity", [inner[name]], [name]) for name in results
            )
