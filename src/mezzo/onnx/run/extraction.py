"""A part of a model as a model of its own: its nodes, the weights they read, and typed inputs and outputs."""

from collections.abc import Collection, Iterator

import onnx
import onnx.helper
import onnx.shape_inference

from mezzo.common.errors import InputError, ModelError
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.read.reading import Reading
from mezzo.onnx.schema.shapes import can_infer

_DRAWS = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def extract_nodes(reading: Reading, nodes: Collection[int]) -> onnx.ModelProto:
    """Make a model of some nodes of the main graph, and of all that lies between them.

    What is worked out of weights alone comes along; every other value that the nodes read becomes an input, every value
    that something else reads an output.

    Raises:
        InputError: a node stands in a body or a function.
        ModelError: the type of an input or output is not known.
    """
    model = reading.handles.model
    for node in nodes:
        if reading.graph.nodes[node].scope != 0:
            name = reading.graph.nodes[node].name
            raise InputError(
                f"node {name!r} stands in a body or a function; only parts of the main graph are extracted"
            )
    cut = _Cut(model, set(_positions(reading.handles, nodes)))
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.metadata_props[:]
    graph = part.graph
    for kept, wanted in ((graph.initializer, cut.read), (graph.value_info, cut.made)):
        chosen = [entry for entry in kept if entry.name in wanted]
        del kept[:]
        kept.extend(chosen)
    sparse = [entry for entry in graph.sparse_initializer if entry.values.name in cut.read]
    del graph.sparse_initializer[:], graph.quantization_annotation[:]
    graph.sparse_initializer.extend(sparse)
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(model.graph.node[position] for position in sorted(cut.positions))
    stated = _Types(model)
    graph.input.extend(stated.port(name) for name in cut.inputs())
    graph.output.extend(stated.port(name) for name in cut.outputs())
    return part


def _positions(handles: Handles, nodes: Collection[int]) -> Iterator[int]:
    """Where the nodes stand in the main graph, by what they make."""
    by_result = {name: at for at, proto in enumerate(handles.model.graph.node) for name in proto.output if name}
    for node in nodes:
        proto = handles.protos[node]
        assert proto is not None, "an operator has a node in the model"
        result = next((name for name in proto.output if name), None)
        if result is not None:
            yield by_result[result]


class _Cut:
    """Positions of the nodes of a part, and what it reads and makes."""

    def __init__(self, model: onnx.ModelProto, positions: set[int]) -> None:
        self._graph = model.graph
        self._weights = {tensor.name for tensor in model.graph.initializer}
        self._weights |= {tensor.values.name for tensor in model.graph.sparse_initializer}
        self._reads = [tuple(_reads(node)) for node in model.graph.node]
        self._makers = {name: at for at, node in enumerate(model.graph.node) for name in node.output if name}
        self._core = self._with_between(positions)
        self.positions = self._with_constants(self._core)
        self.read = {name for at in self.positions for name in self._reads[at]}
        self.made = {name for at in self.positions for name in self._graph.node[at].output if name}

    def _with_between(self, positions: set[int]) -> set[int]:
        """Add the nodes that lie between others of the part: Casts that change nothing are in no unit."""
        first, last = min(positions, default=0), max(positions, default=-1)
        behind, before = set(positions), set(positions)
        for at in range(first, last + 1):
            if any(self._makers.get(name) in behind for name in self._reads[at]):
                behind.add(at)
        wanted = {name for at in positions for name in self._reads[at]}
        for at in range(last, first - 1, -1):
            if at in before or any(name in wanted for name in self._graph.node[at].output):
                before.add(at)
                wanted.update(self._reads[at])
        return behind & before

    def _with_constants(self, positions: set[int]) -> set[int]:
        """Add the nodes that make what the part reads of weights alone."""
        fixed: set[int] = set()
        for at, node in enumerate(self._graph.node):
            is_constant = node.op_type == "Constant" or bool(self._reads[at])
            makers = [self._makers.get(name) for name in self._reads[at] if name not in self._weights]
            if is_constant and node.op_type not in _DRAWS and all(maker in fixed for maker in makers):
                fixed.add(at)
        kept, pending = set(positions), list(positions)
        while pending:
            for name in self._reads[pending.pop()]:
                maker = self._makers.get(name)
                if maker in fixed and maker not in kept:
                    kept.add(maker)
                    pending.append(maker)
        return kept

    def inputs(self) -> list[str]:
        """Values that the part reads and nothing in it makes, in the order in which they are read."""
        names = (name for at in sorted(self.positions) for name in self._reads[at])
        return list(dict.fromkeys(n for n in names if n not in self.made and n not in self._weights))

    def outputs(self) -> list[str]:
        """Values of the part that something else reads; all that nothing in it reads where there is none."""
        others = {n for at, reads in enumerate(self._reads) if at not in self.positions for n in reads}
        others |= {port.name for port in self._graph.output}
        results = [n for at in sorted(self._core) for n in self._graph.node[at].output if n]
        return [n for n in results if n in others] or [n for n in results if n not in self.read]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, the values that its bodies take from around them included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from _captured(attribute.g)


def _captured(body: onnx.GraphProto) -> Iterator[str]:
    inside = {port.name for port in body.input} | {tensor.name for tensor in body.initializer}
    inside |= {name for node in body.node for name in node.output}
    for node in body.node:
        yield from (name for name in _reads(node) if name not in inside)
    yield from (port.name for port in body.output if port.name not in inside)


class _Types:
    """What the values of a model are: as it states, or as ONNX infers."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._stated = {info.name: info for info in _infos(_infer(model).graph)}

    def port(self, name: str) -> onnx.ValueInfoProto:
        """An input or output of a part. Raises ModelError: its type, or how many axes it has, is not known."""
        info = self._stated.get(name)
        if info is None or not _is_full(info.type):
            raise ModelError(
                f"the type of {name!r}, which the part reads or gives, is not known, or not how many axes it has; take "
                "a larger part, or let the model state it"
            )
        return onnx.helper.make_value_info(name, info.type)


def _is_full(kind: onnx.TypeProto) -> bool:
    """Whether a type says all that an input's has to."""
    match kind.WhichOneof("value"):
        case None:
            return False
        case "tensor_type":
            return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
        case _:
            return True


def _infer(model: onnx.ModelProto) -> onnx.ModelProto:
    if not can_infer(model):
        return model
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001  a convenience that fails on models that run; what is stated is left
        return model


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.value_info
    yield from graph.output
    yield from graph.input
