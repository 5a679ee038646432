"""Application of a plan's edits to the ModelProto that a Graph was read from. Decides nothing: an
edit prescribes every change.
"""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import onnx
import onnx.helper

from mezzo.common.errors import InputError
from mezzo.contracts.plans import (
    AddCast,
    AddCopy,
    Edit,
    Retype,
    Rewire,
    RunDynamic,
    StoreInBlocks,
)
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.onnx.edit.computed_weights import ComputedWeights
from mezzo.onnx.edit.dynamic import Dynamic
from mezzo.onnx.edit.forms import Form, Forms
from mezzo.onnx.edit.fused_blocks import FusedBlocks
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.edit.quantizing import QuantizedForms
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.protos.attributes import constant_tensor, find, own_tensor, set_int
from mezzo.onnx.read.functions import replace_functions
from mezzo.onnx.read.handles import Handles, OperandPlace, ResultPlace
from mezzo.onnx.read.origins import copy_origin, name_node, served
from mezzo.onnx.schema.domains import canonical
from mezzo.onnx.schema.infos import retype_infos, state_casts
from mezzo.onnx.schema.special import SPECIAL, TYPED_BY_ATTRIBUTE
from mezzo.onnx.schema.types import TO_ONNX, retype_proto


def apply(graph: Graph, handles: Handles, edits: Sequence[Edit], blobs: Blobs) -> None:
    """Edit the model in place. Graph and handles must not be used afterwards."""
    applier = _Applier(graph, handles, blobs)
    applier.forms.note(edits)
    applier.carry_out(edits)
    applier.finish()


# EyeLike, RandomNormalLike and others: an attribute overrides the dtype of the operand.
_LIKE = frozenset(
    op for (_, op), row in SPECIAL.items() if row.any_inputs and row.dtype_attribute is not None
)
# Without a dtype attribute, the output dtype follows from the operands.
_FOLLOWING = frozenset({"DequantizeLinear", "QuantizeLinear"})


