"""Roles of an ONNX model's inputs, inferred from use: row index, mask, size, branch, data.

The graph is walked forward from each input, through operators that pass its numbers on (Reshape,
Concat, Cast, ...), into subgraphs and inlined functions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from mezzo.ir.input_roles import Length, Part, Slot
from mezzo.onnx.protos.graphs import inline_functions, stored_names, subgraphs_of
from mezzo.onnx.schema.cache_shapes import find_head_sizes
from mezzo.onnx.schema.domains import DEFAULT, canonical
from mezzo.onnx.schema.shapes import infer, length_of
from mezzo.onnx.schema.types import FROM_ONNX

_MS = "com.microsoft"
_MOST_STEPS = 4096  # values visited from one input
_MOST_NUMBERS = 4096  # elements of a constant that is read


class _Reads(NamedTuple):
    """An operator that gathers or scatters rows: positions of its index and data operands.

    `axis` is the indexed axis, or the attribute that names it, with its default in `otherwise`.
    """

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
# Operands that are masks: which elements count.
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
# Operands that are lengths, repeat counts or axes.
_SIZES: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "CenterCropPad"): (1,), ("", "ConstantOfShape"): (0,), ("", "CumSum"): (1,),
    ("", "Expand"): (1,), ("", "GRU"): (4,), ("", "LSTM"): (4,), ("", "Loop"): (0,),
    ("", "OneHot"): (1,), ("", "Pad"): (1, 3), ("", "RNN"): (4,), ("", "Range"): (0, 1, 2),
    ("", "Reshape"): (1,), ("", "Resize"): (2, 3), ("", "ReverseSequence"): (1,),
    ("", "Slice"): (1, 2, 3, 4), ("", "Split"): (1,), ("", "Squeeze"): (1,), ("", "Tile"): (1,),
    ("", "TopK"): (1,), ("", "Trilu"): (1,), ("", "Unsqueeze"): (1,), ("", "Upsample"): (1,),
    (_MS, "GroupQueryAttention"): (5, 6),
}  # fmt: skip
# Operators whose output holds elements of these operands unchanged (None: of all operands).
_HANDS_ON: Mapping[str, tuple[int, ...] | None] = {
    "Cast": (0,), "CastLike": (0,), "Concat": None, "DepthToSpace": (0,), "Expand": (0,),
    "Flatten": (0,), "Gather": (0,), "GatherElements": (0,), "GatherND": (0,), "Identity": (0,),
    "Pad": (0,), "ReduceMax": (0,), "ReduceMin": (0,), "Reshape": (0,), "SequenceAt": (0,),
    "SequenceConstruct": None, "Slice": (0,), "SpaceToDepth": (0,), "Split": (0,),
    "SplitToSequence": (0,), "Squeeze": (0,), "Tile": (0,), "TopK": (0,), "Transpose": (0,),
    "Unsqueeze": (0,), "Where": (1, 2), "ConcatFromSequence": (0,), "SequenceInsert": (1,),
    "Optional": (0,), "OptionalGetElement": (0,), "ScatterElements": (2,), "ScatterND": (2,),
    "Trilu": (0,),
}  # fmt: skip
# Operators that return booleans.
_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_INTEGERS = frozenset({
    TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8,
    TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip


def read_slots(model: onnx.ModelProto) -> tuple[Slot, ...]:
    """Name, dtype, shape and role of each input that must be fed."""
    inferred = infer(inline_functions(model), data_prop=True)
    walk, head_sizes = _Walk(inferred), find_head_sizes(inferred)
    return tuple(
        _with_head_size(_slot(port, walk), head_sizes.get(port.name)) for port in _ports(model)
    )


def read_types(model: onnx.ModelProto) -> tuple[Slot, ...]:
    """Name, dtype and shape of each input that must be fed."""
    return tuple(map(_type_of, _ports(model)))


def _ports(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    stored = set(stored_names(model.graph))
    return [
        port
        for port in model.graph.input
        if port.name not in stored and not port.type.HasField("optional_type")
    ]


def _tensor_type(port: onnx.ValueInfoProto) -> onnx.TypeProto.Tensor:
    """The type of an input, or of the tensors in its list."""
    is_list = port.type.HasField("sequence_type")
    return (port.type.sequence_type.elem_type if is_list else port.type).tensor_type


def _type_of(port: onnx.ValueInfoProto) -> Slot:
    tensor = _tensor_type(port)
    return Slot(
        name=port.name,
        dtype=FROM_ONNX.get(tensor.elem_type),
        lengths=tuple(map(length_of, tensor.shape.dim)) if tensor.HasField("shape") else None,
        is_list=port.type.HasField("sequence_type"),
    )


def _slot(port: onnx.ValueInfoProto, walk: "_Walk") -> Slot:
    evidence = walk.follow(port.name)
    part = _part(_tensor_type(port).elem_type, evidence, port.name)
    below = (
        min(evidence.below, key=lambda length: (isinstance(length, str), length))
        if evidence.below
        else None
    )
    return replace(_type_of(port), part=part, below=below if part is Part.INDEX else None)


def _with_head_size(slot: Slot, head_size: int | None) -> Slot:
    """The input; of a cache whose head size is open, with the one that attention needs."""
    lengths = slot.lengths or ()
    if head_size is None or len(lengths) != 4 or isinstance(lengths[3], int):
        return slot
    return replace(slot, lengths=(*lengths[:3], head_size))


def _part(kind: int, evidence: "_Found", name: str) -> Part:
    """The role of an input, from its element type and its uses. Floats are always data."""
    if kind == TensorProto.BOOL:
        return Part.SWITCH if evidence.is_switch else Part.MASK
    if kind not in _INTEGERS:
        return Part.DATA
    if evidence.below:
        return Part.INDEX
    if evidence.is_size:
        return Part.SIZE
    is_named_so = evidence.is_compared and "mask" in name.lower()
    return Part.MASK if evidence.is_mask or is_named_so else Part.DATA


@dataclass(kw_only=True)
class _Found:
    """Uses of one input: `below` lists the upper bounds of its values where it is an index."""

    below: list[int | str] = field(default_factory=list)
    is_mask: bool = False
    is_size: bool = False
    is_switch: bool = False
    is_compared: bool = False


class _At(NamedTuple):
    """A value that depends on the input: scale * input + offset, or a boolean if `is_truth`."""

    name: str
    scale: float
    offset: float
    is_truth: bool


class _Walk:
    """The users of every value in a model without functions, subgraphs included."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._users: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        self._constants: dict[str, TensorProto] = {}
        self._lengths: dict[str, tuple[Length, ...]] = {}
        self._results: dict[str, list[str]] = {}  # outer names of a subgraph's outputs
        self._enter(model.graph)

    def _enter(self, graph: onnx.GraphProto) -> None:
        for tensor in graph.initializer:
            self._constants[tensor.name] = tensor
            self._lengths[tensor.name] = tuple(tensor.dims)
        for info in (*graph.input, *graph.value_info, *graph.output):
            if info.type.tensor_type.HasField("shape"):
                self._lengths.setdefault(
                    info.name, tuple(map(length_of, info.type.tensor_type.shape.dim))
                )
        for node in graph.node:
            for body in subgraphs_of(node):
                results = body.output[1:] if node.op_type == "Loop" else body.output
                for result, output in zip(results, node.output, strict=False):
                    self._results.setdefault(result.name, []).append(output)
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
                self._lengths[node.output[0]] = tuple(node.attribute[0].t.dims)
            for operand, name in enumerate(node.input):
                if name:
                    self._users.setdefault(name, []).append((node, operand))
            for body in subgraphs_of(node):
                self._enter(body)

    def follow(self, name: str) -> _Found:
        """Collect the uses of an input, over at most _MOST_STEPS values that depend on it."""
        evidence, queue, visited = _Found(), [_At(name, 1.0, 0.0, False)], {name}
        while queue and len(visited) < _MOST_STEPS:
            current = queue.pop()
            next_values = [
                current._replace(name=output) for output in self._results.get(current.name, ())
            ]
            for node, operand in self._users.get(current.name, ()):
                next_values += self._read(evidence, current, node, operand)
            for following in next_values:
                if following.name and following.name not in visited:
                    visited.add(following.name)
                    queue.append(following)
        return evidence

    def _read(
        self, evidence: _Found, current: _At, node: onnx.NodeProto, operand: int
    ) -> Iterator[_At]:
        """Record how a node uses a value, and yield the node's outputs that still depend on it."""
        key = canonical(node.domain), node.op_type
        for picks in _PICKS.get(key, ()):
            if operand == picks.indices and not current.is_truth:
                self._note_rows(evidence, current, node, picks)
        if key == ("", "OneHot") and operand == 0 and not current.is_truth:
            depth = self._number(node.input[1])
            evidence.below += [] if depth is None else [_bound(depth, current)]
        if operand in _MASKS.get(key, ()) and not (
            node.op_type == "ReduceSum" and self._rank(current.name) == 1
        ):
            evidence.is_mask = True
        if operand in _SIZES.get(key, ()) and not current.is_truth:
            evidence.is_size = True
        if key == ("", "If"):
            evidence.is_switch = True
        yield from _into_bodies(current, node, operand)
        if key[0]:
            return
        if key[1] in _COMPARES:
            evidence.is_compared = True
            for output in node.output:
                yield _At(output, 1.0, 0.0, True)
            return
        if key[1] == "Not" or (current.is_truth and key[1] in ("And", "Or", "Xor")):
            yield _At(node.output[0], 1.0, 0.0, True)
        passed_on = _HANDS_ON.get(key[1], ())
        if passed_on is None or operand in passed_on:
            is_truth = current.is_truth or _casts_to(node) not in (None, *_INTEGERS)
            for output in node.output:
                yield current._replace(name=output, is_truth=is_truth)
        yield from self._arithmetic(evidence, current, node, operand)

    def _arithmetic(
        self, evidence: _Found, current: _At, node: onnx.NodeProto, operand: int
    ) -> Iterator[_At]:
        """Follow Add, Sub and Mul with constants.

        `1 - x` and `x * -1e3` or below (additive attention masks) mark the input as a mask.
        """
        op, other_operand = node.op_type, node.input[1 - operand] if len(node.input) == 2 else ""
        if op not in ("Add", "Sub", "Mul") or not other_operand:
            return
        numbers = self._numbers(other_operand)
        if op == "Sub" and operand == 1:
            evidence.is_mask |= numbers is not None and bool(np.all(numbers == 1))
            return
        if op == "Mul":
            evidence.is_mask |= numbers is None and not current.is_truth
            evidence.is_mask |= numbers is not None and bool(np.all(numbers <= -1e3))
        largest = 0.0 if numbers is None or not numbers.size else float(numbers.max())
        if current.is_truth:
            return
        if op == "Mul" and largest > 0:
            yield _At(node.output[0], current.scale * largest, current.offset * largest, False)
        elif op == "Add":
            yield current._replace(name=node.output[0], offset=current.offset + largest)
        elif op == "Sub":
            yield current._replace(name=node.output[0], offset=current.offset - largest)

    def _note_rows(
        self, evidence: _Found, current: _At, node: onnx.NodeProto, picks: _Reads
    ) -> None:
        if len(node.input) <= max(picks.rows, picks.indices):
            return
        lengths = self._lengths.get(node.input[picks.rows])
        axis = picks.axis
        if isinstance(axis, str):
            axis = next((a.i for a in node.attribute if a.name == axis), picks.otherwise)
        if lengths is None or not -len(lengths) <= axis < len(lengths):
            return
        rows: Length = lengths[axis]
        # An index covers as many leading axes as it is long.
        if node.op_type in (
            "GatherND",
            "ScatterND",
        ):
            index_shape = self._lengths.get(node.input[picks.indices])
            index_length = (
                index_shape[-1] if index_shape and isinstance(index_shape[-1], int) else 1
            )
            rows = min((n for n in lengths[:index_length] if isinstance(n, int)), default=rows)
        if isinstance(rows, int):
            evidence.below.append(_bound(rows, current))
        elif rows is not None:
            evidence.below.append(rows)

    def _rank(self, name: str) -> int | None:
        lengths = self._lengths.get(name)
        return None if lengths is None else len(lengths)

    def _number(self, name: str) -> int | None:
        numbers = self._numbers(name)
        return None if numbers is None or numbers.size != 1 else int(numbers.reshape(-1)[0])

    def _numbers(self, name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None":
        """The elements of a constant of at most _MOST_NUMBERS elements that is stored inline."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        if int(np.prod(tensor.dims, dtype=np.int64)) > _MOST_NUMBERS:
            return None
        try:
            return numpy_helper.to_array(tensor).astype(np.float64)
        except (ValueError, TypeError):
            return None


def _bound(rows: int, current: _At) -> int:
    """Exclusive upper bound of the input so that scale * input + offset < rows; at least 1."""
    return max(1, int((rows - 1 - current.offset) // current.scale) + 1)


def _casts_to(node: onnx.NodeProto) -> int | None:
    return (
        next((a.i for a in node.attribute if a.name == "to"), None)
        if node.op_type == "Cast"
        else None
    )


def _into_bodies(current: _At, node: onnx.NodeProto, operand: int) -> Iterator[_At]:
    """The value under its name in the body of a loop that takes it as an operand."""
    if node.domain in DEFAULT and node.op_type in ("Loop", "Scan", "SequenceMap"):
        for body in subgraphs_of(node):
            if operand < len(body.input):
                yield current._replace(name=body.input[operand].name)
