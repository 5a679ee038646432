"""Record of a folded constant: the operators and smaller constants that computed it."""

from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from mezzo.onnx.edit.opset import upgrade


@dataclass(frozen=True, eq=False, kw_only=True)
class Computation:
    """Nodes in topological order at an opset, their constant inputs, and the output name."""

    nodes: tuple[onnx.NodeProto, ...]
    tensors: tuple[TensorProto, ...]
    result: str
    opset: int

    def at_opset(self, opset: int) -> "Computation | None":
        """The computation upgraded to `opset`; None if an operator cannot be upgraded."""
        if opset == self.opset:
            return self
        output = helper.make_tensor_value_info(self.result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "constant", [], [output], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        upgraded = upgrade(model, opset)
        if upgraded.obstacles:
            return None
        graph = upgraded.model.graph
        return Computation(
            nodes=(*graph.node,), tensors=(*graph.initializer,), result=self.result, opset=opset
        )
