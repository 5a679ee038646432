"""Dataflow analysis: which float formats, and whether any input data, each output depends on."""

from collections import ChainMap
from collections.abc import Collection, Sequence

import onnx

from mezzo.contracts.lab import Reached
from mezzo.formats.dtypes import STORES, DType
from mezzo.onnx.measure.compared import formats_in
from mezzo.onnx.schema.value_types import TypedScope, value_types

# Operators that depend on the shape of their operand alone.
_SHAPE_ONLY = frozenset(
    {"EyeLike", "RandomNormalLike", "RandomUniformLike", "SequenceLength", "Shape", "Size"}
)
# Operators that quantize.
QUANTIZES = frozenset(
    {"DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "QuantizeLinear"}
)
# Operators of ONNX Runtime that read weights as integers of `bits` bits.
_READS_BLOCKS = frozenset({"GatherBlockQuantized", "MatMulNBits"})
# Operators that output indices of the largest or smallest elements, with the position of that
# output, and those that pass such indices on, or cast them.
_PICKS = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
_MOVES = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_DATA = 1  # the bit for "depends on input data"; formats have the bits above it
_FORMATS = tuple(DType)
_LABELS = 1 << (len(_FORMATS) + 1)  # the bit for "holds such indices"

_Bits = ChainMap[str, int]


def find_reached(model: onnx.ModelProto, fed: Collection[str]) -> dict[str, Reached]:
    """The dependencies of each output of a model without functions. `fed` are the inputs with data.

    Casts, weights and branches that no output depends on do not count. Linear in the graph's size,
    except loop bodies, which are walked to a fixed point.
    """
    bits: _Bits = ChainMap()
    for port in model.graph.input:
        bits[port.name] = _DATA if port.name in fed else 0
    scope = value_types(model)
    _walk(model.graph, scope, bits)
    return {
        port.name: _spell(bits.get(port.name, 0) | _own(scope, port.name))
        for port in model.graph.output
    }


def _spell(bits: int) -> Reached:
    formats = frozenset(dtype for place, dtype in enumerate(_FORMATS) if bits >> (place + 1) & 1)
    return Reached(formats, bool(bits & _DATA), bool(bits & _LABELS))


def _own(scope: TypedScope, name: str) -> int:
    """The bits of the formats in a value's own type."""
    return sum(1 << (_FORMATS.index(dtype) + 1) for dtype in formats_in(scope.types.get(name, "")))


def _walk(graph: onnx.GraphProto, scope: TypedScope, bits: _Bits) -> None:
    """Set the bits of each value of a graph, from the bits of its inputs."""
    for name in (port.name for port in graph.input):
        bits[name] = bits.get(name, 0) | _own(scope, name)
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        bits[tensor.name] = bits.get(tensor.name, 0) | _own(scope, tensor.name)
    for index, node in enumerate(graph.node):
        operands = [bits.get(name, 0) for name in node.input]
        bodies = [
            (attribute.g, scope.bodies[index, attribute.name])
            for attribute in node.attribute
            if (index, attribute.name) in scope.bodies
        ]
        if node.op_type in _SHAPE_ONLY and not node.domain:
            outputs = [0] * len(node.output)
        elif bodies:
            outputs = _walk_bodies(node, bodies, operands, bits)
        else:
            steps = _steps(scope, node) if node.op_type in QUANTIZES else _blocks(scope, node)
            index_bits = operands[0] & _LABELS if operands and node.op_type in _MOVES else 0
            outputs = [_union(operands) & ~_LABELS | index_bits | steps] * len(node.output)
            if not node.domain and _PICKS.get(node.op_type, len(outputs)) < len(outputs):
                outputs[_PICKS[node.op_type]] |= _LABELS
        for name, reached in zip(node.output, outputs, strict=False):
            if name:
                bits[name] = reached | _own(scope, name)


def _steps(scope: TypedScope, node: onnx.NodeProto) -> int:
    """The bit of a quantizer's output format: QUANTIZED8 for integers, else the stored format."""
    stored = next(iter(formats_in(scope.types.get(node.output[0], ""))), DType.UINT8)
    return 1 << (_FORMATS.index(STORES.get(stored, DType.QUANTIZED8)) + 1)


def _blocks(scope: TypedScope, node: onnx.NodeProto) -> int:
    """The bit of weights in low-bit blocks that an operator reads: INT4, or QUANTIZED8 for eight
    bits; 0 if it reads none.
    """
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type in _READS_BLOCKS:
        bits = attributes.get("bits", 4)
    elif node.op_type == "DequantizeLinear":
        is_low = "int4" in scope.types.get(node.input[0], "")
        bits = 4 if is_low else 8 if attributes.get("block_size") else 0
    else:
        return 0
    dtype = DType.INT4 if 0 < bits <= 4 else DType.QUANTIZED8
    return 1 << (_FORMATS.index(dtype) + 1) if bits else 0


def _walk_bodies(
    node: onnx.NodeProto,
    bodies: Sequence[tuple[onnx.GraphProto, TypedScope]],
    operands: Sequence[int],
    bits: _Bits,
) -> list[int]:
    """The bits of the outputs of an operator with subgraphs."""
    match node.op_type:
        case "If":
            branches = [_walk_body(*body, [], bits) for body in bodies]
            return [
                _union(bits_of_one) | _union(operands)
                for bits_of_one in zip(*branches, strict=False)
            ]
        case "Loop":
            # The body's inputs are a counter, a condition and the state; its outputs a condition
            # and the state.
            return _walk_state(bodies[0], [0, 0], operands[2:], [], 1, _union(operands[:2]), bits)
        case "Scan":
            scanned = next((int(a.i) for a in node.attribute if a.name == "num_scan_inputs"), 0)
            cut = len(operands) - scanned
            return _walk_state(bodies[0], [], operands[:cut], operands[cut:], 0, 0, bits)
        case _:
            inner = [
                _walk_body(*body, [_union(operands)] * len(body[0].input), bits) for body in bodies
            ]
            return [
                _union([*operands, *(bits_of_one for body in inner for bits_of_one in body)])
            ] * len(node.output)


def _walk_state(
    body: tuple[onnx.GraphProto, TypedScope], before: list[int], state: Sequence[int],
    scan_inputs: Sequence[int], skipped: int, control: int, bits: _Bits,
) -> list[int]:  # fmt: skip
    """Walk a loop body to a fixed point of its state. `skipped` outputs precede the state.

    The order of its inputs: `before`, the state, `scan_inputs`. `control` bits reach every output.
    """
    current = [output | control for output in state]
    while True:
        outputs = _walk_body(*body, [*before, *current, *scan_inputs], bits)
        # The condition decides the number of iterations.
        condition = control | _union(outputs[:skipped])
        updated = [
            old | new | condition for old, new in zip(current, outputs[skipped:], strict=False)
        ]
        if updated == current[: len(updated)]:
            return [*updated, *(output | condition for output in outputs[skipped + len(current) :])]
        current = updated


def _walk_body(
    graph: onnx.GraphProto, scope: TypedScope, formals: Sequence[int], bits: _Bits
) -> list[int]:
    inner: _Bits = bits.new_child()
    for position, port in enumerate(graph.input):
        inner[port.name] = formals[position] if position < len(formals) else 0
    _walk(graph, scope, inner)
    return [inner.get(port.name, 0) for port in graph.output]


def _union(operands: Sequence[int]) -> int:
    bits = 0
    for operand in operands:
        bits |= operand
    return bits
