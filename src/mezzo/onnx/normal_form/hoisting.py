"""Hoisting of matmul weights from subgraphs to the main graph, for quantization by name."""

from onnx import TensorProto

from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.protos.entries import add_initializer
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.tables.quantized_kernels import DYNAMIC_WEIGHTS

# Before IR version 4, callers may feed every initializer of the main graph.
_INITIALIZERS_ARE_FIXED_SINCE = 4


def hoist_weights(scope: GraphScope) -> bool:
    """Move weights of dynamically quantizable matmuls to the main graph; True if any."""
    if scope.graph is scope.model.graph or scope.model.ir_version < _INITIALIZERS_ARE_FIXED_SINCE:
        return False
    hoisted: dict[str, str] = {}
    defined = {tensor.name for tensor in scope.graph.initializer} | scope.makers.keys()
    for node in scope.graph.node:
        if node.op_type not in DYNAMIC_WEIGHTS["onnx"] or node.domain not in DEFAULT:
            continue
        for position, name in enumerate(node.input):
            tensor = scope.constants.get(name) if name in defined else None
            if tensor is None or len(tensor.dims) < 2 or tensor.data_type != TensorProto.FLOAT:
                continue
            if name not in hoisted:
                hoisted[name] = fresh_name(scope.taken, name)
                add_initializer(scope.model, scope.model.graph, tensor, hoisted[name])
            node.input[position] = hoisted[name]
    return bool(hoisted)
