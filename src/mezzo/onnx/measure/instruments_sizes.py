"""Symbolic element counts of tensors, so that equal sizes share their sample positions."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import infer, length_of

# A product of lengths and symbols, or the name of a value of unknown size.
Size = int | str | tuple[int | str, ...]

# Operators whose first output has as many elements as their first operand.
_SAME = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "Cast", "Ceil",
    "Celu", "Clip", "Cos", "Cosh", "CumSum", "Dropout", "Elu", "Erf", "Exp", "Flatten", "Floor",
    "Gelu", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity",
    "InstanceNormalization", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax",
    "LpNormalization", "MeanVarianceNormalization", "Mish", "Neg", "Not", "PRelu", "Reciprocal",
    "Relu", "Reshape", "RMSNormalization", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin",
    "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Squeeze", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Transpose", "Trilu", "Unsqueeze",
})  # fmt: skip
# Weights of up to this many elements may be shapes, which shape inference reads.
_SMALL = 1024
# Shorter rows take longer to reduce than to read; axes are joined to a row until it is long.
_SHORTEST_ROW, _LONG_ROW = 64, 256
_WITH_ONE_NUMBER = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})


def input_symbols(model: onnx.ModelProto) -> list[tuple[str, int, str]]:
    """The symbols in the shapes of inputs: (input, axis, symbol)."""
    return [
        (port.name, axis, dim.dim_param)
        for port in model.graph.input
        for axis, dim in enumerate(port.type.tensor_type.shape.dim)
        if dim.dim_param
    ]


def infer_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | str | None, ...]]:
    """Shapes of the main graph's values, inferred from inputs, weights and operators.

    The model's declared shapes of inner values are ignored, as they may be wrong.
    """
    bare = onnx.ModelProto()
    bare.ir_version = model.ir_version
    bare.opset_import.extend(model.opset_import)
    bare.graph.name = model.graph.name
    bare.graph.node.extend(model.graph.node)
    bare.graph.input.extend(model.graph.input)
    input_names = {port.name for port in model.graph.input}
    for tensor in model.graph.initializer:
        if np.prod(tensor.dims) <= _SMALL:
            bare.graph.initializer.append(tensor)
        elif tensor.name not in input_names:
            bare.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    inferred = infer(bare, data_prop=True)
    if inferred is bare:  # it fails on some models that run: sizes are then measured
        return {}
    return {
        info.name: tuple(map(length_of, info.type.tensor_type.shape.dim))
        for info in (*inferred.graph.value_info, *inferred.graph.input)
        if info.type.tensor_type.HasField("shape")
    }


def known_sizes(shapes: Mapping[str, tuple[int | str | None, ...]]) -> dict[str, Size]:
    """Sizes by name, from shapes whose dimensions are lengths, symbols or unknown."""
    sizes: dict[str, Size] = {}
    for name, shape in shapes.items():
        if any(dim is None for dim in shape):
            continue
        factor, symbols = 1, []
        for dim in shape:
            if isinstance(dim, int):
                factor *= max(dim, 0)
            elif dim is not None:
                symbols.append(dim)
        sizes[name] = (factor, *sorted(symbols)) if symbols else factor
    return sizes


def row_length(shape: Sequence[int | str | None]) -> int | None:
    """Length of a row: the product of as many last axes as reach _LONG_ROW; None if too short."""
    length = 1
    for dim in reversed(shape):
        if length >= _LONG_ROW or not isinstance(dim, int) or dim < 1:
            break
        length *= dim
    return length if length >= _SHORTEST_ROW else None


def spread_sizes(
    nodes: Iterable[onnx.NodeProto], sizes: Mapping[str, Size], outer: Mapping[str, Size]
) -> dict[str, Size]:
    """Sizes of the values of one graph; the size of an unknown value is its own name."""
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
            left_size, right_size = find(node.input[0]), find(node.input[1])
            if 1 in (left_size, right_size):
                spread[result] = left_size if right_size == 1 else right_size
    return spread
