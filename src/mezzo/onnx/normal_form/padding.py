"""Pad fusion: merges Pad into the padding attribute of the following convolution or pooling."""

import onnx

from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.protos.attributes import find, read_float, read_int, set_int
from mezzo.onnx.protos.entries import remove_named
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import DEFAULT

_PADDED = frozenset({"AveragePool", "Conv", "ConvInteger", "MaxPool"})
# Operators with non-negative outputs, for which zero padding does not change a max pooling.
_NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Abs", "Softplus", "Exp", "Softmax"})


def merge_pads(scope: GraphScope) -> bool:
    """Merge constant padding into the operators after it, where results are equal; True if any."""
    is_changed = False
    for pad in scope.graph.node:
        if pad.op_type != "Pad" or scope.stays(pad) or pad.output[0] in scope.outputs:
            continue
        number = _constant_of(scope, pad)
        if number is None:
            continue
        for node in scope.readers.get(pad.output[0], ()):
            is_fit = (
                node.op_type in _PADDED
                and node.domain in DEFAULT
                and [*node.input].count(pad.output[0]) == 1
            )
            if is_fit and node.input[0] == pad.output[0] and _merge(scope, pad, number, node):
                is_changed = True
    return is_changed


def _merge(scope: GraphScope, pad: onnx.NodeProto, number: float, node: onnx.NodeProto) -> bool:
    own_pads = _own_pads(scope, node)
    pad_widths = None if own_pads is None else _spatial_pads(scope, pad, len(own_pads) // 2)
    if own_pads is None or pad_widths is None or not _is_same(scope, pad, number, node, own_pads):
        return False
    name_node(node)
    remove_named(node.attribute, ("pads", "auto_pad"))
    pads = [own + added for own, added in zip(own_pads, pad_widths, strict=True)]
    node.attribute.append(onnx.helper.make_attribute("pads", pads))
    if node.op_type == "AveragePool":
        set_int(node, "count_include_pad", read_int(node, "count_include_pad", 1))
    node.input[0] = pad.input[0]
    return True


def _constant_of(scope: GraphScope, pad: onnx.NodeProto) -> float | None:
    """The padding value; None if it is computed, or the mode is not constant."""
    mode = find(pad, "mode")
    if mode is not None and mode.s != b"constant":
        return None
    if find(pad, "value") is not None:
        return read_float(pad, "value", 0.0)
    if len(pad.input) < 3 or not pad.input[2]:
        return 0.0
    numbers = scope.numbers(pad.input[2])
    return float(numbers.reshape(-1)[0]) if numbers is not None and numbers.size == 1 else None


def _own_pads(scope: GraphScope, node: onnx.NodeProto) -> list[int] | None:
    """An operator's own pads, begins then ends; None if unknown or dependent on input size."""
    kind, pads, window = find(node, "auto_pad"), find(node, "pads"), find(node, "kernel_shape")
    if kind is not None and kind.s not in (b"NOTSET", b"VALID"):
        return None
    weight = scope.shape(node.input[1]) if len(node.input) > 1 else None
    axes = len(window.ints) if window is not None else (0 if weight is None else len(weight) - 2)
    if axes < 1:
        return None
    if pads is None or (kind is not None and kind.s == b"VALID"):
        return [0] * (2 * axes)
    return [*pads.ints] if len(pads.ints) == 2 * axes else None


def _spatial_pads(scope: GraphScope, pad: onnx.NodeProto, axes: int) -> list[int] | None:
    """The Pad's padding of spatial axes, begins then ends; None if it pads other axes or crops."""
    pads, rank = scope.integers(pad, 1, "pads"), axes + 2
    named = scope.integers(pad, 3, "axes")
    if pads is None or named is None or min(pads, default=-1) < 0:
        return None
    padded_axes = [axis % rank for axis in named] if named else [*range(rank)]
    if len(pads) != 2 * len(padded_axes) or len({*padded_axes}) != len(padded_axes):
        return None
    full = [0] * (2 * rank)
    for position, axis in enumerate(padded_axes):
        full[axis], full[rank + axis] = pads[position], pads[len(padded_axes) + position]
    if any(full[axis] or full[rank + axis] for axis in (0, 1)):
        return None
    return [*full[2:rank], *full[rank + 2 :]]


def _is_same(
    scope: GraphScope, pad: onnx.NodeProto, number: float, node: onnx.NodeProto, own_pads: list[int]
) -> bool:
    """Whether the operator's own padding gives the same results as this Pad."""
    match node.op_type:
        case "Conv":
            return number == 0.0
        case "ConvInteger":  # pads with its zero point
            return number == 0.0 and (len(node.input) < 3 or not node.input[2])
        case "AveragePool":
            counts = find(node, "count_include_pad")
            is_free = not any(own_pads) and counts is None and scope.opset >= 7
            counts_pads = is_free or read_int(node, "count_include_pad", 0) != 0
            return number == 0.0 and not read_int(node, "ceil_mode", 0) and counts_pads
        case _:  # MaxPool pads with minus infinity
            return not any(own_pads) and _is_below(scope, pad, number, node)


def _is_below(scope: GraphScope, pad: onnx.NodeProto, number: float, node: onnx.NodeProto) -> bool:
    """Whether the padding value is a lower bound of the data, and all windows cover data."""
    window, pads = (
        find(node, "kernel_shape"),
        _spatial_pads(scope, pad, len(_own_pads(scope, node) or ()) // 2),
    )
    if (
        window is None
        or pads is None
        or len(node.output) > 1
        or find(node, "dilations") is not None
    ):
        return False
    if any(size <= padded for size, padded in zip([*window.ints] * 2, pads, strict=True)):
        return False
    if number == float("-inf"):
        return True
    maker = scope.makers.get(pad.input[0])
    return (
        number == 0.0
        and maker is not None
        and maker.op_type in _NOT_NEGATIVE
        and maker.domain in DEFAULT
    )
