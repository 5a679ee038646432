"""What follows a convolution or product and does the same to every element of a channel, folded into it: one operator
says what all said. BatchNormalization with constant statistics, constants added, subtracted, multiplied, divided by.

Only where nobody else reads what stands between. The weight is multiplied by a number per channel. A large one is
multiplied as it is streamed, so that no more of it is in memory than before.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.files.blobs import Blobs, clear_payload
from mezzo.onnx.files.factors import Factors
from mezzo.onnx.files.files import Source
from mezzo.onnx.normal_form.affine import STEPS, Affine, Channels, affine_of, affine_of_step, channels_of
from mezzo.onnx.normal_form.normalize import normalize
from mezzo.onnx.normal_form.relu_normalization import Cutter
from mezzo.onnx.normal_form.respelling import respell
from mezzo.onnx.normal_form.use_counts import Constants, Held, UseCounts, bodies_of
from mezzo.onnx.protos.attributes import find
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.read.origins import name_node, title_of
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape, value_shapes
from mezzo.tables.target import Respelling

_NORM = "BatchNormalization"
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
# Before it no attribute tells that an old model's BatchNormalization is not training, and sums name the axis they are
# laid along.
_OLDEST_OPSET = 7


def fold(source: Source, apart: Set[str], copied: float = 1.0, respellings: Sequence[Respelling] = ()) -> Source | None:
    """Bring a model to normal form and fold what can be folded; None where nothing can. `apart` are results of
    operators that stay. `copied`: bytes that a second copy of a constant takes in the result, as a share of its own.
    `respellings` are the target's.

    The source is not changed. The result shares its payloads: a large weight is multiplied whenever it is read.
    """
    normal = normalize(source, apart, copied)
    return _fold(normal or source, apart, respellings) or normal


def _fold(source: Source, apart: Set[str], respellings: Sequence[Respelling]) -> Source | None:
    opset = default_opset(source.model)
    if opset is None or opset < _OLDEST_OPSET:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    use_counts = UseCounts(model, source.blobs)
    shapes = _Shapes(model)
    folder, cutter = _Folder(use_counts, apart, shapes), Cutter(use_counts, apart, shapes.of)
    _walk(model.graph, {}, folder, cutter)
    is_respelled = respell(use_counts, apart, respellings)
    if not (folder.is_changed or cutter.is_changed or is_respelled):
        return None
    use_counts.prune()
    return replace(source, model=model)


def _walk(graph: onnx.GraphProto, outer: Constants, folder: "_Folder", cutter: Cutter) -> None:
    """Fold what stands in a graph and its bodies; `outer` are the constants that it sees of graphs around it."""
    constants = folder.use_counts.constants(graph, outer)
    folder.fold_graph(graph, constants)
    cutter.cut_graph(graph, constants)
    for body in bodies_of(graph):
        _walk(body, constants, folder, cutter)


class _Shapes:
    """Shapes of the values of a model as it came, inferred when first asked for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._known: Mapping[str, Shape] | None = None

    def of(self, name: str) -> Shape | None:
        if self._known is None:
            self._known = value_shapes(self._model)
        return self._known.get(name)


@dataclass(frozen=True, eq=False)
class _Linear:
    """An operator with a weight that has the channels of its result."""

    node: onnx.NodeProto
    weight: Held
    channels: Channels


