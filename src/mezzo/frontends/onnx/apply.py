"""Apply a plan's edits to the ModelProto that a Graph was read from. Decides nothing: every change is an edit's."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx
import onnx.helper

from mezzo.core.graph import Graph
from mezzo.core.nodes import Kind, Node, Use
from mezzo.core.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.dtypes import HIGH, DType
from mezzo.errors import InputError
from mezzo.frontends.onnx.attributes import constant_tensor, find, set_int
from mezzo.frontends.onnx.blobs import Blobs
from mezzo.frontends.onnx.functions import replace_functions
from mezzo.frontends.onnx.handles import Container, Handles, OperandPlace, ResultPlace
from mezzo.frontends.onnx.infos import retype_infos, state_casts
from mezzo.frontends.onnx.names import Names
from mezzo.frontends.onnx.origins import copy_origin, name_node, served, title_of
from mezzo.frontends.onnx.placement import Placement
from mezzo.frontends.onnx.special import SPECIAL, TYPED_BY_ATTRIBUTE
from mezzo.frontends.onnx.types import TO_ONNX, retype_proto

_Form = tuple[int, DType]


def apply(graph: Graph, handles: Handles, edits: Sequence[Edit], blobs: Blobs) -> None:
    """Change the model in place. Graph and handles are spent afterwards."""
    applier = _Applier(graph, handles, blobs)
    applier.note(edits)
    applier.carry_out(edits)
    applier.finish()


_LIKE = frozenset(op for (_, op), row in SPECIAL.items() if row.any_inputs and row.dtype_attribute is not None)
# The output has the operands' dtype when no attribute says otherwise.
_FOLLOWING = frozenset({"DequantizeLinear", "QuantizeLinear"})


class _Applier:
    def __init__(self, graph: Graph, handles: Handles, blobs: Blobs) -> None:
        self.graph, self.handles, self.blobs = graph, handles, blobs
        self.names = Names(graph, handles)
        self.native: dict[int, DType] = {}  # where it differs from the value's own
        self.renamed: dict[int, str] = {}  # native names that gave way to a graph output's
        self.forms: dict[_Form, str] = dict(handles.forms)
        self.wanted: set[_Form] = set()  # forms that some Rewire reads
        self.casts: dict[DType, onnx.NodeProto] = {}  # a Cast to each dtype, to be copied
        self.names_only: set[_Form] = set()  # made by Casts that stay for their name, though they change nothing
        self.added: dict[int, list[_Form]] = {}  # casts that were put in, by scope
        self.rewired: dict[Use, _Form] = {}
        self.placement = Placement(graph, handles)
        self.public: dict[int, tuple[str, _Form]] = {}  # by OUTPUT node: the name it must keep, the form it shows

    # -- names ----------------------------------------------------------------------------------------------------

    def container(self, value: int) -> Container:
        return self.handles.containers[self.graph.values[value].scope]

    def native_dtype(self, value: int) -> DType | None:
        return self.native.get(value, self.graph.values[value].dtype)

    def native_name(self, value: int) -> str:
        return self.renamed.get(value, self.graph.values[value].name)

    def form_name(self, form: _Form) -> str:
        """Name of a value in a dtype; made up on first use where the form is new."""
        value, dtype = form
        if dtype is self.native_dtype(value):
            return self.native_name(value)
        if form not in self.forms:
            self.forms[form] = self.names.fresh(self.container(value), f"{self.graph.values[value].name}_{dtype}")
        return self.forms[form]

    def note(self, edits: Sequence[Edit]) -> None:
        """Learn the native dtypes, which forms are read, and who keeps a graph output's name."""
        self.native = {edit.value: edit.dtype for edit in edits if type(edit) is Retype}
        for edit in edits:
            if type(edit) is Rewire:
                self.wanted.add((edit.value, edit.dtype))
                self.rewired[Use(edit.node, edit.operand)] = (edit.value, edit.dtype)
        for node in reversed(self.graph.nodes):
            if node.kind is not Kind.OUTPUT:
                break  # a graph's outputs come last
            if node.inputs[0] is not None:
                self._settle_output(node, node.inputs[0])

    def _settle_output(self, node: Node, value: int) -> None:
        """A graph output keeps its name: whatever it shows takes that name, and who had it gives way."""
        held = self.native_dtype(value)
        if held is None:
            return
        shown, dtype = self.rewired.get(Use(node.id, 0), (value, held))
        place = self.handles.places[Use(node.id, 0)]
        assert not isinstance(place, OperandPlace), "a graph output stands in the graph's outputs"
        assert isinstance(place.owner, onnx.GraphProto), "functions have no graph outputs"
        public: str = place.owner.output[place.position].name
        is_native = dtype is self.native_dtype(shown)
        if not is_native:
            if self.graph.values[shown].name == public:
                self.renamed[shown] = self.names.fresh(self.container(shown), f"{public}_{self.native_dtype(shown)}")
            # A Cast the model came with takes the name too, if no output bears its own and all its readers are rewired:
            # those of a cast that is a node read a value of its own.
            is_node = self.graph.forms.get((shown, dtype)) is not None
            if not is_node and self.forms.get((shown, dtype)) not in self._output_names:
                self.forms[shown, dtype] = public
            self.forms.setdefault((shown, dtype), public)
        elif self.graph.values[shown].name != public:
            self._free_name(public)
            producer = self.graph.nodes[self.graph.values[shown].producer]
            is_movable = producer.kind in (Kind.OP, Kind.TIE) and shown not in self.renamed
            if is_movable and self.graph.values[shown].name not in self._output_names:
                self.renamed[shown] = public
        self.public[node.id] = (public, (shown, dtype))

    @cached_property
    def _output_names(self) -> set[str]:
        return {info.name for info in self.handles.model.graph.output}

    def _free_name(self, public: str) -> None:
        """An existing Cast that made this output in another dtype keeps working under another name."""
        for form, name in list(self.forms.items()):
            if name == public and form[1] is not self.native_dtype(form[0]):
                self.forms[form] = self.names.fresh(self.container(form[0]), f"{public}_{form[1]}")

    # -- edits ----------------------------------------------------------------------------------------------------

    def carry_out(self, edits: Sequence[Edit]) -> None:
        # `type(edit) is` instead of `match`: a model has tens of thousands of edits, most of them of one kind.
        graph = self.graph
        stated = self.handles.declared.keys() | self.handles.tensors.keys()
        for edit in edits:
            kind = type(edit)
            if kind is Retype:
                producer = graph.nodes[graph.values[edit.value].producer]
                op = producer.signature.op
                if edit.value in stated or producer.kind is not Kind.OP or op in TYPED_BY_ATTRIBUTE:
                    self.retype(edit.value, edit.dtype, edit.limit)  # type: ignore[union-attr]  # a Retype
            elif kind is Rewire:
                self.rewire(edit.node, edit.operand, edit.value, edit.dtype)  # type: ignore[union-attr]  # a Rewire
            elif kind is AddCast:
                self.add_cast(edit.value, edit.dtype)
            elif kind is AddCopy:
                self.add_copy(edit.value, edit.dtype, edit.limit)  # type: ignore[union-attr]  # an AddCopy
            else:
                raise NotImplementedError("quantized forms")

    def retype(self, value: int, dtype: DType, limit: float | None) -> None:
        producer = self.graph.nodes[self.graph.values[value].producer]
        for info in self.handles.declared.get(value, ()):
            retype_proto(info.type, dtype)
        tensor = self.handles.tensors.get(value)
        proto = self.handles.protos[producer.id]
        if tensor is not None:
            self.blobs.retarget(self._own_tensor(proto, tensor), dtype, limit)
        elif proto is not None and producer.kind is Kind.SOURCE:
            set_int(proto, "to", TO_ONNX[dtype])
        elif proto is not None and producer.kind is Kind.OP and producer.op in TYPED_BY_ATTRIBUTE:
            self._set_dtype_attribute(producer, proto, dtype, limit)

    def _own_tensor(self, proto: onnx.NodeProto | None, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """The tensor itself; a Constant that holds plain numbers gets a tensor in their place."""
        if proto is None:
            return tensor
        held = proto.attribute[0]
        if held.name in ("value", "sparse_value") and not held.ref_attr_name:
            return tensor
        del proto.attribute[:]
        made: onnx.TensorProto = proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t
        made.CopyFrom(tensor)
        return made

    def _set_dtype_attribute(self, node: Node, proto: onnx.NodeProto, dtype: DType, limit: float | None) -> None:
        row = SPECIAL.get((proto.domain if proto.domain != "ai.onnx" else "", proto.op_type))
        if row is None or row.dtype_attribute is None or row.fixed_outputs:
            return
        attribute = find(proto, row.dtype_attribute)
        if row.dtype_attribute == "value":  # ConstantOfShape
            if attribute is None:
                attribute = proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
                attribute.t.CopyFrom(onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.0]))
            self.blobs.retarget(attribute.t, dtype, limit)
        elif attribute is not None or node.op not in _FOLLOWING:
            set_int(proto, row.dtype_attribute, TO_ONNX[dtype])

    def add_cast(self, value: int, dtype: DType) -> None:
        producer = self.graph.values[value].producer
        name = self.form_name((value, dtype))
        if dtype not in self.casts:
            to = onnx.AttributeProto(name="to", type=onnx.AttributeProto.INT, i=TO_ONNX[dtype])
            self.casts[dtype] = onnx.NodeProto(op_type="Cast", attribute=[to])
        cast = onnx.NodeProto()
        cast.CopyFrom(self.casts[dtype])
        cast.input.append(self.native_name(value))
        cast.output.append(name)
        cast.name = self._node_name(value, name)
        readers = (use for use in self.graph.uses[value] if self.rewired.get(use) == (value, dtype))
        copy_origin(cast, served(self.handles, producer, readers))
        self.added.setdefault(self.graph.values[value].scope, []).append((value, dtype))
        is_body_input = self.graph.nodes[producer].kind is Kind.INPUT or (
            self.graph.nodes[producer].scope != self.graph.values[value].scope
        )
        self.placement.add(self.graph.values[value].scope, None if is_body_input else producer, cast)

    def _node_name(self, value: int, name: str) -> str:
        return self.names.fresh_node(self.container(value), f"{name}_cast" if not name.endswith("cast") else name)

    def add_copy(self, value: int, dtype: DType, limit: float | None) -> None:
        name = self.form_name((value, dtype))
        scope = self.graph.values[value].scope
        producer = self.graph.values[value].producer
        proto, tensor = self.handles.protos[producer], self.handles.tensors.get(value)
        if proto is None:
            assert tensor is not None, "a source without a node is a weight"
            owner = self.handles.owners[scope]
            assert isinstance(owner, onnx.GraphProto), "functions hold no weights"
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
        node = onnx.NodeProto()
        node.CopyFrom(proto)
        node.output[0] = name
        node.name = self._node_name(value, name)
        if tensor is None:
            set_int(node, "to", TO_ONNX[dtype])
        else:
            held = constant_tensor(node.attribute[0])
            assert held is not None, "a source with a tensor is a Constant"
            if node.attribute[0].ref_attr_name:
                held = tensor
            self.blobs.retarget(self._own_tensor(node, held), dtype, limit)
        self.placement.add(scope, producer, node)

    def rewire(self, node: int, operand: int, value: int, dtype: DType) -> None:
        if self.graph.nodes[node].kind is Kind.OUTPUT:
            return
        use = Use(node, operand)
        name, place = self.form_name((value, dtype)), self.handles.places.get(use)
        scope = self.graph.values[value].scope
        if isinstance(place, ResultPlace) and place.owner is not self.handles.owners[scope]:
            name = self._bring_in(name, value, place)
        self._write_use(use, name)

    def _bring_in(self, name: str, value: int, place: ResultPlace) -> str:
        """A body hands out only what it makes: a captured value passes through an Identity."""
        scope = next(s for s, owner in enumerate(self.handles.owners) if owner is place.owner)
        made = self.names.fresh(self.handles.containers[scope], f"{name}_inside")
        identity = onnx.NodeProto(op_type="Identity", input=[name], output=[made], name=self._node_name(value, made))
        self.placement.add(scope, None, identity)
        return made

    def _write_use(self, use: Use, name: str) -> None:
        place = self.handles.places.get(use)
        if place is None:
            proto = self.handles.protos[use.node]
            assert proto is not None, "an operator has a node"
            proto.input[use.operand] = name
        elif isinstance(place, OperandPlace):
            place.proto.input[place.position] = name
        elif isinstance(place.owner, onnx.FunctionProto):
            place.owner.output[place.position] = name
        else:
            place.owner.output[place.position].name = name

    # -- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        self._show_outputs()
        self._rename_natives()
        dropped = self._drop_casts()
        self._write_explicit_dtypes()
        self._retype_infos()
        self.placement.place(dropped)
        if any(form in self.wanted for form in self.handles.forms):
            self.placement.sort()  # a Cast of the model now serves readers that may stand before it
            self.handles.is_resorted = True
        replace_functions(self.handles)

    def _show_outputs(self) -> None:
        for number, (public, form) in self.public.items():
            place = self.handles.places[Use(number, 0)]
            if form[1] is not self.graph.nodes[number].signature.dtype:
                retype_proto(self.handles.model.graph.output[place.position].type, form[1])
            if self.form_name(form) == public:
                continue
            if self.forms.get(form) == public:  # a Cast that changes nothing, and only keeps the name
                self.names_only.add(form)
                continue
            title = self.names.fresh_node(self.container(form[0]), f"{public}_identity")
            node = onnx.NodeProto(op_type="Identity", input=[self.form_name(form)], output=[public], name=title)
            self.placement.add(self.graph.nodes[number].scope, self.graph.values[form[0]].producer, node)

    def _rename_natives(self) -> None:
        if len(self.graph.scopes) > 1:
            _ = self.placement.control_protos  # collected before any output has a new name
        for value, name in self.renamed.items():
            number = self.graph.values[value].producer
            producer = self.graph.nodes[number]
            proto = self.handles.protos[number]
            if producer.kind is Kind.TIE:
                proto = self.placement.control_proto(number, self.graph.values[value].name)
            if proto is None:
                raise InputError(
                    f"{self.graph.values[value].name!r} is an input or a weight and an output as well, so both have "
                    "one dtype; ask the same of both"
                )
            name_node(proto, producer.name if producer.kind is Kind.OP else title_of(proto))
            for index, output in enumerate(proto.output):
                if output == self.graph.values[value].name:
                    proto.output[index] = name
            for use in self.graph.uses[value]:
                if use not in self.rewired and self.graph.nodes[use.node].kind is not Kind.OUTPUT:
                    self._write_use(use, name)

    def _drop_casts(self) -> set[int]:
        """Casts of the model that nobody reads any more, by id of their proto. Kept ones read the value itself."""
        if not self.handles.casts:
            return set()
        kept = {form for form in self.wanted if form[1] is not self.native_dtype(form[0])} | self.names_only
        absorbed = {
            node.id
            for node in self.graph.nodes
            if node.kind is Kind.CAST and node.outputs[0] is not None and self._is_passed_by(node.outputs[0])
        }
        by_proto = {id(proto): number for number, proto in enumerate(self.handles.protos) if proto is not None}
        # Copies of one function share their names, so a name means something in its container only.
        originals = {(id(self.container(form[0])), name): form for form, name in self.handles.forms.items()}
        dropped: set[int] = set()
        for scope, proto in self.handles.casts:
            number = by_proto.get(id(proto))
            form = originals.get((id(self.handles.containers[scope]), proto.output[0]))
            is_kept = form in kept or (number is not None and number not in absorbed)
            if not is_kept:
                dropped.add(id(proto))
                continue
            if form is not None:
                proto.output[0] = self.forms[form]
                proto.input[0] = self.native_name(form[0])
                # Nothing is left to cast, but the name is a graph output's. A Cast to FP32 stays: it decides nothing.
                if form[1] is self.native_dtype(form[0]) and form[1] is not HIGH:
                    proto.op_type = "Identity"
                    del proto.attribute[:]
                    self.handles.made.append((scope, proto))
            elif number is not None:
                operand = self.graph.nodes[number].inputs[0]
                assert operand is not None, "a Cast has an operand"
                proto.input[0] = self.native_name(operand)
        return dropped

    def _is_passed_by(self, value: int) -> bool:
        """Whether everybody reads past a Cast's value, from what the Cast reads."""
        forms = (self.rewired.get(use) for use in self.graph.uses[value])
        return all(form is not None and form[0] != value for form in forms)

    def _write_explicit_dtypes(self) -> None:
        """EyeLike and its kin take their operand's dtype unless told: tell them, where operand and result part ways."""
        columns = self.graph.columns
        is_like = np.array([signature.op in _LIKE for signature in columns.signatures], bool)
        for number in np.flatnonzero(is_like[columns.node_signature]).tolist():
            node, proto = self.graph.nodes[number], self.handles.protos[number]
            if proto is None or node.kind is not Kind.OP or node.inputs[0] is None:
                continue
            row = SPECIAL.get((proto.domain, proto.op_type))
            if row is None or row.dtype_attribute is None or find(proto, row.dtype_attribute):
                continue
            made = node.outputs[0]
            dtype = None if made is None else self.native_dtype(made)
            if dtype is not None and dtype is not self.native_dtype(node.inputs[0]):
                set_int(proto, row.dtype_attribute, TO_ONNX[dtype])

    def _retype_infos(self) -> None:
        changed: dict[int, dict[str, tuple[str, DType]]] = {}
        stating = {scope for scope, owner in enumerate(self.handles.owners) if owner.value_info}
        for value in {*self.native, *self.renamed} if stating else ():
            if self.graph.values[value].scope not in stating:
                continue
            dtype = self.native_dtype(value)
            assert dtype is not None, "only typed values are edited"
            name = self.graph.values[value].name
            changed.setdefault(self.graph.values[value].scope, {})[name] = (self.native_name(value), dtype)
        for scope, names in changed.items():
            retype_infos(self.handles.owners[scope], names)
        for scope, casts in self.added.items():
            state_casts(
                self.handles.owners[scope],
                [(self.native_name(value), self.form_name((value, dtype)), dtype) for value, dtype in casts],
            )
