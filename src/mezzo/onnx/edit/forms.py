"""Names for the forms of values: a form is a value in one dtype, such as its FP16 cast; the base
form is FP32. Also decides which form gets a graph output's name.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import onnx

from mezzo.contracts.plans import Edit, Quantize, Retype, Rewire, RunDynamic
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.onnx.protos.names import UsedNames
from mezzo.onnx.read.handles import Container, Handles, OperandPlace

Form = tuple[int, DType]


class Forms:
    """Names of all forms of values after a plan's edits."""

    def __init__(self, graph: Graph, handles: Handles) -> None:
        self.graph, self.handles = graph, handles
        self.names = UsedNames(graph, handles)
        self.native: dict[int, DType] = {}  # dtypes that edits change
        self.renamed: dict[int, str] = {}  # changed names of native forms
        self.by_form: dict[Form, str] = dict(handles.forms)
        self.wanted: set[Form] = set()  # forms that have users
        self.rewired: dict[Use, Form] = {}
        # By OUTPUT node: the graph output's name, and the form that is output.
        self.public: dict[int, tuple[str, Form]] = {}
        # Values whose dequantized form replaces the base form: names of the unquantized ones.
        self.taken_over: dict[int, str] = {}

    def container(self, value: int) -> Container:
        return self.handles.containers[self.graph.values[value].scope]

    def fresh(self, value: int, suffix: str) -> str:
        """An unused name for a value derived from `value`: its name and a suffix."""
        name = self.graph.values[value].name
        return self.names.fresh(self.container(value), f"{name}_{suffix}")

    def fresh_node(self, value: int, wish: str) -> str:
        """An unused name for a node in the container of a value."""
        return self.names.fresh_node(self.container(value), wish)

    def native_dtype(self, value: int) -> DType | None:
        return self.native.get(value, self.graph.values[value].dtype)

    def native_name(self, value: int) -> str:
        return self.renamed.get(value, self.graph.values[value].name)

    def name_of(self, form: Form) -> str:
        """Name that users of a form read. A new form is named on first use."""
        value, dtype = self._settled(form)
        if dtype is self.native_dtype(value):
            return self.native_name(value)
        if (value, dtype) not in self.by_form:
            word = "dequantized" if dtype in QUANTIZED else str(dtype)
            self.by_form[value, dtype] = self.fresh(value, word)
        return self.by_form[value, dtype]

    def made_name(self, form: Form) -> str:
        """Name of a form at its producer: another one than users read if a dequantized form
        replaces this form.
        """
        value, dtype = form
        if value not in self.taken_over or dtype is not HIGH:
            return self.name_of(form)
        if not self.taken_over[value]:
            self.taken_over[value] = self.fresh(value, "float")
        return self.taken_over[value]

    def lacking(self, edits: Iterable[Quantize]) -> list[Form]:
        """Base (FP32) forms to be quantized that do not exist yet."""
        forms = [(edit.value, HIGH) for edit in edits]
        return [
            form
            for form in forms
            if self.native_dtype(form[0]) is not HIGH and form not in self.by_form
        ]

    def cast_name(self, form: Form) -> str:
        """Output name of a source model's Cast. A Cast to the native dtype keeps its own name."""
        return self.by_form[form] if form[1] is self.native_dtype(form[0]) else self.made_name(form)

    def _settled(self, form: Form) -> Form:
        """Map a quantized form to the base form if the dequantized value replaces that."""
        return (form[0], HIGH) if form[1] in QUANTIZED and form[0] in self.taken_over else form

    def note(self, edits: Sequence[Edit]) -> None:
        """Collect native dtypes and used forms from the edits, and settle graph outputs' names."""
        self.native = {edit.value: edit.dtype for edit in edits if type(edit) is Retype}
        quantized = [edit for edit in edits if type(edit) is Quantize]
        self.taken_over = {edit.value: "" for edit in quantized if edit.takes_over}
        self.wanted = {(edit.value, HIGH) for edit in quantized}
        self.rewired |= {
            edit.reader: (edit.value, edit.how.format)
            for edit in quantized
            if edit.reader is not None
        }
        for edit in edits:
            if type(edit) is RunDynamic:
                for use in edit.product.weight_uses:
                    value = self.graph.nodes[use.node].inputs[use.operand]
                    assert value is not None, "a product has its weights"
                    self.rewired[use] = value, DType.QUANTIZED8
            if type(edit) is Rewire:
                form = self._settled((edit.value, edit.dtype))
                self.wanted.add(form)
                self.rewired[Use(edit.node, edit.operand)] = form
        for node in reversed(self.graph.nodes):
            if node.kind is not Kind.OUTPUT:
                break  # a graph's outputs come last
            if node.inputs[0] is not None:
                self._settle_output(node, node.inputs[0])

    def _settle_output(self, node: Node, value: int) -> None:
        """Keep a graph output's name: give it to the form that is output, and rename the value that
        has it.
        """
        native = self.native_dtype(value)
        if native is None:
            return
        source, dtype = self.rewired.get(Use(node.id, 0), (value, native))
        origin = self.graph.values[source]
        place = self.handles.places[Use(node.id, 0)]
        assert not isinstance(place, OperandPlace), "a graph output stands in the graph's outputs"
        assert isinstance(place.owner, onnx.GraphProto), "functions have no graph outputs"
        public: str = place.owner.output[place.position].name
        is_native = dtype is self.native_dtype(source)
        if not is_native:
            if origin.name == public:
                self.renamed[source] = self.fresh(source, str(self.native_dtype(source)))
            # A Cast of the source model gets the name too, unless its own is another output's. Not
            # if the Cast is a node of the graph: its users read the node's value, not a form.
            is_node = self.graph.forms.get((source, dtype)) is not None
            if not is_node and self.by_form.get((source, dtype)) not in self._output_names:
                self.by_form[source, dtype] = public
            self.by_form.setdefault((source, dtype), public)
        elif origin.name != public:
            self._free_name(public)
            producer = self.graph.nodes[origin.producer]
            is_movable = producer.kind in (Kind.OP, Kind.TIE) and source not in self.renamed
            if is_movable and origin.name not in self._output_names:
                self.renamed[source] = public
        self.public[node.id] = (public, (source, dtype))

    @cached_property
    def _output_names(self) -> set[str]:
        return {info.name for info in self.handles.model.graph.output}

    def _free_name(self, public: str) -> None:
        """Rename the output of a source model's Cast that has this graph output's name."""
        for form, name in list(self.by_form.items()):
            if name == public and form[1] is not self.native_dtype(form[0]):
                self.by_form[form] = self.names.fresh(
                    self.container(form[0]), f"{public}_{form[1]}"
                )
