"""Undo constant folding of weights: a matmul or convolution weight that the source model computes
from smaller constants, such as INT8 numbers and scales, is written as that computation if it stays
in float. So folding makes no file larger.
"""

from copy import deepcopy

import onnx
from onnx import TensorProto, helper

from mezzo.formats.dtypes import FLOATING, HIGH
from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.files.blobs import Blobs, Stored
from mezzo.onnx.files.computation import Computation
from mezzo.onnx.protos.entries import add_initializer, remove_named
from mezzo.onnx.protos.names import UsedNames
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.schema.types import TO_ONNX


class ComputedWeights:
    """Replaces float weights by the computations that they were folded from, after a plan's edits
    are applied.
    """

    def __init__(
        self, handles: Handles, names: UsedNames, placement: Placement, blobs: Blobs
    ) -> None:
        self._handles, self._names, self._placement, self._blobs = handles, names, placement, blobs
        self._held: dict[tuple[int, bytes], str] = {}  # names, by scope and tensor

    def write(self) -> None:
        """Add the computations' operators and constants, and remove the folded weights."""
        opset = default_opset(self._handles.model)
        for scope, owner in enumerate(self._handles.owners):
            if opset is None or not isinstance(owner, onnx.GraphProto):
                continue
            for tensor in [*owner.initializer]:
                computation = self._computation_of(self._blobs.stored(tensor))
                upgraded = None if computation is None else computation.at_opset(opset)
                if upgraded is not None:
                    self._write(scope, owner, tensor, upgraded)

    def _computation_of(self, stored: Stored | None) -> Computation | None:
        """The computation of a large weight; None if its values have changed since folding."""
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
        nodes = [deepcopy(node) for node in computation.nodes]
        if tensor.data_type != TO_ONNX[HIGH]:
            result = self._names.fresh(container, f"{tensor.name}_computed")
            nodes.append(
                helper.make_node("Cast", [computation.result], [result], to=tensor.data_type)
            )
        names = {
            constant.name: self._hold(scope, owner, constant) for constant in computation.tensors
        } | {result: tensor.name}
        for node in nodes:
            for output in filter(None, node.output):
                if output not in names:
                    names[output] = self._names.fresh(container, f"{tensor.name}_{node.op_type}")
            node.input[:] = [names.get(name, "") for name in node.input]
            node.output[:] = [names.get(output, "") for output in node.output]
            node.name = self._names.fresh_node(container, next(filter(None, node.output)))
            self._placement.add(scope, None, node)
        removed = {tensor.name}
        remove_named(owner.initializer, removed)
        if scope == 0:
            remove_named(owner.input, removed)

    def _hold(self, scope: int, owner: onnx.GraphProto, tensor: TensorProto) -> str:
        """Name of the initializer that equals `tensor`; it is added if the model has none."""
        key = tensor.SerializeToString(deterministic=True)
        if (scope, key) not in self._held:
            visible = [*self._handles.model.graph.initializer, *owner.initializer]
            name = next(
                (initializer.name for initializer in visible if initializer == tensor), None
            )
            if name is None:
                name = self._names.fresh(self._handles.containers[scope], tensor.name)
                add_initializer(self._handles.model, owner, tensor, name)
            self._held[scope, key] = name
        return self._held[scope, key]
