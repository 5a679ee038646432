"""Constant folding, bounded in size: results larger than their operands are folded only if small.

Exceptions are weights of matmuls and convolutions that may be quantized: they are folded at any
size, and their original computation is kept, to be stored again if they stay in floating point.
"""

import math
from collections.abc import Mapping, Set
from copy import deepcopy

import onnx
from onnx import TensorProto

from mezzo.onnx.files.blobs import INLINE_BYTES
from mezzo.onnx.normal_form.evaluation import EVALUATED, evaluate
from mezzo.onnx.normal_form.no_ops import keeps_type
from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.protos.entries import add_initializer
from mezzo.onnx.protos.graphs import subgraphs_of
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.protos.payloads import EXTERNAL, payload_bytes
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.types import FROM_ONNX
from mezzo.tables.quantized_kernels import DYNAMIC_WEIGHTS

# Constants of at most this many bytes are always folded: file size hardly changes.
_SMALL_BYTES = 1 << 16
# Budget in bytes, per graph, for results that are larger than their operands.
_MOST_GROWN_BYTES = 1 << 22
# Growth budget for weights, as a multiple of all constants' bytes: 8-bit data widened to FP32.
_WIDENED = 3
# Size of quantized data with scales and zero points, as a factor of its integers' size.
_SCALES = 1.25
# Operators that are random, have subgraphs, or quantize, which the model must keep.
_KEPT = frozenset(
    {
        "Bernoulli",
        "Constant",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "If",
        "Loop",
        "Multinomial",
        "Optional",
        "QuantizeLinear",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Scan",
        "SequenceMap",
    }
)
# Weight operands of matmuls and convolutions: from the second to this position.
_WEIGHTS = {**DYNAMIC_WEIGHTS["onnx"], "Conv": 1, "ConvTranspose": 1}
# Operators that keep the elements of their first operand, in order.
_RESHAPING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def fold_constants(scope: GraphScope) -> bool:
    """Replace operators on constants by initializers; True if there were any."""
    weights = _weights(scope) if scope.copied != 1.0 else frozenset[str]()
    sizes = _foldable(scope, frozenset(), weights)
    growing = _growing(scope, sizes)
    if growing:
        sizes = _foldable(scope, growing, weights)
    folded = [name for name in sizes if _is_read_elsewhere(scope, name, sizes)]
    if not folded:
        return False
    tensors: dict[str, TensorProto] = {}
    for name in folded:
        same = _reshaped(scope, name)
        if same is not None:
            tensors[name] = same
    tensors |= evaluate(
        scope, {name: sizes[name] for name in folded if name not in tensors}, weights
    )
    for node in scope.graph.node:
        for position, name in enumerate(node.output):
            if name in tensors:
                # The dead node's new output name.
                node.output[position] = fresh_name(scope.taken, f"{name}_unfolded")
    for name, tensor in tensors.items():
        add_initializer(scope.model, scope.graph, tensor, name)
    return bool(tensors)


def _growing(scope: GraphScope, sizes: Mapping[str, int]) -> Set[str]:
    """Results that would duplicate a large shared constant and so outweigh what quantization saves.

    Example: the table that an embedding shares with the output layer.
    """
    bytes_by_name = {name: _bytes_of(scope, name) or 0 for name in scope.constants}
    total, spent = sum(bytes_by_name.values()), 0.0
    growing: set[str] = set()
    for name, size in bytes_by_name.items():
        folded = [
            node for node in scope.readers.get(name, ()) if node.output and node.output[0] in sizes
        ]
        is_shared = scope.is_read_outside(name, folded)
        if size <= _SMALL_BYTES or not folded or not is_shared:
            continue
        results = [result for node in folded for result in node.output if result in sizes]
        grown = _SCALES * scope.copied * sum(sizes[result] for result in results)
        if not grown + spent <= (1.0 - scope.copied) * (total - size):  # also if it is infinite
            growing.update(results)
        else:
            spent += grown
    return growing


def _weights(scope: GraphScope) -> Set[str]:
    """Values used only as weights of matmuls and convolutions, directly or indirectly."""
    weights: set[str] = set()
    for node in reversed(scope.graph.node):
        if all(_is_weight(scope, name, weights) for name in node.output if name):
            weights.update(node.output)
    return weights


def _is_weight(scope: GraphScope, name: str, weights: Set[str]) -> bool:
    readers = scope.readers.get(name, ())
    reads = [read for reader in readers for read in enumerate(reader.input) if read[1] == name]
    is_read_here = 0 < len(reads) == scope.reads[name]
    return is_read_here and all(
        weights >= {*reader.output} or _is_product(reader, name) for reader in readers
    )


def _is_product(node: onnx.NodeProto, weight: str) -> bool:
    """Whether a node is a matmul or convolution with the value as its weight and nothing else."""
    last_weight = _WEIGHTS.get(node.op_type, 0) if node.domain in DEFAULT else 0
    return weight in node.input[1 : last_weight + 1] and [*node.input].count(weight) == 1


def _foldable(scope: GraphScope, left_out: Set[str], weights: Set[str]) -> dict[str, int]:
    """Values that can be folded, with their sizes in bytes."""
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
        if any(subgraphs_of(node)):
            continue
        largest = max(sizes.get(name) or _bytes_of(scope, name) or 0 for name in node.input)
        results = {
            name: size
            for name in node.output
            if name and (size := _bytes_of(scope, name)) is not None
        }
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


def _are_constant(scope: GraphScope, node: onnx.NodeProto, sizes: Mapping[str, int]) -> bool:
    """Whether all operands are constant and of types that can be evaluated."""
    names = [name for name in node.input if name]
    for name in names:
        if name not in sizes and (
            name not in scope.constants or scope.constants[name].data_type not in EVALUATED
        ):
            return False
    return bool(names)


def _are_free(scope: GraphScope, names: Mapping[str, object]) -> bool:
    return all(name not in scope.outputs and name not in scope.inner for name in names)


def _bytes_of(scope: GraphScope, name: str) -> int | None:
    """The size of a value in bytes; None if its type or shape is unknown or unsupported."""
    if not name:
        return 0
    dims, element = scope.static_shape(name), scope.element(name)
    if dims is None or element not in EVALUATED:
        return None
    return payload_bytes(FROM_ONNX[element], math.prod(dims))


def _is_read_elsewhere(scope: GraphScope, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether a value has a use that is not folded itself."""
    folded_users = [
        node for node in scope.readers.get(name, ()) if not node.output or node.output[0] in sizes
    ]
    return scope.is_read_outside(name, folded_users)


def _reshaped(scope: GraphScope, name: str) -> TensorProto | None:
    """A large constant, renamed or reshaped, as a tensor that shares its payload; or None."""
    dims, node = scope.static_shape(name), scope.makers[name]
    while node.op_type in _RESHAPING or (node.op_type == "Cast" and keeps_type(scope, node)):
        tensor = scope.constants.get(node.input[0])
        if tensor is not None:
            if tensor.data_location != EXTERNAL and tensor.ByteSize() <= INLINE_BYTES:
                return None
            result = deepcopy(tensor)
            del result.dims[:]
            result.dims.extend(dims or ())
            return result
        node = scope.makers[node.input[0]]
    return None
