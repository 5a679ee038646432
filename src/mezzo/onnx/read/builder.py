"""Builder of the planner's graph: lists of nodes, values, types and scopes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Container as Holder
from functools import partial

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node, Scope, Signature, Use, Value
from mezzo.onnx.protos.attributes import NONE, NodeAttributes
from mezzo.onnx.read.frames import ANY_FLOAT, FactsOf, Frame, pseudo_signature
from mezzo.onnx.read.handles import Container, Handles
from mezzo.onnx.schema.shapes import MAX_ELEMENTS, KnownShapes
from mezzo.onnx.schema.types import FROM_ONNX, Aggregate, ValueType, element_dtype

# Assumed number of elements of a value if neither its shape nor an operand's is known.
_UNKNOWN_ELEMENTS = 1024
_MAX_REPEATS = 64
# Three times faster than calling the classes; a model has tens of thousands of each.
_new_value: Callable[[tuple[str, DType | None, int, int, int, bool]], Value] = partial(
    tuple.__new__, Value
)
_new_node: Callable[[tuple[object, ...]], Node] = partial(tuple.__new__, Node)


class GraphBuilder(ABC):
    """Builds the lists of a Graph while walking the model. Without `lows` it only infers types, and
    Casts are plain nodes.
    """

    def __init__(
        self, model: onnx.ModelProto, lows: Sequence[DType], sizes: KnownShapes, facts_of: FactsOf
    ) -> None:
        self.model = model
        self.lows = tuple(lows)
        self.counts, self.shapes = sizes.counts, sizes.shapes
        self.facts_of = facts_of
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.types: list[ValueType] = []
        self.scopes: list[Scope] = []
        self.constants: dict[int, ConstantFacts] = {}
        self.wide_constants: dict[int, ConstantFacts] = {}
        self.entered: dict[int, int] = {}
        self.widened: set[Use] = set()
        self.aliased: set[Use] = set()
        self.form_makers: dict[tuple[int, DType], int | None] = {}
        self.notes: list[str] = []
        self.taken: set[str] = set()
        self.repeated: dict[str, int] = {}
        self.handles = Handles(model=model)
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}

    # -- building blocks ---------------------------------------------------------------------------

    def add_value(
        self, name: str, value_type: ValueType, producer: int, scope: int, elements: int
    ) -> int:
        number = len(self.types)
        if isinstance(value_type, Aggregate):
            self.values.append(
                _new_value((name, value_type.dtype, producer, scope, elements, False))
            )
        else:
            self.values.append(_new_value((name, value_type, producer, scope, elements, True)))
        self.types.append(value_type)
        return number

    def state_type(self, value: int, value_type: DType | Aggregate) -> None:
        """Set a value's type from its user, if its producer has none."""
        dtype, is_castable = element_dtype(value_type), isinstance(value_type, DType)
        self.values[value] = self.values[value]._replace(dtype=dtype, is_castable=is_castable)
        self.types[value] = value_type

    def add_node(
        self,
        name: str,
        kind: Kind,
        signature: Signature,
        scope: int,
        inputs: tuple[int | None, ...],
        outputs: tuple[int | None, ...],
        proto: onnx.NodeProto | None = None,
    ) -> int:
        number = len(self.nodes)
        attributes = NONE if proto is None or not proto.attribute else NodeAttributes(proto)
        self.nodes.append(
            _new_node((number, name, kind, signature, scope, inputs, outputs, attributes))
        )
        self.handles.protos.append(proto)
        return number

    def add_producer(
        self,
        frame: Frame,
        title: str,
        kind: Kind,
        signature: Signature,
        inputs: tuple[int | None, ...],
        proto: onnx.NodeProto | None,
        name: str,
        value_type: ValueType,
        elements: int,
    ) -> int:
        """Add a node with a single output, and bind the output's name; returns its id."""
        outputs = (len(self.values),)
        node = self.add_node(title, kind, signature, frame.scope, inputs, outputs, proto)
        value = self.add_value(name, value_type, node, frame.scope, elements)
        frame.env.names[name] = value
        return value

    def add_scope(
        self,
        owner: int | None,
        path: str,
        body: onnx.GraphProto | onnx.FunctionProto,
        container: Container,
        parent: int | None,
        repeats: int = 1,
        *,
        is_called: bool = False,
    ) -> int:
        outer = 1 if parent is None else self.scopes[parent].repeats
        times = min(outer * repeats, _MAX_REPEATS)
        self.scopes.append(Scope(parent, owner, path, times, is_called))
        self.handles.owners.append(body)
        self.handles.containers.append(container)
        return len(self.scopes) - 1

    def unique(self, frame: Frame, name: str) -> str:
        if frame.path:
            name = f"{frame.path}/{name}"
        if name in self.taken:
            # Continue the search at the last count: all nodes may have the same name, and names are
            # never freed.
            count = self.repeated.get(name, 2)
            while f"{name}#{count}" in self.taken:
                count += 1
            self.repeated[name] = count
            name = f"{name}#{count}"
        self.taken.add(name)
        return name

    def operand(
        self, frame: Frame, proto: onnx.NodeProto, index: int, node: int
    ) -> tuple[int | None, ValueType]:
        """The value of operand `index` and its type as read; records a Cast in between."""
        name = proto.input[index]
        if not name:
            return None, None
        return self.read_name(frame, name, Use(node, index), proto)

    def read_name(
        self, frame: Frame, name: str, use: Use, proto: onnx.NodeProto | None = None
    ) -> tuple[int | None, ValueType]:
        try:
            value = frame.env.find(name)
        except KeyError:
            where = (
                "graph"
                if proto is None
                else f"node {proto.name or proto.output[0]!r} ({proto.op_type})"
            )
            raise ModelError(
                f"{where} reads {name!r}, which nothing before it produces; check the model's"
                " inputs and its nodes' order"
            ) from None
        if value is None:
            return None, None
        if value < 0:
            value = ~value
            self.widened.add(use)
            return value, HIGH
        if self.values[value].name != name:
            self.aliased.add(use)
        return value, self.types[value]

    def add_form(self, form: tuple[int, DType], name: str, maker: int | None) -> None:
        """Record a cast in the model as a form of a value; the first for each dtype is used."""
        if form not in self.form_makers:
            self.form_makers[form] = maker
            self.handles.forms[form] = name

    def elements(self, name: str, inputs: Sequence[int | None]) -> int:
        count = self.counts.get(name)
        if count is not None:
            return count
        return max(
            (self.values[v].elements for v in inputs if v is not None), default=_UNKNOWN_ELEMENTS
        )

    def is_planned(self, value_type: ValueType) -> bool:
        """Whether a value takes part in planning: it is in FP32 or in one of the low dtypes."""
        dtype = element_dtype(value_type)
        return dtype is HIGH or dtype in self.lows

    def read_initializers(
        self,
        frame: Frame,
        graph: onnx.GraphProto,
        inputs: Mapping[str, onnx.ValueInfoProto],
        skip: Holder[str],
    ) -> None:
        for tensor in graph.initializer:
            name = tensor.name
            if name not in skip:
                self.add_weight(frame, name, tensor, inputs.get(name))
        for sparse in graph.sparse_initializer:
            self.add_weight(
                frame, sparse.values.name, sparse.values, inputs.get(sparse.values.name)
            )

    def add_weight(
        self,
        frame: Frame,
        name: str,
        tensor: onnx.TensorProto,
        info: onnx.ValueInfoProto | None = None,
        proto: onnx.NodeProto | None = None,
    ) -> None:
        """Add a weight or a Constant: a source node and its value."""
        dtype = FROM_ONNX.get(tensor.data_type)
        if dtype is None:
            raise ModelError(
                f"tensor {name!r} has element type {tensor.data_type}, which ONNX"
                f" {onnx.__version__} does not define; mend the model"
            )
        elements = 1
        for dim in tensor.dims:
            elements = min(elements * max(dim, 0), MAX_ELEMENTS)
        is_planned = dtype is HIGH or dtype in self.lows
        signature = pseudo_signature(
            "weight", 0, 1, dtype if is_planned else None, ANY_FLOAT if is_planned else frozenset()
        )
        title = self.unique(frame, (proto.name if proto is not None else "") or f"weight {name}")
        value = self.add_producer(
            frame, title, Kind.SOURCE, signature, (), proto, name, dtype, elements
        )
        if is_planned:
            self.constants[value] = self.facts_of(tensor)
        elif dtype is DType.FLOAT64:
            self.wide_constants[value] = self.facts_of(tensor)
        self.handles.tensors[value] = tensor
        if info is not None:
            self.handles.declared.setdefault(value, []).append(info)

    @abstractmethod
    def read_nodes(self, frame: Frame, protos: Iterable[onnx.NodeProto]) -> None:
        """Read the nodes of a graph, subgraph or function, nested subgraphs included."""
