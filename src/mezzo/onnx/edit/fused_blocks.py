"""Weights in blocks whose readers become operators of ONNX Runtime that read integers: MatMulNBits
in place of MatMul and Gemm, GatherBlockQuantized in place of Gather.

Source: ONNX Runtime 1.32, docs/ContribOperators.md and its CPU kernels, which were run.
"""

from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mezzo.common.errors import ContractError
from mezzo.contracts.plans import StoreInBlocks
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.ir.weight_reads import weight_reads
from mezzo.onnx.edit.dynamic_products import RUNTIME_DIALECT
from mezzo.onnx.edit.forms import Forms
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.edit.quantizing import QuantizedForms
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.block_payloads import BlockPart
from mezzo.onnx.protos.metadata import ACTIVATION_BLOCK, set_number
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import canonical, import_domain

_LEAST_BLOCK = 16
_TABLE = "Gather"
_BIAS = 2
# Attributes that MatMulNBits has no counterpart of, with the values at which they do nothing.
_NEUTRAL = {"alpha": 1.0, "beta": 1.0, "transA": 0}


class _Reader(NamedTuple):
    """An operator that reads a weight, and the names of its parts: integers in rows, scales, and
    zero points if there are any. `row_shape`: name of the shape that a table's integers have to be
    given if they are stored as a product reads them, else "".
    """

    node: Node
    storage: BlockStorage
    shape: tuple[int, ...]
    parts: tuple[str, ...]
    row_shape: str