class _Applier:
    def __init__(self, graph: Graph, handles: Handles, blobs: Blobs) -> None:
        self.graph, self.handles, self.blobs = graph, handles, blobs
        self.forms = Forms(graph, handles)
        self.names = self.forms.names
        self.casts: dict[DType, onnx.NodeProto] = {}  # one per dtype, copied for every cast
        # Outputs of Casts without effect, which remain as they have the name of a graph output.
        self.names_only: set[Form] = set()
        self.added: dict[int, list[Form]] = {}  # outputs of inserted casts, by scope
        self.placement = Placement(graph, handles)
        self.quantizing = QuantizedForms(graph, handles, self.forms, self.placement, blobs)
        self.dynamic = Dynamic(graph, handles, self.forms, self.placement, self.quantizing)
        self.fused = FusedBlocks(graph, handles, self.forms, self.placement, self.quantizing, blobs)

    # -- edits -------------------------------------------------------------------------------------

    def carry_out(self, edits: Sequence[Edit]) -> None:
        # `type(edit) is` instead of `match`: a model has tens of thousands of edits, most of them
        # of one kind.
        graph = self.graph
        # Constants are quantized before a Retype rounds them. A dequantized value that replaces its
        # base form must come before the casts that read it.
        first, last = self.quantizing.in_turns(edits)
        self.quantizing.quantize(first)
        self.dynamic.store(edit for edit in edits if isinstance(edit, RunDynamic))
        for edit in edits:
            if type(edit) is StoreInBlocks:
                is_fused = edit.storage.form.is_fused
                store = self.fused.store if is_fused else self.quantizing.store_in_blocks
                store(edit)
        stated = self.handles.declared.keys() | self.handles.tensors.keys()
        for edit in edits:
            if type(edit) is Retype:
                producer = graph.nodes[graph.values[edit.value].producer]
                op = producer.signature.op
                if edit.value in stated or producer.kind is not Kind.OP or op in TYPED_BY_ATTRIBUTE:
                    self.retype(edit.value, edit.dtype, edit.limit)
            elif type(edit) is Rewire:
                self.rewire(edit.node, edit.operand, edit.value, edit.dtype)
            elif type(edit) is AddCast:
                self.add_cast(edit.value, edit.dtype)
            elif type(edit) is AddCopy:
                self.add_copy(edit.value, edit.dtype, edit.limit)
        for form in self.forms.lacking(last):  # sources need no AddCopy in a plan
            self.add_copy(*form, None)
        self.quantizing.quantize(last)

    def retype(self, value: int, dtype: DType, limit: float | None) -> None:
        producer = self.graph.nodes[self.graph.values[value].producer]
        for info in self.handles.declared.get(value, ()):
            retype_proto(info.type, dtype)
        tensor = self.handles.tensors.get(value)
        proto = self.handles.protos[producer.id]
        if value in self.quantizing.in_blocks:
            return  # its scales have the dtype
        if tensor is not None:
            tensor = tensor if proto is None else own_tensor(proto, tensor)
            self.blobs.retarget(tensor, dtype, limit)
        elif proto is not None and producer.kind is Kind.SOURCE:
            set_int(proto, "to", TO_ONNX[dtype])
        elif proto is not None and producer.kind is Kind.OP and producer.op in TYPED_BY_ATTRIBUTE:
            self._set_dtype_attribute(producer, proto, dtype, limit)

    def _set_dtype_attribute(
        self, node: Node, proto: onnx.NodeProto, dtype: DType, limit: float | None
    ) -> None:
        row = SPECIAL.get((canonical(proto.domain), proto.op_type))
        if row is None or row.dtype_attribute is None or row.fixed_outputs:
            return
        attribute = find(proto, row.dtype_attribute)
        if row.dtype_attribute == "value":  # ConstantOfShape
            if attribute is None:
                attribute = proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
                attribute.t.CopyFrom(
                    onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.0])
                )
            self.blobs.retarget(attribute.t, dtype, limit)
        elif attribute is not None or node.op not in _FOLLOWING:
            set_int(proto, row.dtype_attribute, TO_ONNX[dtype])

    def add_cast(self, value: int, dtype: DType) -> None:
        origin = self.graph.values[value]
        name = self.forms.made_name((value, dtype))
        if dtype not in self.casts:
            to = onnx.AttributeProto(name="to", type=onnx.AttributeProto.INT, i=TO_ONNX[dtype])
            self.casts[dtype] = onnx.NodeProto(op_type="Cast", attribute=[to])
        cast = onnx.NodeProto()
        cast.CopyFrom(self.casts[dtype])  # deepcopy takes twice as long, and models have many casts
        cast.input.append(self.forms.native_name(value))
        cast.output.append(name)
        cast.name = self._node_name(value, name)
        readers = (
            use for use in self.graph.uses[value] if self.forms.rewired.get(use) == (value, dtype)
        )
        copy_origin(cast, served(self.handles, origin.producer, readers))
        self.added.setdefault(origin.scope, []).append((value, dtype))
        self.placement.add(origin.scope, self.placement.behind(value), cast)

    def _node_name(self, value: int, name: str) -> str:
        return self.forms.fresh_node(value, name if name.endswith("cast") else f"{name}_cast")

    def add_copy(self, value: int, dtype: DType, limit: float | None) -> None:
        name, origin = self.forms.name_of((value, dtype)), self.graph.values[value]
        proto, tensor = self.handles.protos[origin.producer], self.handles.tensors.get(value)
        if proto is None:
            assert tensor is not None, "a source without a node is a weight"
            owner = self.handles.graph(origin.scope)
            copy = owner.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = name
            self.blobs.retarget(copy, dtype, limit)
            if value in self.handles.declared:  # IR 3 lists weights among the inputs
                info = owner.input.add()
                info.CopyFrom(self.handles.declared[value][0])
                info.name = name
                retype_proto(info.type, dtype)
            return
        node = deepcopy(proto)
        node.output[0] = name
        node.name = self._node_name(value, name)
        if tensor is None:
            set_int(node, "to", TO_ONNX[dtype])
        else:
            constant = constant_tensor(node.attribute[0])
            assert constant is not None, "a source with a tensor is a Constant"
            if node.attribute[0].ref_attr_name:
                constant = tensor
            self.blobs.retarget(own_tensor(node, constant), dtype, limit)
        self.placement.add(origin.scope, origin.producer, node)

    def rewire(self, node: int, operand: int, value: int, dtype: DType) -> None:
        if self.graph.nodes[node].kind is Kind.OUTPUT:
            return
        use = Use(node, operand)
        name, place = self.forms.name_of((value, dtype)), self.handles.places.get(use)
        scope = self.graph.values[value].scope
        if isinstance(place, ResultPlace) and place.owner is not self.handles.owners[scope]:
            name = self._bring_in(name, value, place)
        self._write_use(use, name)

    def _bring_in(self, name: str, value: int, place: ResultPlace) -> str:
        """Name of a captured value inside a subgraph. A subgraph can output only values that its
        own nodes produce, so an Identity is added.
        """
        scope = next(s for s, owner in enumerate(self.handles.owners) if owner is place.owner)
        result = self.names.fresh(self.handles.containers[scope], f"{name}_inside")
        identity = _identity(name, result, self._node_name(value, result))
        self.placement.add(scope, None, identity)
        return result

    def _write_use(self, use: Use, name: str) -> None:
        place = self.handles.places.get(use)
        if place is None:
            self.handles.proto(use.node).input[use.operand] = name
        elif isinstance(place, OperandPlace):
            place.proto.input[place.position] = name
        elif isinstance(place.owner, onnx.FunctionProto):
            place.owner.output[place.position] = name
        else:
            place.owner.output[place.position].name = name

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        self._show_outputs()
        self._rename_natives()
        self.quantizing.rename_makers()
        dropped = self._drop_casts()
        dropped |= self.quantizing.drop_floats(dropped)
        self.dynamic.put_in_place()
        self.fused.put_in_place()
        ComputedWeights(self.handles, self.names, self.placement, self.blobs).write()
        self._write_explicit_dtypes()
        self._retype_infos()
        self.placement.place(dropped)
        if any(form in self.forms.wanted for form in self.handles.forms):
            self.placement.sort()  # a Cast of the source model may have users before it now
            self.handles.is_resorted = True
        replace_functions(self.handles)

    def _show_outputs(self) -> None:
        for number, (public, form) in self.forms.public.items():
            place, output = self.handles.places[Use(number, 0)], self.graph.nodes[number]
            dtype = HIGH if form[1] in QUANTIZED else form[1]
            if dtype is not output.signature.dtype:
                retype_proto(self.handles.model.graph.output[place.position].type, dtype)
            if self.forms.name_of(form) == public:
                continue
            if self.forms.by_form.get(form) == public:  # a Cast without effect has the name
                self.names_only.add(form)
                continue
            name = self.forms.fresh_node(form[0], f"{public}_identity")
            node = _identity(self.forms.name_of(form), public, name)
            self.placement.add(output.scope, self.graph.values[form[0]].producer, node)

    def _rename_natives(self) -> None:
        if len(self.graph.scopes) > 1:
            _ = self.placement.control_protos  # cache it before outputs are renamed
        for value, name in self.forms.renamed.items():
            origin = self.graph.values[value]
            producer = self.graph.nodes[origin.producer]
            proto = self.handles.protos[producer.id]
            if producer.kind is Kind.TIE:
                proto = self.placement.control_proto(producer.id, origin.name)
            if proto is None:
                raise InputError(
                    f"{origin.name!r} is an input or a weight and an output as well, so both have"
                    " one dtype; ask the same of both"
                )
            name_node(proto, producer.name if producer.kind is Kind.OP else None)
            proto.output[:] = [name if output == origin.name else output for output in proto.output]
            for use in self.graph.uses[value]:
                if (
                    use not in self.forms.rewired
                    and self.graph.nodes[use.node].kind is not Kind.OUTPUT
                ):
                    self._write_use(use, name)

    def _drop_casts(self) -> set[int]:
        """Ids of the source model's Cast protos that have no users any more. The other Casts are
        connected to the uncast value.
        """
        if not self.handles.casts:
            return set()
        needed = {
            form for form in self.forms.wanted if form[1] is not self.forms.native_dtype(form[0])
        } | self.names_only
        bypassed = {
            node.id
            for node in self.graph.nodes
            if node.kind is Kind.CAST
            and node.outputs[0] is not None
            and self._is_passed_by(node.outputs[0])
        }
        by_proto = {
            id(proto): number
            for number, proto in enumerate(self.handles.protos)
            if proto is not None
        }
        # Each call of a function has a copy with the same names: names identify values only within
        # a container.
        originals = {
            (id(self.forms.container(form[0])), name): form
            for form, name in self.handles.forms.items()
        }
        dropped: set[int] = set()
        for scope, proto in self.handles.casts:
            number = by_proto.get(id(proto))
            form = originals.get((id(self.handles.containers[scope]), proto.output[0]))
            is_needed = form in needed or (number is not None and number not in bypassed)
            if not is_needed:
                dropped.add(id(proto))
                continue
            if form is not None:
                proto.output[0] = self.forms.cast_name(form)
                proto.input[0] = self.forms.native_name(form[0])
                # The Cast has no effect, but produces a graph output's name: make it an Identity.
                # A Cast to FP32 may stay: it lowers no precision.
                if form[1] is self.forms.native_dtype(form[0]) and form[1] is not HIGH:
                    proto.op_type = "Identity"
                    del proto.attribute[:]
                    self.handles.made.append((scope, proto))
            elif number is not None:
                operand = self.graph.nodes[number].inputs[0]
                assert operand is not None, "a Cast has an operand"
                proto.input[0] = self.forms.native_name(operand)
        return dropped

    def _is_passed_by(self, value: int) -> bool:
        """Whether all users of a Cast's output are rewired to other values."""
        forms = (self.forms.rewired.get(use) for use in self.graph.uses[value])
        return all(form is not None and form[0] != value for form in forms)

    def _write_explicit_dtypes(self) -> None:
        """Set the dtype attribute of EyeLike and similar operators whose output dtype now differs
        from the operand's, which is the default.
        """
        columns = self.graph.columns
        is_like = np.array([signature.op in _LIKE for signature in columns.signatures], bool)
        for number in np.flatnonzero(is_like[columns.node_signature]).tolist():
            node, proto = self.graph.nodes[number], self.handles.protos[number]
            if proto is None or node.kind is not Kind.OP or node.inputs[0] is None:
                continue
            row = SPECIAL.get((proto.domain, proto.op_type))
            if row is None or row.dtype_attribute is None or find(proto, row.dtype_attribute):
                continue
            output = node.outputs[0]
            dtype = None if output is None else self.forms.native_dtype(output)
            if dtype is not None and dtype is not self.forms.native_dtype(node.inputs[0]):
                set_int(proto, row.dtype_attribute, TO_ONNX[dtype])

    def _retype_infos(self) -> None:
        """Update value_info: renamed and retyped values, and entries for inserted casts."""
        changed: dict[int, dict[str, tuple[str, DType]]] = {}
        info_scopes = {scope for scope, owner in enumerate(self.handles.owners) if owner.value_info}
        for value in {*self.forms.native, *self.forms.renamed} if info_scopes else ():
            origin = self.graph.values[value]
            if origin.scope not in info_scopes:
                continue
            dtype = self.forms.native_dtype(value)
            assert dtype is not None, "only typed values are edited"
            names = changed.setdefault(origin.scope, {})
            names[origin.name] = self.forms.native_name(value), dtype
        for scope, names in changed.items():
            retype_infos(self.handles.owners[scope], names)
        for scope, casts in self.added.items():
            state_casts(
                self.handles.owners[scope],
                [
                    (self.forms.native_name(value), self.forms.name_of((value, dtype)), dtype)
                    for value, dtype in casts
                ],
            )
        self.quantizing.state_infos()


def _identity(source: str, result: str, name: str) -> onnx.NodeProto:
    return onnx.NodeProto(op_type="Identity", input=[source], output=[result], name=name)
