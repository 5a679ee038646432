"""Steps of the opset that need a node rewritten: where an attribute became an operand, or a default changed.

A row is one operator at one version: whether a node can take the step with its meaning kept, and how. Source: onnx
1.23, docs/Changelog.md, read per operator. Operators without a row take only steps that change nothing but types.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import onnx

from mezzo.frontends.onnx.attributes import decode, find

Owner = onnx.GraphProto | onnx.FunctionProto
# Ranks of values by name, where they are known.
Ranks = Mapping[str, int]
# Makes a wish into a name that nothing bears.
Fresh = Callable[[str], str]


class Migration(NamedTuple):
    """`can` judges a node and changes nothing; `take` rewrites it. New Constants are appended; the caller
    sorts the owner's nodes."""

    version: int
    can: Callable[[onnx.NodeProto, Ranks], bool]
    take: Callable[[onnx.NodeProto, Owner, Fresh], None]


def _has_one_output(node: onnx.NodeProto, _: Ranks) -> bool:
    return not any(node.output[1:])


def _is_plain(node: onnx.NodeProto) -> bool:
    """Attributes that a function's caller sets cannot be moved."""
    return not any(attribute.ref_attr_name for attribute in node.attribute)


def _drop(node: onnx.NodeProto, *names: str) -> None:
    for name in names:
        attribute = find(node, name)
        if attribute is not None:
            node.attribute.remove(attribute)


def _trim_outputs(node: onnx.NodeProto, _: Owner, __: Fresh) -> None:
    del node.output[1:]


def _is_spatial(node: onnx.NodeProto, ranks: Ranks) -> bool:
    attribute = find(node, "spatial")
    return _is_plain(node) and (attribute is None or attribute.i == 1)


def _drop_spatial(node: onnx.NodeProto, _: Owner, __: Fresh) -> None:
    _drop(node, "spatial")


def _drop_ratio(node: onnx.NodeProto, _: Owner, __: Fresh) -> None:
    """Without a training mode the ratio says nothing."""
    _drop(node, "ratio")
    del node.output[1:]


def _is_over_last_axis(node: onnx.NodeProto, ranks: Ranks) -> bool:
    """Before 13 the input was flattened at the axis: the same over the last axis only."""
    attribute = find(node, "axis")
    axis = 1 if attribute is None else attribute.i
    return _is_plain(node) and (axis == -1 or ranks.get(node.input[0]) == axis + 1)


def _name_last_axis(node: onnx.NodeProto, _: Owner, __: Fresh) -> None:
    _drop(node, "axis")
    node.attribute.append(onnx.helper.make_attribute("axis", -1))


def _move(name: str, operand: int) -> Callable[[onnx.NodeProto, Owner, Fresh], None]:
    """Make an attribute of integers an operand, held by a Constant."""

    def take(node: onnx.NodeProto, owner: Owner, fresh: Fresh) -> None:
        attribute = find(node, name)
        if attribute is None:
            return
        numbers = decode(attribute)
        assert isinstance(numbers, tuple), "an attribute of integers"
        taken = fresh(f"{node.output[0]}_{name}")
        value = onnx.helper.make_tensor("value", onnx.TensorProto.INT64, [len(numbers)], numbers)
        owner.node.append(onnx.helper.make_node("Constant", [], [taken], name=taken, value=value))
        node.attribute.remove(attribute)
        node.input.extend([""] * (operand - len(node.input)))
        node.input.append(taken)

    return take


def _can_move(node: onnx.NodeProto, _: Ranks) -> bool:
    return _is_plain(node) and bool(node.output[0])


def _count_outputs(node: onnx.NodeProto, _: Owner, __: Fresh) -> None:
    """Since 18 a Split without sizes says how many parts it makes."""
    if len(node.input) < 2 or not node.input[1]:
        node.attribute.append(onnx.helper.make_attribute("num_outputs", len(node.output)))


def _always(node: onnx.NodeProto, _: Ranks) -> bool:
    return True


_AXES = _move("axes", 1)
_SOFTMAX = (Migration(13, _is_over_last_axis, _name_last_axis),)
_REDUCTION = (Migration(18, _can_move, _AXES),)

MIGRATIONS: dict[str, tuple[Migration, ...]] = {
    "BatchNormalization": (Migration(9, _is_spatial, _drop_spatial), Migration(14, _has_one_output, _trim_outputs)),
    "Dropout": (Migration(10, _has_one_output, _trim_outputs), Migration(12, _has_one_output, _drop_ratio)),
    "Hardmax": _SOFTMAX,
    "LogSoftmax": _SOFTMAX,
    "ReduceL1": _REDUCTION,
    "ReduceL2": _REDUCTION,
    "ReduceLogSum": _REDUCTION,
    "ReduceLogSumExp": _REDUCTION,
    "ReduceMax": _REDUCTION,
    "ReduceMean": _REDUCTION,
    "ReduceMin": _REDUCTION,
    "ReduceProd": _REDUCTION,
    "ReduceSum": (Migration(13, _can_move, _AXES),),
    "ReduceSumSquare": _REDUCTION,
    "Softmax": _SOFTMAX,
    "Split": (Migration(13, _can_move, _move("split", 1)), Migration(18, _always, _count_outputs)),
    "Squeeze": (Migration(13, _can_move, _AXES),),
    "Unsqueeze": (Migration(13, _can_move, _AXES),),
}
