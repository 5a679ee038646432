"""Constant folding: what hangs on constants alone becomes one. Nothing is unfolded that is larger than what it is made
of, but for what is small, and weights of products that may become integers: those that do not are stored as they were.
"""

import math
from collections.abc import Mapping, Set

import onnx
from onnx import TensorProto

from mezzo.formats.dtypes import size_bits
from mezzo.onnx.files.blobs import EXTERNAL, INLINE_BYTES
from mezzo.onnx.normal_form.evaluation import EVALUATED, evaluate
from mezzo.onnx.normal_form.no_ops import keeps_type
from mezzo.onnx.normal_form.scope import Scope
from mezzo.onnx.normal_form.use_counts import add_initializer
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.types import FROM_ONNX
from mezzo.tables.quantized_kernels import DYNAMIC_WEIGHTS

# A constant of so many bytes is folded whatever it is made of: a file is not larger for it.
_SMALL_BYTES = 1 << 16
# Bytes of all that is larger than what it is made of, of one graph.
_MOST_GROWN_BYTES = 1 << 22
# What is computed of all constants of a graph for weights takes so many times their bytes more: FP32 of 8 bits.
_WIDENED = 3
# Scales and zero points beside what is stored as integers, as a factor of its bytes.
_SCALES = 1.25
# Operators that draw numbers, have bodies, or say how a number is stored, which a file is to go on saying.
_KEPT = frozenset(
    {
        "Bernoulli", "Constant", "DequantizeLinear", "DynamicQuantizeLinear", "If", "Loop", "Multinomial",
        "Optional", "QuantizeLinear", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Scan",
        "SequenceMap",
    }
)  # fmt: skip
# Operands of products that are weights, from the second to this one.
_WEIGHTS = {**DYNAMIC_WEIGHTS, "Conv": 1, "ConvTranspose": 1}
# Operators whose result has the elements of their first operand in their order.
_RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def fold_constants(scope: Scope) -> bool:
    """Put constants in place of operators that read nothing else; True where there were any."""
    weights = _weights(scope) if scope.copied < 1.0 else frozenset[str]()
    sizes = _foldable(scope, frozenset(), weights)
    growing = _growing(scope, sizes)
    if growing:
        sizes = _foldable(scope, growing, weights)
    wanted = [name for name in sizes if _is_read_elsewhere(scope, name, sizes)]
    if not wanted:
        return False
    tensors: dict[str, TensorProto] = {}
    for name in wanted:
        same = _reshaped(scope, name)
        if same is not None:
            tensors[name] = same
    tensors |= evaluate(scope, {name: sizes[name] for name in wanted if name not in tensors}, weights)
    for node in scope.graph.node:
        for position, name in enumerate(node.output):
            if name in tensors:
                node.output[position] = fresh_name(scope.taken, f"{name}_unfolded")  # read by nobody
    for tensor in tensors.values():
        add_initializer(scope.model, scope.graph, tensor)
    return bool(tensors)


def _growing(scope: Scope, sizes: Mapping[str, int]) -> Set[str]:
    """Results that would be another copy of a large constant, such as the table that an embedding shares with a head,
    where the result would be larger than the model for it.
    """
    bytes_by_name = {name: _bytes_of(scope, name) or 0 for name in scope.constants}
    total, spent = sum(bytes_by_name.values()), 0.0
    growing: set[str] = set()
    for name, size in bytes_by_name.items():
        folded = [node for node in scope.readers.get(name, ()) if node.output and node.output[0] in sizes]
        is_shared = scope.reads[name] > sum([*node.input].count(name) for node in folded)
        if size <= _SMALL_BYTES or not folded or not is_shared:
            continue
        results = [made for node in folded for made in node.output if made in sizes]
        grown = _SCALES * scope.copied * sum(sizes[made] for made in results)
        if grown + spent > (1.0 - scope.copied) * (total - size):
            growing.update(results)
        else:
            spent += grown
    return growing


def _weights(scope: Scope) -> Set[str]:
    """Values that nothing reads but products as their weights, at once or behind further operators."""
    weights: set[str] = set()
    for node in reversed(scope.graph.node):
        if all(_is_weight(scope, made, weights) for made in node.output if made):
            weights.update(node.output)
    return weights


