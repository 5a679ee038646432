"""BatchNorm folding: per-channel affine operators after a convolution or matmul go into it.

Folded are BatchNormalization with constant statistics and Add, Sub, Mul, Div with constants, if the
intermediate values have no other use. The weight is scaled per channel; large ones while streamed.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.factors import Factors
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.normal_form.affine import (
    STEPS,
    Affine,
    Channels,
    affine_of,
    affine_of_step,
    channels_of,
)
from mezzo.onnx.normal_form.normalize import normalize
from mezzo.onnx.normal_form.relu_normalization import normalize_clamps
from mezzo.onnx.normal_form.respelling import respell
from mezzo.onnx.normal_form.use_counts import Constants, ConstantTensor, GraphUses, UseCounts
from mezzo.onnx.protos.attributes import read_float
from mezzo.onnx.protos.entries import remove_named, remove_where
from mezzo.onnx.protos.graphs import bodies_of
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.protos.payloads import set_payload
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape, value_shapes
from mezzo.tables.target import Respelling

_NORM = "BatchNormalization"
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
# Older opsets: BatchNormalization has a training flag (is_test), and Add broadcasts along a named
# axis.
_OLDEST_OPSET = 7


def fold(
    source: ModelSource,
    apart: Set[str],
    copied: float = 1.0,
    respellings: Sequence[Respelling] = (),
) -> ModelSource | None:
    """Bring a model to normal form and fold affine operators into weights; None if nothing changes.

    `apart` are results of operators to keep, `respellings` the target's. `copied` is the size of a
    duplicated constant in the converted model, relative to the original. The source is not changed:
    the result shares its payloads, and large weights are scaled whenever they are read.
    """
    normal = normalize(source, apart, copied)
    return _fold(normal or source, apart, respellings) or normal


def _fold(
    source: ModelSource, apart: Set[str], respellings: Sequence[Respelling]
) -> ModelSource | None:
    opset = default_opset(source.model)
    if opset is None or opset < _OLDEST_OPSET:
        return None
    model = deepcopy(source.model)
    use_counts = UseCounts(model, source.blobs, source.model)
    is_folded = _walk(use_counts, model.graph, {}, apart, _Shapes(model))
    is_respelled = respell(use_counts, apart, respellings)
    if not (is_folded or is_respelled):
        return None
    use_counts.prune()
    return replace(source, model=model)


class _Shapes:
    """Shapes of the original model's values, inferred on first use."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model

    @cached_property
    def _known(self) -> Mapping[str, Shape]:
        return value_shapes(self._model)

    def of(self, name: str) -> Shape | None:
        return self._known.get(name)


def _walk(
    counts: UseCounts, graph: onnx.GraphProto, outer: Constants, apart: Set[str], shapes: _Shapes
) -> bool:
    """Fold in a graph and its subgraphs; `outer` are constants of the enclosing graphs."""
    constants = counts.constants(graph, outer)
    is_changed = _Folder(GraphUses(counts, graph, constants), apart, shapes).fold()
    is_changed |= normalize_clamps(GraphUses(counts, graph, constants), apart, shapes.of)
    for body in bodies_of(graph):
        is_changed |= _walk(counts, body, constants, apart, shapes)
    return is_changed


@dataclass(frozen=True, eq=False)
class _Linear:
    """An operator whose weight has its output channels."""

    node: onnx.NodeProto
    weight: ConstantTensor
    channels: Channels


