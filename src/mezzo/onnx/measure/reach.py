"""What reaches each output of a model: the float formats on its way, and whether any number of the data does."""

from collections import ChainMap
from collections.abc import Collection, Sequence

import onnx

from mezzo.contracts.lab import Reached
from mezzo.formats.dtypes import STORES, DType
from mezzo.onnx.measure.compared import formats_in
from mezzo.onnx.schema.value_types import TypedScope, value_types

# Operators that ask a value for its shape, and read none of its numbers.
_SHAPE_ONLY = frozenset({"EyeLike", "RandomNormalLike", "RandomUniformLike", "SequenceLength", "Shape", "Size"})
# Operators that put numbers on the steps of a scale.
QUANTIZES = frozenset({"DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "QuantizeLinear"})
# Operators one of whose outputs holds places of the largest or smallest numbers, with its position, and those that
# move such places, or give them another integer type.
_PICKS = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
_MOVES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_DATA = 1  # the bit of what comes from the data; formats have the bits above it
_FORMATS = tuple(DType)
_LABELS = 1 << (len(_FORMATS) + 1)  # the bit of such places

_Bits = ChainMap[str, int]


def find_reached(model: onnx.ModelProto, fed: Collection[str]) -> dict[str, Reached]:
    """What reaches each output of a model without functions. `fed` are the inputs that the data feeds.

    A cast, a weight or a branch that no output depends on reaches none. Time grows linearly with the graph, but for
    bodies with state, which are walked until nothing is added.
    """
    bits: _Bits = ChainMap()
    for port in model.graph.input:
        bits[port.name] = _DATA if port.name in fed else 0
    scope = value_types(model)
    _walk(model.graph, scope, bits)
    return {port.name: _spell(bits.get(port.name, 0) | _own(scope, port.name)) for port in model.graph.output}


def _spell(bits: int) -> Reached:
    formats = frozenset(dtype for place, dtype in enumerate(_FORMATS) if bits >> (place + 1) & 1)
    return Reached(formats, bool(bits & _DATA), bool(bits & _LABELS))


def _own(scope: TypedScope, name: str) -> int:
    """The bit of a value's own format."""
    return sum(1 << (_FORMATS.index(dtype) + 1) for dtype in formats_in(scope.types.get(name, "")))


def _walk(graph: onnx.GraphProto, scope: TypedScope, bits: _Bits) -> None:
    """Note what reaches each value of a graph, whose inputs are noted already."""
    for name in (port.name for port in graph.input):
        bits[name] = bits.get(name, 0) | _own(scope, name)
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        bits[tensor.name] = bits.get(tensor.name, 0) | _own(scope, tensor.name)
    for index, node in enumerate(graph.node):
        given = [bits.get(name, 0) for name in node.input]
        bodies = [
            (attribute.g, scope.bodies[index, attribute.name])
            for attribute in node.attribute
            if (index, attribute.name) in scope.bodies
        ]
        if node.op_type in _SHAPE_ONLY and not node.domain:
            outputs = [0] * len(node.output)
        elif bodies:
            outputs = _walk_bodies(node, bodies, given, bits)
        else:
            steps = _steps(scope, node) if node.op_type in QUANTIZES else 0
            moved = given[0] & _LABELS if given and node.op_type in _MOVES else 0
            outputs = [_union(given) & ~_LABELS | moved | steps] * len(node.output)
            if not node.domain and _PICKS.get(node.op_type, len(outputs)) < len(outputs):
                outputs[_PICKS[node.op_type]] |= _LABELS
        for name, reached in zip(node.output, outputs, strict=False):
            if name:
                bits[name] = reached | _own(scope, name)


def _steps(scope: TypedScope, node: onnx.NodeProto) -> int:
    """The bit of the quantized format that a node makes: integers are of one, floats of the one that they store."""
    stored = next(iter(formats_in(scope.types.get(node.output[0], ""))), DType.UINT8)
    return 1 << (_FORMATS.index(STORES.get(stored, DType.QUANTIZED8)) + 1)


def _walk_bodies(
    node: onnx.NodeProto, bodies: Sequence[tuple[onnx.GraphProto, TypedScope]], given: Sequence[int], bits: _Bits
) -> list[int]:
    """What reaches the outputs of an operator with bodies."""
    match node.op_type:
        case "If":
            branches = [_walk_body(*body, [], bits) for body in bodies]
            return [_union(each) | _union(given) for each in zip(*branches, strict=False)]
        case "Loop":
            # The body takes a counter and a condition before its state, and gives a condition before its own.
            return _walk_state(bodies[0], [0, 0], given[2:], [], 1, _union(given[:2]), bits)
        case "Scan":
            scanned = next((int(a.i) for a in node.attribute if a.name == "num_scan_inputs"), 0)
            cut = len(given) - scanned
            return _walk_state(bodies[0], [], given[:cut], given[cut:], 0, 0, bits)
        case _:
            inner = [_walk_body(*body, [_union(given)] * len(body[0].input), bits) for body in bodies]
            return [_union([*given, *(each for body in inner for each in body)])] * len(node.output)


def _walk_state(
    body: tuple[onnx.GraphProto, TypedScope], before: list[int], state: Sequence[int], rest: Sequence[int],
    skipped: int, control: int, bits: _Bits,
) -> list[int]:  # fmt: skip
    """Walk a body whose state goes round until no more is added. `skipped` outputs come before its state."""
    held = [each | control for each in state]
    while True:
        outputs = _walk_body(*body, [*before, *held, *rest], bits)
        everything = control | _union(outputs[:skipped])  # when it ends decides what it gives
        fresh = [one | new | everything for one, new in zip(held, outputs[skipped:], strict=False)]
        if fresh == held[: len(fresh)]:
            return [*fresh, *(each | everything for each in outputs[skipped + len(held) :])]
        held = fresh


def _walk_body(graph: onnx.GraphProto, scope: TypedScope, formals: Sequence[int], bits: _Bits) -> list[int]:
    inner: _Bits = bits.new_child()
    for position, port in enumerate(graph.input):
        inner[port.name] = formals[position] if position < len(formals) else 0
    _walk(graph, scope, inner)
    return [inner.get(port.name, 0) for port in graph.output]


def _union(several: Sequence[int]) -> int:
    found = 0
    for each in several:
        found |= each
    return found
