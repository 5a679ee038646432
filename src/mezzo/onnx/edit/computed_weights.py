"""Weights of products that were computed from smaller constants, such as INT8 numbers, a Cast and
scales: a result that stores one in floats holds what it was computed from in its place, so no file
is larger for what was folded.
"""

import onnx
from onnx import TensorProto, helper

from mezzo.formats.dtypes import FLOATING, HIGH
from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.files.blobs import Blobs, Stored
from mezzo.onnx.files.computation import Computation, copy_of
from mezzo.onnx.normal_form.use_counts import add_initializer, drop_named
from mezzo.onnx.protos.names import UsedNames
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.schema.types import TO_ONNX


class ComputedWeights:
    """Puts computations in place of weights that are stored in floats, in a model that edits were
    applied to.
    """

    def __init__(
        self, handles: Handles, names: UsedNames, placement: Placement, blobs: Blobs
    ) -> None:
        self._handles, self._names, self._placement, self._blobs = handles, names, placement, blobs
        self._held: dict[tuple[int, bytes], str] = {}  # by scope and tensor

    def write(self) -> None:
        """Note the operators for their graphs, add the constants, and take the weights out."""
        opset = default_opset(self._handles.model)
        for scope, owner in enumerate(self._handles.owners):
            if opset is None or not isinstance(owner, onnx.GraphProto):
                continue
            for tensor in [*owner.initializer]:
                computation = self._computation_of(self._blobs.stored(tensor))
                held = None if computation is None else computation.at_opset(opset)
                if held is not None:
                    self._write(scope, owner, tensor, held)

    def _computation_of(self, stored: Stored | None) -> Computation | None:
        if (
            stored is None
            or stored.dtype not in FLOATING
            or stored.quantized
            or stored.through
            or stored.limit
        ):
            return None
        blob = self._blobs.blobs[stored.blob]
        return blob.computation if blob.factors is None else None

    def _write(
        self, scope: int, owner: onnx.GraphProto, tensor: TensorProto, computation: Computation
    ) -> None:
        container, result = self._handles.containers[scope], computation.result
        nodes = [copy_of(node) for node in computation.nodes]
        if tensor.data_type != TO_ONNX[HIGH]:
            result = self._names.fresh(container, f"{tensor.name}_computed")
            nodes.append(
                helper.make_node("Cast", [computation.result], [result], to=tensor.data_type)
            )
        names = {held.name: self._hold(scope, owner, held) for held in computation.tensors} | {
            result: tensor.name
        }
        for node in nodes:
            for made in filter(None, node.output):
                if made not in names:
                    names[made] = self._names.fresh(container, f"{tensor.name}_{node.op_type}")
            node.input[:] = [names.get(read, "") for read in node.input]
            node.output[:] = [names.get(made, "") for made in node.output]
            node.name = self._names.fresh_node(container, next(filter(None, node.output)))
            self._placement.add(scope, None, node)
        unread = {tensor.name}
        drop_named(owner.initializer, unread)
        if scope == 0:
            drop_named(owner.input, unread)

    def _hold(self, scope: int, owner: onnx.GraphProto, tensor: TensorProto) -> str:
        """The name of a constant: that of the model where it still has it, else of one more."""
        key = tensor.SerializeToString(deterministic=True)
        if (scope, key) not in self._held:
            visible = [*self._handles.model.graph.initializer, *owner.initializer]
            name = next((held.name for held in visible if held == tensor), None)
            if name is None:
                name = self._names.fresh(self._handles.containers[scope], tensor.name)
                add_initializer(self._handles.model, owner, tensor).name = name
            self._held[scope, key] = name
        return self._held[scope, key]
