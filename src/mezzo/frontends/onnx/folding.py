"""BatchNormalization folded into the convolution or product before it: one operator says what both said.

Only the inference form is folded, with statistics that are constant, and only where nobody else reads what stands
between the two. The weight is multiplied by a number per channel. A large one is multiplied as it is streamed, so that
no more of it is in memory than before.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.frontends.onnx.affine import Affine, affine_of, channels_of
from mezzo.frontends.onnx.attributes import constant_tensor, find
from mezzo.frontends.onnx.blobs import Blobs, clear_payload
from mezzo.frontends.onnx.factors import Factors
from mezzo.frontends.onnx.files import Source
from mezzo.frontends.onnx.names import fresh_name
from mezzo.frontends.onnx.opset import default_opset
from mezzo.frontends.onnx.origins import name_node, title_of
from mezzo.frontends.onnx.rounding import Array
from mezzo.frontends.onnx.shapes import value_shapes

_NORM = "BatchNormalization"
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_DOMAINS = frozenset({"", "ai.onnx"})
# Before it no attribute tells that an old model's BatchNormalization is not training.
_OLDEST_OPSET = 7
# Before it every initializer is an input too; from it on one that is may be fed.
_DEFAULTS_SINCE = 4


class Held(NamedTuple):
    """A constant: its tensor, and whether that is an initializer of this name, which may be changed where it is."""

    tensor: TensorProto
    is_initializer: bool


_Constants = Mapping[str, Held]


def fold(source: Source, apart: Set[str]) -> Source | None:
    """Fold what can be folded; None where nothing can. `apart` are results of BatchNormalizations that stay.

    The source is not changed. The result shares its payloads: a large weight is multiplied whenever it is read.
    """
    opset = default_opset(source.model)
    if opset is None or opset < _OLDEST_OPSET:
        return None
    if not any(node.op_type == _NORM for graph in _graphs(source.model.graph) for node in graph.node):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    folder = _Folder(model, source.blobs, apart)
    folder.fold_graph(model.graph, {})
    if not folder.is_changed:
        return None
    folder.prune()
    return replace(source, model=model)


class _Folder:
    """Folds what stands in one model, which it changes."""

    def __init__(self, model: onnx.ModelProto, blobs: Blobs, apart: Set[str]) -> None:
        self.model, self.blobs, self.apart, self.is_changed = model, blobs, apart, False
        self._reads: Counter[str] = Counter()  # over all scopes: what two of them call alike is read too often
        self._taken: set[str] = set()
        self._left: set[str] = set()  # names that are read less often than they were
        self._shapes: Mapping[str, Sequence[int | None]] | None = None
        for graph in _graphs(model.graph):
            self._reads.update(name for node in graph.node for name in node.input)
            self._reads.update(port.name for port in graph.output)
            self._taken.update(name for node in graph.node for name in (node.name, *node.input, *node.output))
            self._taken.update(held.name for held in (*graph.input, *graph.output, *graph.initializer))

    def fold_graph(self, graph: onnx.GraphProto, outer: _Constants) -> None:
        """Fold what stands in a graph and its bodies; `outer` are the constants that it sees of graphs around it."""
        constants = self._constants(graph, outer)
        users = {name: node for node in graph.node for name in node.input}
        gone: set[str] = set()
        for node in graph.node:
            if node.op_type in _LINEAR and node.domain in _DOMAINS:
                behind = [*self._norms_behind(node, users, constants)]
                norms = self._fold(node, behind, constants) if behind else ()
                gone.update(norm.output[0] for norm in norms)
        for position in reversed(range(len(graph.node))):
            if graph.node[position].op_type == _NORM and graph.node[position].output[0] in gone:
                del graph.node[position]
        for body in _bodies(graph):
            self.fold_graph(body, constants)

    def _constants(self, graph: onnx.GraphProto, outer: _Constants) -> dict[str, Held]:
        may_be_fed = {port.name for port in graph.input} if self.model.ir_version >= _DEFAULTS_SINCE else frozenset()
        held = {name: constant for name, constant in outer.items() if name not in may_be_fed}
        held |= {tensor.name: Held(tensor, True) for tensor in graph.initializer if tensor.name not in may_be_fed}
        for node in graph.node:
            found = None
            if node.op_type == "Identity" and node.input[0] in held:  # exporters share equal weights so
                found = held[node.input[0]].tensor
            elif node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
                found = constant_tensor(node.attribute[0])
            for name in node.output:
                held.pop(name, None)
                if found is not None:
                    held[name] = Held(found, False)
        return held

    def _norms_behind(
        self, node: onnx.NodeProto, users: Mapping[str, onnx.NodeProto], constants: _Constants
    ) -> Iterator[tuple[onnx.NodeProto, Affine]]:
        """The BatchNormalizations right behind a node, each with what it does."""

        def constant_of(name: str) -> Array | None:
            held = constants.get(name)
            is_float = held is not None and held.tensor.data_type == TensorProto.FLOAT
            return self.blobs.array(held.tensor) if held is not None and is_float else None

        made = node.output[0]
        while self._reads[made] == 1 and made in users:
            norm = users[made]
            is_norm = norm.op_type == _NORM and norm.domain in _DOMAINS and norm.input[0] == made
            affine = affine_of(norm, constant_of) if is_norm and norm.output[0] not in self.apart else None
            if affine is None:
                return
            yield norm, affine
            made = norm.output[0]

    def _fold(
        self, node: onnx.NodeProto, behind: Sequence[tuple[onnx.NodeProto, Affine]], constants: _Constants
    ) -> Sequence[onnx.NodeProto]:
        """Let a node do what others behind it do. Returns those that are to go, none where it cannot."""
        weight = constants.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or weight.tensor.data_type != TensorProto.FLOAT:
            return ()
        channels = channels_of(node, weight.tensor.dims)
        if channels is None or any(affine.factor.shape != (channels.count,) for _, affine in behind):
            return ()
        if node.op_type == "MatMul" and not self._is_matrix(node):
            return ()
        bias = self._bias_of(node, channels.count, constants)
        if bias is None:
            return ()
        total = Affine(np.ones(channels.count), bias)
        for _, affine in behind:
            total = total.then(affine)
        factors, offset = Factors(total.factor[channels.order], channels.run), _as_float32(total.offset)
        if not (np.isfinite(offset).all() and self._is_finite(weight.tensor, factors)):
            return ()
        norms = [norm for norm, _ in behind]
        self._scale(node, weight, factors)
        self._hand_on(node, norms, offset, constants)
        self.is_changed = True
        return norms[:-1] if node.op_type == "MatMul" else norms

    def _is_matrix(self, node: onnx.NodeProto) -> bool:
        """Whether the last axis of a product is that of the channels, the second."""
        if self._shapes is None:
            self._shapes = value_shapes(self.model)
        shapes = (self._shapes.get(name) for name in (node.input[0], node.output[0]))
        return any(shape is not None and len(shape) == 2 for shape in shapes)

    def _bias_of(self, node: onnx.NodeProto, count: int, constants: _Constants) -> Array | None:
        """What a node adds to each channel, zeros where it adds nothing; None where that is not known."""
        if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
            return np.zeros(count)
        held = constants.get(node.input[2])
        if held is None or held.tensor.data_type != TensorProto.FLOAT:
            return None
        bias, beta = self.blobs.array(held.tensor).astype(np.float64), find(node, "beta")
        if node.op_type != "Gemm":
            return bias if bias.shape == (count,) else None
        if bias.shape not in ((), (1,), (1, 1), (count,), (1, count)):
            return None  # another for every row
        return np.broadcast_to(bias.reshape(-1), (count,)) * (1.0 if beta is None else beta.f)

    # -- changing -------------------------------------------------------------------------------------------------

    def _is_finite(self, tensor: TensorProto, factors: Factors) -> bool:
        start = 0
        for chunk in self.blobs.chunks(tensor):
            if not np.isfinite(factors.scale(chunk, start)).all():
                return False
            start += chunk.size
        return True

    def _scale(self, node: onnx.NodeProto, weight: Held, factors: Factors) -> None:
        """Multiply a node's weight: where it is, if nobody else reads it."""
        tensor = weight.tensor
        if not (weight.is_initializer and self._reads[node.input[1]] == 1):
            tensor = self._new_initializer(f"{node.input[1]}_folded", weight.tensor)
            self._leave(node.input[1])
            node.input[1] = tensor.name
        stored = self.blobs.stored(tensor)
        if stored is not None:
            blob = self.blobs.blob(tensor, stored)
            assert blob.factors is None, "a node is folded once, with all that is behind it"
            self.blobs.mark(tensor, replace(blob, factors=factors))
            return
        scaled = factors.scale(self.blobs.array(tensor).reshape(-1))
        clear_payload(tensor)
        tensor.raw_data = scaled.tobytes()

    def _hand_on(
        self, node: onnx.NodeProto, norms: Sequence[onnx.NodeProto], offset: Array, constants: _Constants
    ) -> None:
        """Let a node make what the last of others made, with an offset."""
        name_node(node, title_of(node))
        bias = numpy_helper.from_array(offset)
        if node.op_type == "MatMul":
            node.output[0], last = fresh_name(self._taken, f"{node.output[0]}_folded"), norms[-1]
            title, made = fresh_name(self._taken, f"{node.name}_bias"), last.output[0]
            added = self._new_initializer(f"{node.name}.bias", bias).name
            for norm in norms:
                self._leave(*norm.input)
            last.CopyFrom(helper.make_node("Add", [node.output[0], added], [made], title))
            return
        held = constants.get(node.input[2]) if len(node.input) > 2 else None
        is_own = held is not None and held.is_initializer and self._reads[node.input[2]] == 1
        if held is not None and is_own and held.tensor.dims == bias.dims:
            clear_payload(held.tensor)
            held.tensor.raw_data = bias.raw_data
        else:
            self._leave(*node.input[2:])
            del node.input[2:]
            node.input.append(self._new_initializer(f"{node.name}.bias", bias).name)
        beta = find(node, "beta")
        if beta is not None:
            node.attribute.remove(beta)
        for norm in norms:
            self._leave(*norm.input)
        node.output[0] = norms[-1].output[0]

    def _new_initializer(self, wish: str, like: TensorProto) -> TensorProto:
        """A copy of a tensor in the main graph, which every body sees, under a name of its own; it is read once."""
        tensor: TensorProto = self.model.graph.initializer.add()
        tensor.CopyFrom(like)
        tensor.name = fresh_name(self._taken, wish)
        self._reads[tensor.name] = 1
        if self.model.ir_version < _DEFAULTS_SINCE:
            self.model.graph.input.append(helper.make_tensor_value_info(tensor.name, like.data_type, [*like.dims]))
        return tensor

    def _leave(self, *names: str) -> None:
        """Note that each of these is read once less."""
        self._reads.subtract(names)
        self._left.update(names)

    def prune(self) -> None:
        """Take out constants that were read and are no longer, and what was noted of values that are gone."""
        while unread := {name for name in self._left if not self._reads[name]}:
            self._left.clear()
            for graph in _graphs(self.model.graph):
                held = {tensor.name for tensor in graph.initializer}
                _drop(graph.initializer, unread)
                _drop(graph.input, unread & held)
                _drop(graph.value_info, unread)
                for position in reversed(range(len(graph.node))):
                    node = graph.node[position]
                    if node.op_type in ("Constant", "Identity") and node.output[0] in unread:
                        self._leave(*node.input)
                        del graph.node[position]


def _as_float32(numbers: Array) -> Array:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _drop(held: "MutableSequence[TensorProto] | MutableSequence[onnx.ValueInfoProto]", names: Collection[str]) -> None:
    for position in reversed(range(len(held))):
        if held[position].name in names:
            del held[position]


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
            yield from attribute.graphs


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and all bodies in it, of whatever operator."""
    yield graph
    for body in _bodies(graph):
        yield from _graphs(body)
