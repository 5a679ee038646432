"""Which tensors of a graph have as many numbers as which others, so that places to sample are worked out once."""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from mezzo.onnx.schema.domains import DEFAULT

# A product of lengths and symbols, or the name of the value whose size nothing is known of.
Size = int | str | tuple[int | str, ...]

# Operators whose first output has as many numbers as their first operand.
_SAME = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip",
    "Cos", "Cosh", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Flatten", "Floor", "Gelu", "GroupNormalization",
    "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "LRN", "LayerNormalization",
    "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "Not", "PRelu",
    "Reciprocal", "Relu", "Reshape", "RMSNormalization", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Squeeze", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Transpose",
    "Trilu", "Unsqueeze",
})  # fmt: skip
# Rows shorter than this take longer to reduce than to read.
_SHORTEST_ROW, _LONG_ROW = 64, 256
_WITH_ONE_NUMBER = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})


def known_sizes(shapes: Mapping[str, tuple[int | str | None, ...]]) -> dict[str, Size]:
    """Sizes by name, from shapes whose dimensions are lengths, symbols or unknown."""
    sizes: dict[str, Size] = {}
    for name, shape in shapes.items():
        if any(dim is None for dim in shape):
            continue
        known, symbols = 1, []
        for dim in shape:
            if isinstance(dim, int):
                known *= max(dim, 0)
            elif dim is not None:
                symbols.append(dim)
        sizes[name] = (known, *sorted(symbols)) if symbols else known
    return sizes


def row_length(shape: Sequence[int | str | None]) -> int | None:
    """Numbers in a row of a tensor, of as many last axes as make it long enough; None if they are not known."""
    length = 1
    for dim in reversed(shape):
        if length >= _LONG_ROW or not isinstance(dim, int) or dim < 1:
            break
        length *= dim
    return length if length >= _SHORTEST_ROW else None


def spread_sizes(
    nodes: Iterable[onnx.NodeProto], sizes: Mapping[str, Size], outer: Mapping[str, Size]
) -> dict[str, Size]:
    """Sizes of the values of one graph; a value that nothing is known of has its own name for its size."""
    spread = dict(sizes)

    def find(name: str) -> Size:
        return spread[name] if name in spread else outer.get(name, name)

    for node in nodes:
        for name in node.output:
            if name and name not in spread:
                spread[name] = name
        if node.domain not in DEFAULT or not node.input or not node.output:
            continue
        result = node.output[0]
        if spread.get(result) != result:
            continue
        if node.op_type in _SAME:
            spread[result] = find(node.input[0])
        elif node.op_type in _WITH_ONE_NUMBER and len(node.input) == 2:
            first, second = find(node.input[0]), find(node.input[1])
            if 1 in (first, second):
                spread[result] = first if second == 1 else second
    return spread
