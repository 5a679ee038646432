"""What reads each input of an ONNX model: tables that it picks rows of, masks, sizes, branches.

A walk forward from each input, through what hands its numbers on, bodies and functions included.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mezzo.ir.input_roles import Length, Part, Slot
from mezzo.onnx.measure.compared import flatten
from mezzo.onnx.schema.domains import DEFAULT, canonical
from mezzo.onnx.schema.shapes import can_infer
from mezzo.onnx.schema.types import FROM_ONNX

_MS = "com.microsoft"
_MOST_STEPS = 4096  # of one walk
_MOST_NUMBERS = 4096  # of a constant that is looked at


class _Reads(NamedTuple):
    """An operator that picks rows: the operand of the indices, that of the rows, and their axis or its attribute."""

    indices: int
    rows: int
    axis: str | int = "axis"
    otherwise: int = 0


_PICKS: Mapping[tuple[str, str], tuple[_Reads, ...]] = {
    ("", "Gather"): (_Reads(1, 0),),
    ("", "GatherElements"): (_Reads(1, 0),),
    ("", "GatherND"): (_Reads(1, 0, 0),),
    ("", "NegativeLogLikelihoodLoss"): (_Reads(1, 0, 1),),
    ("", "RotaryEmbedding"): (_Reads(3, 1, 0),),
    ("", "Scatter"): (_Reads(1, 0),),
    ("", "ScatterElements"): (_Reads(1, 0),),
    ("", "ScatterND"): (_Reads(1, 0, 0),),
    ("", "SoftmaxCrossEntropyLoss"): (_Reads(1, 0, 1),),
    ("", "TensorScatter"): (_Reads(2, 0, "axis", -2),),
    ("ai.onnx.ml", "ArrayFeatureExtractor"): (_Reads(1, 0, -1),),
    (_MS, "EmbedLayerNormalization"): (_Reads(0, 2, 0), _Reads(1, 4, 0), _Reads(8, 3, 0)),
    (_MS, "GatherBlockQuantized"): (_Reads(1, 0, "gather_axis"),),
    (_MS, "GatherND"): (_Reads(1, 0, 0),),
    (_MS, "RotaryEmbedding"): (_Reads(1, 2, 0),),
}
# Operands that say which places count.
_MASKS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "And"): (0, 1),
    ("", "Attention"): (3,),
    ("", "Compress"): (1,),
    ("", "CumSum"): (0,),
    ("", "NonZero"): (0,),
    ("", "Not"): (0,),
    ("", "Or"): (0, 1),
    ("", "ReduceSum"): (0,),
    ("", "Where"): (0,),
    (_MS, "Attention"): (3,),
    (_MS, "DecoderMaskedMultiHeadAttention"): (3,),
    (_MS, "EmbedLayerNormalization"): (7,),
    (_MS, "MultiHeadAttention"): (4,),
    (_MS, "QAttention"): (5,),
}
# Operands that say how long, how often or where.
_SIZES: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "CenterCropPad"): (1,), ("", "ConstantOfShape"): (0,), ("", "CumSum"): (1,), ("", "Expand"): (1,),
    ("", "GRU"): (4,), ("", "LSTM"): (4,), ("", "Loop"): (0,), ("", "OneHot"): (1,), ("", "Pad"): (1, 3),
    ("", "RNN"): (4,), ("", "Range"): (0, 1, 2), ("", "Reshape"): (1,), ("", "Resize"): (2, 3),
    ("", "ReverseSequence"): (1,), ("", "Slice"): (1, 2, 3, 4), ("", "Split"): (1,), ("", "Squeeze"): (1,),
    ("", "Tile"): (1,), ("", "TopK"): (1,), ("", "Trilu"): (1,), ("", "Unsqueeze"): (1,), ("", "Upsample"): (1,),
    (_MS, "GroupQueryAttention"): (5, 6),
}  # fmt: skip
# What hands on the numbers of some of its operands, all of them where none are listed.
_HANDS_ON: Mapping[str, tuple[int, ...] | None] = {
    "Cast": (0,), "CastLike": (0,), "Concat": None, "DepthToSpace": (0,), "Expand": (0,), "Flatten": (0,),
    "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "Identity": (0,), "Pad": (0,), "ReduceMax": (0,),
    "ReduceMin": (0,), "Reshape": (0,), "SequenceAt": (0,), "SequenceConstruct": None, "Slice": (0,),
    "SpaceToDepth": (0,), "Split": (0,), "SplitToSequence": (0,), "Squeeze": (0,), "Tile": (0,), "TopK": (0,),
    "Transpose": (0,), "Unsqueeze": (0,), "Where": (1, 2), "ConcatFromSequence": (0,), "SequenceInsert": (1,),
    "Optional": (0,), "OptionalGetElement": (0,), "ScatterElements": (2,), "ScatterND": (2,), "Trilu": (0,),
}  # fmt: skip
# What hands a truth on.
_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_INTEGERS = frozenset({
    TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8, TensorProto.UINT16,
    TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip


def read_slots(model: onnx.ModelProto) -> tuple[Slot, ...]:
    """What the model's inputs take, those with a default or of an optional type left out."""
    stored = {tensor.name for tensor in model.graph.initializer}
    stored |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    walk = _Walk(_inferred(flatten(model)))
    return tuple(
        _slot(port, walk)
        for port in model.graph.input
        if port.name not in stored and not port.type.HasField("optional_type")
    )


