"""Static quantization in QDQ format: insert QuantizeLinear and DequantizeLinear pairs and store
weights as integers, as a plan's `Quantize` edits ask.

Operators keep FP32 inputs and outputs: runtimes fuse the pairs around an operator into an integer
kernel.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.common.errors import ContractError
from mezzo.contracts.plans import Edit, Quantize, StoreInBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Use
from mezzo.onnx.edit.forms import Forms
from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.block_payloads import BlockPart
from mezzo.onnx.files.quantized_payloads import payload_of
from mezzo.onnx.protos.attributes import set_int
from mezzo.onnx.protos.constants import constant_of, sparse_of
from mezzo.onnx.protos.entries import DEFAULTS_SINCE, remove_named
from mezzo.onnx.protos.metadata import ACTIVATION_BLOCK, set_number
from mezzo.onnx.protos.rounding import STORAGE
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.read.origins import copy_origin, name_node, served
from mezzo.onnx.schema.infos import state_casts, state_shapes

# Opset from which DequantizeLinear takes integers of four bits, and `block_size`.
_BLOCKS_SINCE = 21
_WORDS = {
    BlockPart.INTEGERS: "quantized",
    BlockPart.SCALES: "scale",
    BlockPart.ZERO_POINTS: "zero_point",
}


class QuantizedForms:
    """Adds quantized forms of values. Their nodes are queued in `placement`."""

    def __init__(
        self, graph: Graph, handles: Handles, forms: Forms, placement: Placement, blobs: Blobs
    ) -> None:
        self.graph, self.handles, self.forms = graph, handles, forms
        self.placement, self.blobs = placement, blobs
        self.stored: list[int] = []  # constants stored as integers
        self.in_blocks: set[int] = set()  # of them, those with a scale per block
        # Names of the integers and the scales of quantized weights.
        self._held: dict[tuple[int, Quantization], tuple[str, str]] = {}
        # By scope: value name, and a new value of the same shape with its dtype.
        self._alike: dict[int, list[tuple[str, str, DType]]] = {}
        # By scope: dequantized weights and their shapes.
        self._shaped: dict[int, list[tuple[str, Sequence[int]]]] = {}

    def in_turns(self, edits: Sequence[Edit]) -> tuple[list[Quantize], list[Quantize]]:
        """Split Quantize edits into those applied before all other edits, and those applied last,
        as they read the casts of other edits.
        """
        first: list[Quantize] = []
        last: list[Quantize] = []
        for edit in edits:
            if type(edit) is Quantize:
                is_native = edit.takes_over and self.forms.native_dtype(edit.value) is HIGH
                (first if is_native or self.is_stored(edit.value) else last).append(edit)
        return first, last

    def quantize(self, edits: Iterable[Quantize]) -> None:
        """Apply Quantize edits: to constants by storing integers, else by inserting nodes."""
        for edit in edits:
            if self.is_stored(edit.value):
                self._store(edit)
            else:
                self._compute(edit)

    def is_stored(self, value: int) -> bool:
        """Whether a value is a dense constant, which can be stored as integers."""
        graph, handles = self.graph, self.handles
        return (
            constant_of(graph, handles, value) is not None
            and sparse_of(graph, handles, value) is None
        )

    def _compute(self, edit: Quantize) -> None:
        """Quantize an activation: insert the pair after the producer of the FP32 value.

        Raises ContractError: its dtype is INT32, which only constants can have.
        """
        number, how = edit.value, edit.how
        value = self.graph.values[number]
        if how.dtype is DType.INT32:
            raise ContractError(
                f"value {value.name!r} cannot be quantized: {how.dtype} holds constants alone; take"
                " i8 or u8"
            )
        shape = self.graph.shapes.get(number) if self._names[value.name] == 1 else None
        if shape is not None or how.axis is None:
            payload_of(how, shape or (), value.name)
        base = self.forms.made_name((number, HIGH))
        quantized = self.forms.fresh(number, "quantized")
        parameters = self._parameters(number, how)
        result = self.forms.name_of((number, how.format))
        self._add(number, "QuantizeLinear", [base, *parameters], quantized, how.axis)
        self._add(number, "DequantizeLinear", [quantized, *parameters], result, how.axis)
        native = self.forms.native_name(number)
        same_shape = self._alike.setdefault(value.scope, [])
        same_shape += [
            (native, name, dtype)
            for name, dtype in ((base, HIGH), (quantized, how.dtype), (result, HIGH))
        ]

    def _store(self, edit: Quantize) -> None:
        """Store a constant as integers with a DequantizeLinear."""
        number, how = edit.value, edit.how
        value = self.graph.values[number]
        operands = [self._integers(number, how), *self._parameters(number, how)]
        self._held[number, how] = operands[0], operands[1]
        if edit.reader is None:
            result = self.forms.name_of((number, how.format))
        else:
            result = self.forms.fresh(number, "dequantized")
            self.handles.proto(edit.reader.node).input[edit.reader.operand] = result
        self._add(number, "DequantizeLinear", operands, result, how.axis)
        self._shaped.setdefault(value.scope, []).append(
            (result, tuple(self.handles.tensors[number].dims))
        )
        self.stored.append(number)

    def store_in_blocks(self, edit: StoreInBlocks) -> None:
        """Store a weight as integers in blocks, with a DequantizeLinear that takes its name.

        Raises ContractError: it is no dense constant, or the opset has no blocks.
        """
        number, storage = edit.value, edit.storage
        name = self.graph.values[number].name
        opset = default_opset(self.handles.model)
        if not self.is_stored(number):
            raise ContractError(
                f"value {name!r} cannot be stored in blocks: it is no dense constant; take it out"
            )
        if opset is None or opset < _BLOCKS_SINCE:
            raise ContractError(
                f"weight {name!r} cannot be stored in blocks at opset {opset}; make the plan for"
                f" opset {_BLOCKS_SINCE} or newer"
            )
        tensor = self.handles.tensors[number]
        parts = [
            BlockPart.INTEGERS,
            BlockPart.SCALES,
            *([] if storage.is_symmetric else [BlockPart.ZERO_POINTS]),
        ]
        tensors = [self.blobs.in_blocks(tensor, storage, part) for part in parts]
        # ONNX Runtime rejects `block_size` with a single scale.
        has_one = math.prod(storage.blocks_shape(tensor.dims)) == 1
        for parameter in tensors[1:] if has_one else ():
            del parameter.dims[:]
        operands = [
            self.hold(number, _WORDS[part], stored)
            for part, stored in zip(parts, tensors, strict=True)
        ]
        result = self.forms.native_name(number)
        self._add(number, "DequantizeLinear", operands, result, None if has_one else storage)
        if storage.activation_block and tensor.dims[storage.axis] % storage.activation_block == 0:
            for use in self.graph.uses[number]:
                proto = self.handles.protos[use.node]
                if proto is not None and use.operand == 1:
                    set_number(proto, ACTIVATION_BLOCK, storage.activation_block)
        self.stored.append(number)
        self.in_blocks.add(number)

    def hold_integers(self, number: int, how: Quantization) -> tuple[str, str]:
        """Quantize a weight for operators that read integers. Returns the names of the integers and
        of the scales. A weight that is not a dense constant gets a QuantizeLinear.
        """
        if (number, how) in self._held:
            return self._held[number, how]
        if self.is_stored(number):
            (scales,) = self._parameters(number, how, has_zeros=False)
            integers = self._integers(number, how)
            self.stored.append(number)
        else:
            scales, zeros = self._parameters(number, how)
            integers = self.forms.fresh(number, "quantized")
            self._add(
                number,
                "QuantizeLinear",
                [self.forms.made_name((number, HIGH)), scales, zeros],
                integers,
                how.axis,
            )
        self._held[number, how] = integers, scales
        return integers, scales

    # -- nodes and tensors -------------------------------------------------------------------------

    def _integers(self, number: int, how: Quantization) -> str:
        """Store the integers of a constant. Returns their name."""
        tensor = deepcopy(self.handles.tensors[number])
        tensor.name = self.graph.values[number].name
        self.blobs.quantize(tensor, how)
        return self.hold(number, "quantized", tensor)

    def _parameters(self, number: int, how: Quantization, has_zeros: bool = True) -> list[str]:
        """Names of scales and zero points; INT32 has no zero points."""
        zeros = np.array(how.zero_points, STORAGE[how.dtype])
        arrays = [("scale", np.array(how.scales, np.float32))]
        if has_zeros and how.dtype is not DType.INT32:
            arrays.append(("zero_point", zeros))
        shape = () if how.axis is None else (-1,)
        return [
            self.hold(number, word, numpy_helper.from_array(array.reshape(shape)))
            for word, array in arrays
        ]

    def hold(self, number: int, word: str, tensor: onnx.TensorProto) -> str:
        """Add a constant to a value's scope, as initializer if possible, else as Constant node.
        Returns its name.
        """
        tensor.name = self.forms.fresh(number, word)
        scope = self.graph.values[number].scope
        owner = self.handles.owners[scope]
        if isinstance(owner, onnx.GraphProto) and self.handles.model.ir_version >= DEFAULTS_SINCE:
            owner.initializer.append(tensor)
        else:
            node = onnx.NodeProto(op_type="Constant", output=[tensor.name])
            node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
            node.name = self.forms.fresh_node(number, tensor.name)
            self.placement.add(scope, self.placement.behind(number), node)
        return tensor.name

    def _add(
        self,
        number: int,
        op: str,
        operands: Sequence[str],
        result: str,
        scaled: int | BlockStorage | None,
    ) -> None:
        """Add a QuantizeLinear or DequantizeLinear. `scaled`: the axis of its scales, or blocks."""
        value = self.graph.values[number]
        verb = "quantize" if op == "QuantizeLinear" else "dequantize"
        name = self.forms.fresh_node(number, f"{value.name}_{verb}")
        node = onnx.NodeProto(op_type=op, input=operands, output=[result], name=name)
        if isinstance(scaled, BlockStorage):
            set_int(node, "axis", scaled.axis)
            set_int(node, "block_size", scaled.block)
        elif scaled is not None:
            set_int(node, "axis", scaled)
        copy_origin(node, served(self.handles, value.producer, self._readers(number)))
        self.placement.add(value.scope, self.placement.behind(number), node)

    def _readers(self, number: int) -> Iterator[Use]:
        forms = [(number, dtype) for dtype in QUANTIZED]
        return (use for use in self.graph.uses[number] if self.forms.rewired.get(use) in forms)

    @cached_property
    def _names(self) -> Counter[str]:
        """Number of values per name. Shapes are known by name, and scopes can share names."""
        return Counter(value.name for value in self.graph.values)

    # -- the end -----------------------------------------------------------------------------------

    def rename_makers(self) -> None:
        """Rename outputs of operators: the dequantized values have taken their names."""
        for number, raw in self.forms.taken_over.items():
            if self.forms.native_dtype(number) is not HIGH or self.is_stored(number):
                continue
            producer = self.graph.nodes[self.graph.values[number].producer]
            proto = self.handles.proto(producer.id)
            if producer.kind is Kind.OP:
                name_node(proto, producer.name)
            proto.output[list(proto.output).index(self.forms.native_name(number))] = raw

    def drop_floats(self, dropped: set[int]) -> set[int]:
        """Remove float weights without users. `dropped`: ids of Cast protos that will be removed,
        whose uses do not count. Returns the ids of Constant protos to remove.
        """
        unread = [number for number in self.stored if not self._is_read(number, dropped)]
        weights: dict[int, set[str]] = {}
        nodes: set[int] = set()
        for number in unread:
            value = self.graph.values[number]
            proto = self.handles.protos[value.producer]
            if proto is None:
                weights.setdefault(value.scope, set()).add(value.name)
            else:
                nodes.add(id(proto))
            if number not in self.forms.taken_over:
                remove_named(self.handles.owners[value.scope].value_info, {value.name})
        for scope, names in weights.items():
            graph = self.handles.graph(scope)
            remove_named(graph.initializer, names)
            if self.handles.model.ir_version < DEFAULTS_SINCE:
                remove_named(graph.input, names)
        return nodes

    def _is_read(self, number: int, dropped: set[int]) -> bool:
        if number in self.forms.taken_over or number in self.in_blocks:
            return False
        native = number, self.forms.native_dtype(number)
        if any(
            form[0] == number and form != native
            for form in self.forms.wanted & self.handles.forms.keys()
        ):
            return True
        protos = self.handles.protos
        uses = (use for use in self.graph.uses[number] if id(protos[use.node]) not in dropped)
        return any(self.forms.rewired.get(use, native) == native for use in uses)

    def state_infos(self) -> None:
        """Add value_info for new values, in graphs that have it."""
        for scope, alike in self._alike.items():
            state_casts(self.handles.owners[scope], alike)
        for scope, shaped in self._shaped.items():
            state_shapes(self.handles.owners[scope], shaped)
