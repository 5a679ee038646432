"""Elimination of no-ops: Identity, Dropout, casts, reshapes and slices that change nothing."""

from collections.abc import Callable, Mapping

import onnx

from mezzo.onnx.normal_form.scope import GraphScope, rename_reads
from mezzo.onnx.protos.attributes import find, read_int
from mezzo.onnx.read.origins import name_node

_TRAINING_IS_ATTRIBUTE_BEFORE = 7
_TRAINING_IS_OPERAND_SINCE = 12


def remove_no_ops(scope: GraphScope) -> bool:
    """Replace uses of a no-op's output by its input; True if there was a no-op.

    Names of graph outputs stay: the node that produces the no-op's input takes over the name.
    """
    names: dict[str, str] = {}
    removed: list[int] = []
    for position, node in enumerate(scope.graph.node):
        is_no_op = _NO_OPS.get(node.op_type)
        if (
            is_no_op is None
            or scope.stays(node)
            or not is_no_op(scope, node)
            or scope.reads[_mask(node)]
        ):
            continue
        source, result = names.get(node.input[0], node.input[0]), node.output[0]
        if source in scope.inner or result in scope.inner:
            continue
        if result not in scope.outputs:
            names[result] = source
        elif not _take_name(scope, source, result, names):
            continue
        removed.append(position)
    rename_reads(scope.graph, names)
    for position in reversed(removed):
        del scope.graph.node[position]
    return bool(removed)


def _mask(node: onnx.NodeProto) -> str:
    """The second output, which only Dropout has: its mask."""
    return node.output[1] if len(node.output) > 1 else ""


def _take_name(scope: GraphScope, source: str, result: str, names: dict[str, str]) -> bool:
    """Rename a value at its producer. False if `source` must keep its name."""
    maker = scope.makers.get(source)
    if maker is None or source in scope.outputs or source in names.values():
        return False
    name_node(maker)
    for position, name in enumerate(maker.output):
        if name == source:
            maker.output[position] = result
    names[source] = result
    return True


def _is_inference(scope: GraphScope, node: onnx.NodeProto) -> bool:
    if scope.opset < _TRAINING_IS_ATTRIBUTE_BEFORE:
        return read_int(node, "is_test", 0) != 0
    if scope.opset < _TRAINING_IS_OPERAND_SINCE or len(node.input) < 3 or not node.input[2]:
        return True
    training = scope.numbers(node.input[2])
    return training is not None and not training.any()


def keeps_type(scope: GraphScope, node: onnx.NodeProto) -> bool:
    """Whether a Cast's operand already has the target type."""
    to = read_int(node, "to", 0)
    return to != 0 and to == scope.element(node.input[0])


def _keeps_order(_: GraphScope, node: onnx.NodeProto) -> bool:
    order = find(node, "perm")
    return order is not None and [*order.ints] == [*range(len(order.ints))]


def _keeps_shape(scope: GraphScope, node: onnx.NodeProto) -> bool:
    """Whether input and output have the same static shape."""
    before = scope.static_shape(node.input[0])
    return before is not None and before == scope.shape(node.output[0])


def _keeps_all(scope: GraphScope, node: onnx.NodeProto) -> bool:
    steps = scope.integers(node, 4, "steps")
    return steps is not None and all(step == 1 for step in steps) and _keeps_shape(scope, node)


def _pads_nothing(scope: GraphScope, node: onnx.NodeProto) -> bool:
    pads = scope.integers(node, 1, "pads")
    return pads is not None and bool(pads) and not any(pads)


def _has_one_operand(_: GraphScope, node: onnx.NodeProto) -> bool:
    return len(node.input) == 1


# Not for sequences and optionals.
_NO_OPS: Mapping[str, Callable[[GraphScope, onnx.NodeProto], bool]] = {
    "Cast": keeps_type,
    "Concat": _has_one_operand,
    "Dropout": _is_inference,
    "Expand": _keeps_shape,
    "Flatten": _keeps_shape,
    "Identity": lambda scope, node: scope.element(node.input[0]) != 0,
    "Max": _has_one_operand,
    "Mean": _has_one_operand,
    "Min": _has_one_operand,
    "Pad": _pads_nothing,
    "Reshape": _keeps_shape,
    "Slice": _keeps_all,
    "Squeeze": _keeps_shape,
    "Sum": _has_one_operand,
    "Tile": _keeps_shape,
    "Transpose": _keeps_order,
    "Unsqueeze": _keeps_shape,
}