def _slot(port: onnx.ValueInfoProto, walk: "_Walk") -> Slot:
    is_list = port.type.HasField("sequence_type")
    tensor = (port.type.sequence_type.elem_type if is_list else port.type).tensor_type
    lengths = tuple(map(_length, tensor.shape.dim)) if tensor.HasField("shape") else None
    found = walk.follow(port.name)
    part = _part(tensor.elem_type, found, port.name)
    below = min(found.below, key=lambda length: (isinstance(length, str), length)) if found.below else None
    return Slot(
        name=port.name,
        dtype=FROM_ONNX.get(tensor.elem_type),
        lengths=lengths,
        part=part,
        below=below if part is Part.INDEX else None,
        is_list=is_list,
    )


def _part(kind: int, found: "_Found", name: str) -> Part:
    """What the numbers of an input are. Of floats only who estimates them can tell."""
    if kind == TensorProto.BOOL:
        return Part.SWITCH if found.is_switch else Part.MASK
    if kind not in _INTEGERS:
        return Part.DATA
    if found.below:
        return Part.INDEX
    if found.is_size:
        return Part.SIZE
    is_named_so = found.is_compared and "mask" in name.lower()
    return Part.MASK if found.is_mask or is_named_so else Part.DATA


def _length(dim: onnx.TensorShapeProto.Dimension) -> Length:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param or None


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True) if can_infer(model) else model
    except Exception:  # noqa: BLE001  a convenience: what it cannot tell is not known
        return model


@dataclass(kw_only=True)
class _Found:
    """What has been seen on the walk from one input."""

    below: list[int | str] = field(default_factory=list)
    is_mask: bool = False
    is_size: bool = False
    is_switch: bool = False
    is_compared: bool = False


class _At(NamedTuple):
    """A value on the way: scale * input + offset; or the truth of something about the input."""

    name: str
    scale: float
    offset: float
    is_truth: bool