class _Folder:
    """Folds what stands in one model, which it changes."""

    def __init__(self, use_counts: UseCounts, apart: Set[str], shapes: _Shapes) -> None:
        self.use_counts, self.apart, self.is_changed = use_counts, apart, False
        self._blobs: Blobs = use_counts.blobs
        self._shapes = shapes

    def fold_graph(self, graph: onnx.GraphProto, constants: Constants) -> None:
        """Fold what stands in a graph."""
        users = {name: node for node in graph.node for name in node.input}
        gone: set[str] = set()
        for node in graph.node:
            if node.op_type in _LINEAR and node.domain in DEFAULT:
                gone.update(step.output[0] for step in self._fold(node, users, constants))
                if node.op_type in _CONVOLUTIONS:
                    self._complete(node, constants)
        for position in reversed(range(len(graph.node))):
            node = graph.node[position]
            if node.op_type in (_NORM, *STEPS) and node.output[0] in gone:
                del graph.node[position]

    def _fold(
        self, node: onnx.NodeProto, users: Mapping[str, onnx.NodeProto], constants: Constants
    ) -> Sequence[onnx.NodeProto]:
        """Let a node do what others behind it do. Returns those that are to go, none where it cannot."""
        weight = constants.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or weight.tensor.data_type != TensorProto.FLOAT:
            return ()
        channels = channels_of(node, weight.tensor.dims)
        bias = None if channels is None else self._bias_of(node, channels.count, constants)
        if channels is None or bias is None:
            return ()
        linear = _Linear(node, weight, channels)
        behind = [*self._behind(linear, users, constants)]
        if not behind or (node.op_type == "MatMul" and [step.op_type for step, _ in behind] == ["Add"]):
            return ()
        total = Affine(np.ones(channels.count), bias)
        for _, affine in behind:
            total = total.then(affine)
        factors, offset = Factors(total.factor[channels.order], channels.run), _as_float32(total.offset)
        is_scaled = bool((total.factor != 1.0).any())
        if not np.isfinite(offset).all() or (is_scaled and not self._may_scale(weight.tensor, factors)):
            return ()
        steps = [step for step, _ in behind]
        if is_scaled:
            self._scale(node, weight, factors)
        self.is_changed = True
        return self._hand_on(node, steps, offset, constants)

    def _complete(self, node: onnx.NodeProto, constants: Constants) -> None:
        """Give a convolution that several read a bias, where it has none or zeros: OpenVINO 2026.4.1 answers wrong on
        integers there, and drops zeros where a length is open. Nothing that a sum holds is as small as this one.
        """
        weight = (
            constants.get(node.input[1]) if len(node.input) > 1 and self.use_counts.reads[node.output[0]] > 1 else None
        )
        if weight is None or weight.tensor.data_type != TensorProto.FLOAT:
            return
        channels = channels_of(node, weight.tensor.dims)
        bias = None if channels is None else self._bias_of(node, channels.count, constants)
        if bias is None or bias.any():
            return
        name_node(node, title_of(node))
        self.use_counts.leave(*filter(None, node.input[2:]))
        del node.input[2:]
        smallest = numpy_helper.from_array(np.full(len(bias), np.finfo(np.float32).tiny))
        node.input.append(self.use_counts.new_initializer(f"{node.name}.bias", smallest).name)
        self.is_changed = True

    def _behind(
        self, linear: _Linear, users: Mapping[str, onnx.NodeProto], constants: Constants
    ) -> Iterator[tuple[onnx.NodeProto, Affine]]:
        """The operators right behind a node that do one thing to each of its channels, with what they do."""
        made = linear.node.output[0]
        while (step := self.use_counts.sole_user(made, users)) is not None and step.output[0] not in self.apart:
            affine = self._affine_of(linear, step, made, constants)
            if affine is None or affine.factor.shape != (linear.channels.count,):
                return
            yield step, affine
            made = step.output[0]

    def _affine_of(self, linear: _Linear, step: onnx.NodeProto, made: str, constants: Constants) -> Affine | None:
        """What an operator does to the channels of a node; None where that is not known, or not the same for all."""
        if step.op_type == _NORM and step.input[0] == made:
            if linear.node.op_type == "MatMul" and not self._is_matrix(linear.node):
                return None
            return affine_of(step, lambda name: self.use_counts.floats(constants.get(name)))
        if step.op_type not in STEPS or len(step.input) != 2:
            return None
        other = next(name for name in step.input if name != made)
        # A weight that others read too is not stored once more for a constant that any kernel takes in behind it.
        if step.op_type in ("Mul", "Div") and self.use_counts.reads[linear.node.input[1]] != 1:
            return None
        numbers = self.use_counts.floats(constants.get(other))
        is_first = step.input[0] == made
        return None if numbers is None else affine_of_step(step, numbers, linear.channels, is_first=is_first)

    def _is_matrix(self, node: onnx.NodeProto) -> bool:
        """Whether the last axis of a product is that of the channels, the second."""
        shapes = (self._shapes.of(name) for name in (node.input[0], node.output[0]))
        return any(shape is not None and len(shape) == 2 for shape in shapes)

    def _bias_of(self, node: onnx.NodeProto, count: int, constants: Constants) -> Array | None:
        """What a node adds to each channel, zeros where it adds nothing; None where that is not known."""
        if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
            return np.zeros(count)
        held = self.use_counts.floats(constants.get(node.input[2]))
        if held is None:
            return None
        bias, beta = held.astype(np.float64), find(node, "beta")
        if node.op_type != "Gemm":
            return bias if bias.shape == (count,) else None
        if bias.shape not in ((), (1,), (1, 1), (count,), (1, count)):
            return None  # another for every row
        return np.broadcast_to(bias.reshape(-1), (count,)) * (1.0 if beta is None else beta.f)

    # -- changing -------------------------------------------------------------------------------------------------

    def _may_scale(self, tensor: TensorProto, factors: Factors) -> bool:
        """Whether a weight stays finite. One that is multiplied as it is streamed is so once."""
        stored, start = self._blobs.stored(tensor), 0
        if stored is not None and self._blobs.blob(tensor, stored).factors is not None:
            return False
        for chunk in self._blobs.chunks(tensor):
            if not np.isfinite(factors.scale(chunk, start)).all():
                return False
            start += chunk.size
        return True

    def _scale(self, node: onnx.NodeProto, weight: Held, factors: Factors) -> None:
        """Multiply a node's weight: where it is, if nobody else reads it."""
        tensor = weight.tensor
        if not (weight.is_initializer and self.use_counts.reads[node.input[1]] == 1):
            tensor = self.use_counts.new_initializer(f"{node.input[1]}_folded", weight.tensor)
            self.use_counts.leave(node.input[1])
            node.input[1] = tensor.name
        stored = self._blobs.stored(tensor)
        if stored is not None:
            self._blobs.mark(tensor, replace(self._blobs.blob(tensor, stored), factors=factors))
            return
        scaled = factors.scale(self._blobs.array(tensor).reshape(-1))
        clear_payload(tensor)
        tensor.raw_data = scaled.tobytes()

    def _hand_on(
        self, node: onnx.NodeProto, steps: Sequence[onnx.NodeProto], offset: Array, constants: Constants
    ) -> Sequence[onnx.NodeProto]:
        """Let a node make what the last of others made, with an offset. Returns those that are to go."""
        name_node(node, title_of(node))
        bias = numpy_helper.from_array(offset)
        for step in steps:
            self.use_counts.leave(*step.input)
        if node.op_type == "MatMul" and offset.any():
            node.output[0], last = fresh_name(self.use_counts.taken, f"{node.output[0]}_folded"), steps[-1]
            title, made = fresh_name(self.use_counts.taken, f"{node.name}_bias"), last.output[0]
            added = self.use_counts.new_initializer(f"{node.name}.bias", bias).name
            last.CopyFrom(helper.make_node("Add", [node.output[0], added], [made], title))
            self.use_counts.reads[node.output[0]] = 1
            return steps[:-1]
        node.output[0] = steps[-1].output[0]
        if node.op_type == "MatMul" or (len(node.input) < 3 and not offset.any()):
            return steps
        held = constants.get(node.input[2]) if len(node.input) > 2 else None
        is_own = held is not None and held.is_initializer and self.use_counts.reads[node.input[2]] == 1
        if held is not None and is_own and held.tensor.dims == bias.dims:
            clear_payload(held.tensor)
            held.tensor.raw_data = bias.raw_data
        else:
            self.use_counts.leave(*node.input[2:])
            del node.input[2:]
            node.input.append(self.use_counts.new_initializer(f"{node.name}.bias", bias).name)
        beta = find(node, "beta")
        if beta is not None:
            node.attribute.remove(beta)
        return steps


def _as_float32(numbers: Array) -> Array:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)