def _is_weight(scope: Scope, name: str, weights: Set[str]) -> bool:
    readers = scope.readers.get(name, ())
    reads = [read for reader in readers for read in enumerate(reader.input) if read[1] == name]
    is_read_here = 0 < len(reads) == scope.reads[name]
    return is_read_here and all(weights >= {*reader.output} or _is_product(reader, name) for reader in readers)


def _is_product(node: onnx.NodeProto, weight: str) -> bool:
    """Whether a node is a product that reads a value as its weight alone."""
    last = _WEIGHTS.get(node.op_type, 0) if node.domain in DEFAULT else 0
    return weight in node.input[1 : last + 1] and [*node.input].count(weight) == 1


def _foldable(scope: Scope, left_out: Set[str], weights: Set[str]) -> dict[str, int]:
    """Values that can be constants, with their bytes."""
    sizes: dict[str, int] = {}
    grown = 0
    widened = -_WIDENED * sum(_bytes_of(scope, name) or 0 for name in scope.constants)
    for node in scope.graph.node:
        if node.op_type in _KEPT or scope.stays(node) or not left_out.isdisjoint(node.output):
            continue
        if not _are_constant(scope, node, sizes):
            continue
        if node.op_type == "Identity" and (_bytes_of(scope, node.input[0]) or 0) > INLINE_BYTES:
            continue  # readers share the constant itself
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            continue
        largest = max(sizes.get(name) or _bytes_of(scope, name) or 0 for name in node.input)
        results = {name: size for name in node.output if name and (size := _bytes_of(scope, name)) is not None}
        if len(results) < sum(1 for name in node.output if name) or not _are_free(scope, results):
            continue
        added = max(0, sum(results.values()) - largest)
        if added and results and results.keys() <= weights and widened + added <= 0:
            widened += added
            sizes |= results
            continue
        if max(results.values(), default=0) > max(_SMALL_BYTES, largest):
            continue
        if grown + added <= _MOST_GROWN_BYTES:
            grown += added
            sizes |= results
    return sizes


def _are_constant(scope: Scope, node: onnx.NodeProto, sizes: Mapping[str, int]) -> bool:
    """Whether an operator reads constants alone, of types that can be computed with."""
    names = [name for name in node.input if name]
    for name in names:
        if name not in sizes and (name not in scope.constants or scope.constants[name].data_type not in EVALUATED):
            return False
    return bool(names)


def _are_free(scope: Scope, names: Mapping[str, object]) -> bool:
    return all(name not in scope.outputs and name not in scope.inner for name in names)


def _bytes_of(scope: Scope, name: str) -> int | None:
    """The size of a value; None where its type or shape is not known, or it cannot be computed."""
    if not name:
        return 0
    dims, dtype = scope.shape(name), FROM_ONNX.get(scope.element(name))
    if dims is None or dtype is None or None in dims or scope.element(name) not in EVALUATED:
        return None
    return math.prod(dim for dim in dims if dim is not None) * size_bits(dtype) // 8


def _is_read_elsewhere(scope: Scope, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether anything but what is folded too reads a value."""
    inside = [node for node in scope.readers.get(name, ()) if not node.output or node.output[0] in sizes]
    return scope.reads[name] > sum([*node.input].count(name) for node in inside)


def _reshaped(scope: Scope, name: str) -> TensorProto | None:
    """A large constant under another name and with other dimensions, where a value is no more than that."""
    dims, node = scope.shape(name), scope.makers[name]
    while node.op_type in _RESHAPING or (node.op_type == "Cast" and keeps_type(scope, node)):
        tensor = scope.constants.get(node.input[0])
        if tensor is not None:
            if tensor.data_location != EXTERNAL and tensor.ByteSize() <= INLINE_BYTES:
                return None
            result = TensorProto()
            result.CopyFrom(tensor)
            result.name = name
            del result.dims[:]
            result.dims.extend(dim for dim in dims or () if dim is not None)
            return result
        node = scope.makers[node.input[0]]
    return None