class _Walk:
    """Who reads what in a model without functions, bodies included."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self._constants: dict[str, TensorProto] = {}
        self._lengths: dict[str, tuple[Length, ...]] = {}
        self._results: dict[str, list[str]] = {}  # what a body's result is called around it
        self._enter(model.graph)

    def _enter(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._constants[tensor.name] = tensor
            self._lengths[tensor.name] = tuple(tensor.dims)
        for info in (*graph.input, *graph.value_info, *graph.output):
            if info.type.tensor_type.HasField("shape"):
                self._lengths.setdefault(info.name, tuple(map(_length, info.type.tensor_type.shape.dim)))
        for node in graph.node:
            for body in _bodies(node):
                results = body.output[1:] if node.op_type == "Loop" else body.output
                for result, output in zip(results, node.output, strict=False):
                    self._results.setdefault(result.name, []).append(output)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
                self._lengths[node.output[0]] = tuple(node.attribute[0].t.dims)
            for operand, name in enumerate(node.input):
                if name:
                    self._users.setdefault(name, []).append((node, operand))
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self._enter(attribute.g)

    def follow(self, name: str) -> _Found:
        """Walk from an input to what reads its numbers."""
        found, queue, seen = _Found(), [_At(name, 1.0, 0.0, False)], {name}
        while queue and len(seen) < _MOST_STEPS:
            at = queue.pop()
            fresh = [at._replace(name=output) for output in self._results.get(at.name, ())]
            for node, operand in self._users.get(at.name, ()):
                fresh += self._read(found, at, node, operand)
            for following in fresh:
                if following.name and following.name not in seen:
                    seen.add(following.name)
                    queue.append(following)
        return found

    def _read(self, found: _Found, at: _At, node: onnx.NodeProto, operand: int) -> Iterator[_At]:
        """Note how a node reads a value, and give the values that it hands it on in."""
        key = canonical(node.domain), node.op_type
        for picks in _PICKS.get(key, ()):
            if operand == picks.indices and not at.is_truth:
                self._note_rows(found, at, node, picks)
        if key == ("", "OneHot") and operand == 0 and not at.is_truth:
            depth = self._number(node.input[1])
            found.below += [] if depth is None else [_bound(depth, at)]
        if operand in _MASKS.get(key, ()) and not (node.op_type == "ReduceSum" and self._rank(at.name) == 1):
            found.is_mask = True
        if operand in _SIZES.get(key, ()) and not at.is_truth:
            found.is_size = True
        if key == ("", "If"):
            found.is_switch = True
        yield from _into_bodies(at, node, operand)
        if key[0]:
            return
        if key[1] in _COMPARES:
            found.is_compared = True
            for output in node.output:
                yield _At(output, 1.0, 0.0, True)
            return
        if key[1] == "Not" or (at.is_truth and key[1] in ("And", "Or", "Xor")):
            yield _At(node.output[0], 1.0, 0.0, True)
        handed = _HANDS_ON.get(key[1], ())
        if handed is None or operand in handed:
            is_truth = at.is_truth or _casts_to(node) not in (None, *_INTEGERS)
            for output in node.output:
                yield at._replace(name=output, is_truth=is_truth)
        yield from self._arithmetic(found, at, node, operand)

    def _arithmetic(self, found: _Found, at: _At, node: onnx.NodeProto, operand: int) -> Iterator[_At]:
        """Follow sums and products with constants; what is taken off one, or times a mask's depth, is a mask."""
        op, other = node.op_type, node.input[1 - operand] if len(node.input) == 2 else ""
        if op not in ("Add", "Sub", "Mul") or not other:
            return
        numbers = self._numbers(other)
        if op == "Sub" and operand == 1:
            found.is_mask |= numbers is not None and bool(np.all(numbers == 1))
            return
        if op == "Mul":
            found.is_mask |= numbers is None and not at.is_truth
            found.is_mask |= numbers is not None and bool(np.all(numbers <= -1e3))
        most = 0.0 if numbers is None or not numbers.size else float(numbers.max())
        if at.is_truth:
            return
        if op == "Mul" and most > 0:
            yield _At(node.output[0], at.scale * most, at.offset * most, False)
        elif op == "Add":
            yield at._replace(name=node.output[0], offset=at.offset + most)
        elif op == "Sub":
            yield at._replace(name=node.output[0], offset=at.offset - most)

    def _note_rows(self, found: _Found, at: _At, node: onnx.NodeProto, picks: _Reads) -> None:
        if len(node.input) <= max(picks.rows, picks.indices):
            return
        lengths = self._lengths.get(node.input[picks.rows])
        axis = picks.axis
        if isinstance(axis, str):
            axis = next((a.i for a in node.attribute if a.name == axis), picks.otherwise)
        if lengths is None or not -len(lengths) <= axis < len(lengths):
            return
        rows: Length = lengths[axis]
        if node.op_type in ("GatherND", "ScatterND"):  # the axes that an index has, counted from the first
            picked = self._lengths.get(node.input[picks.indices])
            deep = picked[-1] if picked and isinstance(picked[-1], int) else 1
            rows = min((n for n in lengths[:deep] if isinstance(n, int)), default=rows)
        if isinstance(rows, int):
            found.below.append(_bound(rows, at))
        elif rows is not None:
            found.below.append(rows)

    def _rank(self, name: str) -> int | None:
        lengths = self._lengths.get(name)
        return None if lengths is None else len(lengths)

    def _number(self, name: str) -> int | None:
        numbers = self._numbers(name)
        return None if numbers is None or numbers.size != 1 else int(numbers.reshape(-1)[0])

    def _numbers(self, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None":
        """The numbers of a small constant."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        if int(np.prod(tensor.dims, dtype=np.int64)) > _MOST_NUMBERS:
            return None
        try:
            return numpy_helper.to_array(tensor).astype(np.float64)
        except (ValueError, TypeError):
            return None


def _bound(rows: int, at: _At) -> int:
    """Below what an input has to lie, so that what became of it lies below `rows`; at least 1."""
    return max(1, int((rows - 1 - at.offset) // at.scale) + 1)


def _casts_to(node: onnx.NodeProto) -> int | None:
    return next((a.i for a in node.attribute if a.name == "to"), None) if node.op_type == "Cast" else None


def _into_bodies(at: _At, node: onnx.NodeProto, operand: int) -> Iterator[_At]:
    """What a loop's body calls a value that the loop reads."""
    if node.domain in DEFAULT and node.op_type in ("Loop", "Scan", "SequenceMap"):
        for body in _bodies(node):
            if operand < len(body.input):
                yield at._replace(name=body.input[operand].name)


def _bodies(node: onnx.NodeProto) -> Sequence[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