class _Folder:
    """Folds affine operators in one graph, in place, without its subgraphs."""

    def __init__(self, uses: GraphUses, apart: Set[str], shapes: _Shapes) -> None:
        self.uses, self.use_counts, self.constants = uses, uses.counts, uses.constants
        self.apart, self.is_changed = apart, False
        self._blobs: Blobs = uses.counts.blobs
        self._shapes = shapes

    def fold(self) -> bool:
        """Fold all chains; True if there were any."""
        graph, folded = self.uses.graph, set[str]()
        for node in graph.node:
            if node.op_type in _LINEAR and node.domain in DEFAULT:
                folded.update(step.output[0] for step in self._fold(node))
                if node.op_type in _CONVOLUTIONS:
                    self._complete(node)
        foldable = (_NORM, *STEPS)
        remove_where(graph.node, lambda node: node.op_type in foldable and node.output[0] in folded)
        return self.is_changed

    def _fold(self, node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
        """Fold the affine operators after a node into it. Returns the nodes to delete."""
        weight = self.constants.get(node.input[1]) if len(node.input) > 1 else None
        if weight is None or weight.tensor.data_type != TensorProto.FLOAT:
            return ()
        channels = channels_of(node, weight.tensor.dims)
        bias = None if channels is None else self._bias_of(node, channels.count)
        if channels is None or bias is None:
            return ()
        linear = _Linear(node, weight, channels)
        chain = [*self._behind(linear)]
        if not chain or (
            node.op_type == "MatMul" and [step.op_type for step, _ in chain] == ["Add"]
        ):
            return ()
        total = Affine(np.ones(channels.count), bias)
        for _, affine in chain:
            total = total.then(affine)
        factors = Factors(total.factor[channels.order], channels.run)
        with np.errstate(over="ignore"):
            offset = total.offset.astype(np.float32)
        is_scaled = bool((total.factor != 1.0).any())
        if not np.isfinite(offset).all() or (
            is_scaled and not self._may_scale(weight.tensor, factors)
        ):
            return ()
        steps = [step for step, _ in chain]
        if is_scaled:
            self._scale(node, weight, factors)
        self.is_changed = True
        return self._hand_on(node, steps, offset)

    def _complete(self, node: onnx.NodeProto) -> None:
        """Add a tiny non-zero bias to a convolution with several uses and none or a zero bias.

        OpenVINO 2026.4.1 computes wrong INT8 results without it, and drops a zero bias if a
        dimension is dynamic. FP32's smallest normal number changes no sum.
        """
        weight = (
            self.constants.get(node.input[1])
            if len(node.input) > 1 and self.use_counts.reads[node.output[0]] > 1
            else None
        )
        if weight is None or weight.tensor.data_type != TensorProto.FLOAT:
            return
        channels = channels_of(node, weight.tensor.dims)
        bias = None if channels is None else self._bias_of(node, channels.count)
        if bias is None or bias.any():
            return
        name_node(node)
        self.use_counts.leave(*filter(None, node.input[2:]))
        del node.input[2:]
        smallest = numpy_helper.from_array(np.full(len(bias), np.finfo(np.float32).tiny))
        node.input.append(self.use_counts.new_initializer(f"{node.name}.bias", smallest).name)
        self.is_changed = True

    def _behind(self, linear: _Linear) -> Iterator[tuple[onnx.NodeProto, Affine]]:
        """The chain of affine operators after a node, with their per-channel maps."""
        value = linear.node.output[0]
        while (step := self.uses.sole_user(value)) is not None and step.output[0] not in self.apart:
            affine = self._affine_of(linear, step, value)
            if affine is None or affine.factor.shape != (linear.channels.count,):
                return
            yield step, affine
            value = step.output[0]

    def _affine_of(self, linear: _Linear, step: onnx.NodeProto, value: str) -> Affine | None:
        """The per-channel map of an operator on a node's output; None if it is not one."""
        if step.op_type == _NORM and step.input[0] == value:
            if linear.node.op_type == "MatMul" and not self._is_matrix(linear.node):
                return None
            return affine_of(step, self.uses.floats)
        if step.op_type not in STEPS or len(step.input) != 2:
            return None
        constant_name = next(name for name in step.input if name != value)
        # Not worth a second copy of a shared weight: kernels fuse a scale by a constant.
        if step.op_type in ("Mul", "Div") and self.use_counts.reads[linear.node.input[1]] != 1:
            return None
        numbers = self.uses.floats(constant_name)
        is_first = step.input[0] == value
        return (
            None
            if numbers is None
            else affine_of_step(step, numbers, linear.channels, is_first=is_first)
        )

    def _is_matrix(self, node: onnx.NodeProto) -> bool:
        """Whether a MatMul's output is a matrix, so that its channels are axis 1."""
        shapes = (self._shapes.of(name) for name in (node.input[0], node.output[0]))
        return any(shape is not None and len(shape) == 2 for shape in shapes)

    def _bias_of(self, node: onnx.NodeProto, count: int) -> Array | None:
        """A node's bias per channel, zeros if absent; None if it is no per-channel constant."""
        if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
            return np.zeros(count)
        operand = self.uses.floats(node.input[2])
        if operand is None:
            return None
        bias, beta = operand.astype(np.float64), read_float(node, "beta", 1.0)
        if node.op_type != "Gemm":
            return bias if bias.shape == (count,) else None
        if bias.shape not in ((), (1,), (1, 1), (count,), (1, count)):
            return None  # varies by row
        return np.broadcast_to(bias.reshape(-1), (count,)) * beta

    # -- changing ----------------------------------------------------------------------------------

    def _may_scale(self, tensor: TensorProto, factors: Factors) -> bool:
        """Whether a scaled weight stays finite, and is not already scaled while streamed."""
        stored, start = self._blobs.stored(tensor), 0
        if stored is not None and self._blobs.blob(tensor, stored).factors is not None:
            return False
        for chunk in self._blobs.chunks(tensor):
            if not np.isfinite(factors.scale(chunk, start)).all():
                return False
            start += chunk.size
        return True

    def _scale(self, node: onnx.NodeProto, weight: ConstantTensor, factors: Factors) -> None:
        """Scale a node's weight: in place if it has no other use, else as a copy."""
        tensor = weight.tensor
        if not (weight.is_initializer and self.use_counts.reads[node.input[1]] == 1):
            tensor = self.use_counts.new_initializer(f"{node.input[1]}_folded", weight.tensor)
            self.use_counts.leave(node.input[1])
            node.input[1] = tensor.name
        self._blobs.scale(tensor, factors)

    def _hand_on(
        self, node: onnx.NodeProto, steps: Sequence[onnx.NodeProto], offset: Array
    ) -> Sequence[onnx.NodeProto]:
        """Give a node the output of the last folded step, and the offset as its bias. Returns the
        nodes to delete; a MatMul keeps one, turned into an Add.
        """
        name_node(node)
        bias = numpy_helper.from_array(offset)
        for step in steps:
            self.use_counts.leave(*step.input)
        if node.op_type == "MatMul" and offset.any():
            node.output[0] = fresh_name(self.use_counts.taken, f"{node.output[0]}_folded")
            title = fresh_name(self.use_counts.taken, f"{node.name}_bias")
            last_step, result = steps[-1], steps[-1].output[0]
            bias_name = self.use_counts.new_initializer(f"{node.name}.bias", bias).name
            last_step.CopyFrom(
                helper.make_node("Add", [node.output[0], bias_name], [result], title)
            )
            self.use_counts.reads[node.output[0]] = 1
            return steps[:-1]
        node.output[0] = steps[-1].output[0]
        if node.op_type == "MatMul" or (len(node.input) < 3 and not offset.any()):
            return steps
        bias_constant = self.constants.get(node.input[2]) if len(node.input) > 2 else None
        is_own = (
            bias_constant is not None
            and bias_constant.is_initializer
            and self.use_counts.reads[node.input[2]] == 1
        )
        if bias_constant is not None and is_own and bias_constant.tensor.dims == bias.dims:
            set_payload(bias_constant.tensor, bias.raw_data)
        else:
            self.use_counts.leave(*node.input[2:])
            del node.input[2:]
            node.input.append(self.use_counts.new_initializer(f"{node.name}.bias", bias).name)
        remove_named(node.attribute, ("beta",))
        return steps