class FusedBlocks:
    """Applies `StoreInBlocks` edits of the fused forms."""

    def __init__(
        self,
        graph: Graph,
        handles: Handles,
        forms: Forms,
        placement: Placement,
        quantizing: QuantizedForms,
        blobs: Blobs,
    ) -> None:
        self._graph, self._handles, self._forms = graph, handles, forms
        self._placement, self._quantizing, self._blobs = placement, quantizing, blobs
        self._readers: list[_Reader] = []
        self._transposes: dict[int, Node] = {}  # between weights and their readers, by id

    def store(self, edit: StoreInBlocks) -> None:
        """Store a weight as integers. Called before other edits change the float weight.

        Raises ContractError: it is no dense constant of a shape that the operators read, or one of
        its readers has no such operator.
        """
        number, storage = edit.value, edit.storage
        problem = self._problem(number, storage)
        readers = [] if problem else self._nodes(number)
        problem = problem or (None if readers else "nothing reads it")
        for node, through in readers:
            reason = self._objection(node, through, number, storage)
            problem = problem or (reason and f"{node.op} {node.name!r} reads it, {reason}")
        if problem:
            name = self._graph.values[number].name
            raise ContractError(
                f"weight {name!r} cannot be stored in blocks of form {storage.form.value!r}:"
                f" {problem}; take form {BlockForm.DEQUANTIZE.value!r} or leave it out"
            )
        tensor = self._handles.tensors[number]
        shape = tuple(tensor.dims)
        has_products = any(node.op != _TABLE for node, _ in readers)
        has_tables = any(node.op == _TABLE for node, _ in readers)
        width = shape[storage.axis]
        is_shared = has_products and has_tables and storage.shares_tables(width)

        def hold(part: BlockPart, word: str) -> str:
            return self._quantizing.hold(number, word, self._blobs.in_blocks(tensor, storage, part))

        rows = hold(BlockPart.INTEGERS, "quantized") if has_products else ""
        table = rows
        row_shape = ""
        if is_shared:
            lengths = np.array([-1, width * storage.bits // 8], np.int64)
            row_shape = self._quantizing.hold(number, "shape", numpy_helper.from_array(lengths))
        elif has_tables:
            table = hold(BlockPart.TABLE, "quantized_table" if has_products else "quantized")
        rest = [hold(BlockPart.SCALES, "scale")]
        if not storage.is_symmetric:
            rest.append(hold(BlockPart.ZERO_POINTS, "zero_point"))
        for node, through in readers:
            if through is not None:
                self._transposes[through.id] = through
            is_table = node.op == _TABLE
            parts = (table if is_table else rows, *rest)
            self._readers.append(_Reader(node, storage, shape, parts, row_shape))
        self._quantizing.stored.append(number)
        self._quantizing.in_blocks.add(number)

    def _problem(self, number: int, storage: BlockStorage) -> str | None:
        """Why a value cannot be stored so, whatever reads it; None if it can."""
        if not self._quantizing.is_stored(number):
            return "it is no dense constant"
        shape = list(self._handles.tensors[number].dims)
        if len(shape) != 2:
            return f"its shape is {shape}, and the operators read matrices"
        if storage.block < _LEAST_BLOCK or storage.block & (storage.block - 1):
            return f"its blocks are of {storage.block}, wanted a power of two from {_LEAST_BLOCK}"
        return None

    def _nodes(self, number: int) -> list[tuple[Node, Node | None]]:
        """The nodes that read a weight after the edits, once per operand, and the Transpose that
        lies between.
        """
        nodes = self._graph.nodes
        between = {through for _, through in weight_reads(self._graph, number)}
        readers: list[tuple[Node, Node | None]] = []
        for use in self._uses(number):
            if use.node not in between:
                readers.append((nodes[use.node], None))
                continue
            (result,) = nodes[use.node].outputs
            assert result is not None, "operators read it"
            readers += ((nodes[later.node], nodes[use.node]) for later in self._uses(result))
        return readers

    def _uses(self, number: int) -> list[Use]:
        rewired = self._forms.rewired
        uses = {use for use, form in rewired.items() if form[0] == number}
        uses.update(use for use in self._graph.uses[number] if use not in rewired)
        return sorted(uses)

    def _objection(
        self, node: Node, through: Node | None, number: int, storage: BlockStorage
    ) -> str | None:
        """Why an operator has no counterpart that reads the integers; None if it has one."""
        weight = number
        if through is not None:
            form = self._forms.rewired.get(Use(through.id, 0), (number, storage.scale_dtype))
            if form[1] is not storage.scale_dtype:
                return f"through a Transpose as {form[1]}, and its scales are {storage.scale_dtype}"
            (result,) = through.outputs
            assert result is not None, "operators read it"
            number = result
        proto = self._handles.protos[node.id] if node.kind is Kind.OP else None
        if proto is None or canonical(proto.domain) or node.op not in ("MatMul", "Gemm", _TABLE):
            return "which is no MatMul, Gemm or Gather"
        if any(attribute.ref_attr_name for attribute in proto.attribute):
            return "with attributes that a call of its function states"
        operand = 0 if node.op == _TABLE else 1
        if [place for place, value in enumerate(node.inputs) if value == number] != [operand]:
            return f"not as operand {operand} alone"
        form = self._forms.rewired.get(Use(node.id, operand), (number, storage.scale_dtype))
        if form[1] is not storage.scale_dtype:
            return f"as {form[1]}, and its scales are {storage.scale_dtype}"
        tensor = self._handles.tensors[weight]
        if node.op == _TABLE:
            return self._table_objection(node, through, tensor.dims[storage.axis], storage)
        attributes = node.attributes
        is_transposed = bool(attributes.get("transB", 0)) != (through is not None)
        if any(attributes.get(name, value) != value for name, value in _NEUTRAL.items()):
            return f"with others than {', '.join(f'{k}={v}' for k, v in _NEUTRAL.items())}"
        if storage.axis != int(is_transposed):
            return f"along axis {int(is_transposed)}, and its blocks are along axis {storage.axis}"
        bias = node.inputs[_BIAS] if len(node.inputs) > _BIAS else None
        columns = tensor.dims[0 if is_transposed else 1]
        if bias is not None and self._graph.shapes.get(bias) != (columns,):
            return f"with a bias that is no vector of {columns}"
        return None

    @staticmethod
    def _table_objection(
        node: Node, through: Node | None, width: int, storage: BlockStorage
    ) -> str | None:
        along = 1 if through is None else 0
        if node.attributes.get("axis", 0) not in (0, -2) or storage.axis != along:
            return f"and GatherBlockQuantized reads rows with blocks along axis {along}"
        return (
            f"and its rows of {width} elements end in half a byte"
            if (width * storage.bits % 8)
            else None
        )

    def put_in_place(self) -> None:
        """Replace the readers, and remove the Transposes between. Called when the names of all
        operands are final.
        """
        for number, node in self._transposes.items():
            self._placement.remove(node.scope, self._handles.proto(number))
        for reader in self._readers:
            proto, node = self._handles.proto(reader.node.id), reader.node
            name_node(proto, node.name)
            if node.op == _TABLE:
                self._replace_gather(proto, reader)
            else:
                self._replace_product(proto, reader)
            dialect, version = RUNTIME_DIALECT
            import_domain(self._handles.model, dialect, version)
            root = self._handles.containers[node.scope].root
            if isinstance(root, onnx.FunctionProto):
                import_domain(root, dialect, version)

    def _replace_product(self, proto: onnx.NodeProto, reader: _Reader) -> None:
        storage, shape = reader.storage, reader.shape
        if storage.activation_block and shape[storage.axis] % storage.activation_block == 0:
            set_number(proto, ACTIVATION_BLOCK, storage.activation_block)
        bias = proto.input[_BIAS] if len(proto.input) > _BIAS else ""
        operands = [proto.input[0], *reader.parts]
        if bias:
            operands += [*[""] * (5 - len(operands)), bias]
        _rewrite(
            proto, "MatMulNBits", operands, K=shape[storage.axis], N=shape[1 - storage.axis],
            bits=storage.bits, block_size=storage.block, accuracy_level=storage.accuracy_level,
        )  # fmt: skip

    def _replace_gather(self, proto: onnx.NodeProto, reader: _Reader) -> None:
        storage, node = reader.storage, reader.node
        integers, *rest = reader.parts
        if reader.row_shape:
            container = self._handles.containers[node.scope]
            table = self._forms.names.fresh(container, f"{integers}_table")
            reshape = helper.make_node("Reshape", [integers, reader.row_shape], [table])
            reshape.name = self._forms.names.fresh_node(container, table)
            reshape.metadata_props.extend(proto.metadata_props)
            self._placement.add_before(node.scope, node.id, reshape)
            integers = table
        _rewrite(
            proto, "GatherBlockQuantized", [integers, proto.input[1], *rest], gather_axis=0,
            quantize_axis=1, bits=storage.bits, block_size=storage.block,
        )  # fmt: skip


def _rewrite(proto: onnx.NodeProto, op: str, operands: list[str], **attributes: int) -> None:
    """Make a node another operator of ONNX Runtime, under its name and with its results."""
    proto.op_type, proto.domain = op, RUNTIME_DIALECT[0]
    del proto.input[:], proto.attribute[:]
    proto.input.extend(operands)
    proto.attribute.extend(helper.make_attribute(name, v) for name, v in attributes.items())
