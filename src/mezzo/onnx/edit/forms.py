"""The forms of values: what each is called in each dtype that it is had in, and who keeps a graph
output's name.
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
    """Names of all forms of values once the edits are made."""

    def __init__(self, graph: Graph, handles: Handles) -> None:
        self.graph, self.handles = graph, handles
        self.names = UsedNames(graph, handles)
        self.native: dict[int, DType] = {}  # where it differs from the value's own
        self.renamed: dict[int, str] = {}  # native names that gave way to a graph output's
        self.by_form: dict[Form, str] = dict(handles.forms)
        self.wanted: set[Form] = set()  # forms that some Rewire reads
        self.rewired: dict[Use, Form] = {}
        self.public: dict[
            int, tuple[str, Form]
        ] = {}  # by OUTPUT node: the name it must keep, the form it shows
        self.taken_over: dict[
            int, str
        ] = {}  # values whose base form is dequantized: what the raw one is called

    def container(self, value: int) -> Container:
        return self.handles.containers[self.graph.values[value].scope]

    def native_dtype(self, value: int) -> DType | None:
        return self.native.get(value, self.graph.values[value].dtype)

    def native_name(self, value: int) -> str:
        return self.renamed.get(value, self.graph.values[value].name)

    def name_of(self, form: Form) -> str:
        """Name of a value in a dtype; made up on first use where the form is new."""
        value, dtype = self._settled(form)
        if dtype is self.native_dtype(value):
            return self.native_name(value)
        if (value, dtype) not in self.by_form:
            word = "dequantized" if dtype in QUANTIZED else dtype
            name = f"{self.graph.values[value].name}_{word}"
            self.by_form[value, dtype] = self.names.fresh(self.container(value), name)
        return self.by_form[value, dtype]

    def made_name(self, form: Form) -> str:
        """What the maker of a form calls it: its name, but where a dequantized one has taken that
        over.
        """
        value, dtype = form
        if value not in self.taken_over or dtype is not HIGH:
            return self.name_of(form)
        if not self.taken_over[value]:
            self.taken_over[value] = self.names.fresh(
                self.container(value), f"{self.graph.values[value].name}_float"
            )
        return self.taken_over[value]

    def lacking(self, edits: Iterable[Quantize]) -> list[Form]:
        """The base forms that are to be quantized and that nothing makes so far."""
        forms = [(edit.value, HIGH) for edit in edits]
        return [
            form
            for form in forms
            if self.native_dtype(form[0]) is not HIGH and form not in self.by_form
        ]

    def cast_name(self, form: Form) -> str:
        """What a Cast of the model that makes a form calls it: one that changes nothing has a name
        of its own.
        """
        return self.by_form[form] if form[1] is self.native_dtype(form[0]) else self.made_name(form)

    def _settled(self, form: Form) -> Form:
        """The dequantized form of a value is the base's where it has taken that over."""
        return (form[0], HIGH) if form[1] in QUANTIZED and form[0] in self.taken_over else form

    def note(self, edits: Sequence[Edit]) -> None:
        """Learn the native dtypes, which forms are read, and who keeps a graph output's name."""
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
                for operand in edit.product.weight_operands:
                    value = self.graph.nodes[edit.node].inputs[operand]
                    assert value is not None, "a product has its weights"
                    self.rewired[Use(edit.node, operand)] = value, DType.QUANTIZED8
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
        """A graph output keeps its name: whatever it shows takes that name, and who had it gives
        way.
        """
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
                self.renamed[shown] = self.names.fresh(
                    self.container(shown), f"{public}_{self.native_dtype(shown)}"
                )
            # A Cast the model came with takes the name too, if no output bears its own and all its
            # readers are rewired: those of a cast that is a node read a value of its own.
            is_node = self.graph.forms.get((shown, dtype)) is not None
            if not is_node and self.by_form.get((shown, dtype)) not in self._output_names:
                self.by_form[shown, dtype] = public
            self.by_form.setdefault((shown, dtype), public)
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
        """Rename what an existing Cast of another dtype produces under this output's name."""
        for form, name in list(self.by_form.items()):
            if name == public and form[1] is not self.native_dtype(form[0]):
                self.by_form[form] = self.names.fresh(
                    self.container(form[0]), f"{public}_{form[1]}"
                )
