"""Inference of input roles (mask, index, data) by following inputs through data movement."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import fx

from mezzo.aten.program import TORCH_DTYPES, Program, is_float, packet_of, tensor_of
from mezzo.ir.input_roles import Length, Part, Slot

_MOST_STEPS = 4096  # nodes visited per input
# Data-movement operators, which pass on their operand's elements.
_HANDS_ON = frozenset(
    {
        "_to_copy",
        "alias",
        "cat",
        "clone",
        "contiguous",
        "convert_element_type",
        "detach",
        "expand",
        "flatten",
        "masked_fill",
        "permute",
        "repeat",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "stack",
        "to",
        "transpose",
        "unsqueeze",
        "view",
    }
)
# Operators that turn integers into masks.
_ASKS = frozenset(
    {
        "bitwise_and",
        "bitwise_not",
        "eq",
        "ge",
        "gt",
        "le",
        "logical_and",
        "logical_not",
        "lt",
        "ne",
        "where",
    }
)


class _Pick(NamedTuple):
    """A gather-like operator of a table: argument positions of indices and axis (None: axis 0)."""

    indices: int
    axis: int | None


_PICKS: Mapping[str, _Pick] = MappingProxyType(
    {"embedding": _Pick(1, None), "gather": _Pick(2, 1), "index_select": _Pick(2, 1)}
)


def length_of(size: object) -> Length:
    """An axis length; the symbol's name for a dynamic axis."""
    return size if isinstance(size, int) else str(size)


def slot_of(program: Program, name: str, node: fx.Node) -> Slot:
    """The type, shape and role of an input."""
    tensor = tensor_of(node)
    assert tensor is not None, "an input is a tensor"
    part, bound = _part(node, tensor)
    return Slot(
        name=name,
        dtype=TORCH_DTYPES.get(tensor.dtype),
        lengths=tuple(map(length_of, tensor.shape)),
        part=part,
        below=bound,
    )


def _part(node: fx.Node, tensor: torch.Tensor) -> tuple[Part, Length]:
    if tensor.dtype is torch.bool:
        return Part.MASK, None
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return Part.DATA, None
    bounds: list[Length] = []
    pending, visited = [node], {node}
    is_mask = False
    while pending and len(visited) < _MOST_STEPS:
        source = pending.pop()
        for user in source.users:
            packet = packet_of(user.target)
            axis_length = _picked(user, source, packet)
            if axis_length is not None:
                bounds.append(axis_length)
            becomes_float = packet in _HANDS_ON and is_float(user)
            is_mask = is_mask or packet in _ASKS or becomes_float
            if packet in _HANDS_ON and user not in visited and not becomes_float:
                visited.add(user)
                pending.append(user)
    if bounds:
        static_bounds = [bound for bound in bounds if isinstance(bound, int)]
        return Part.INDEX, min(static_bounds) if static_bounds else bounds[0]
    return (Part.MASK, None) if is_mask else (Part.DATA, None)


def _picked(user: fx.Node, index: fx.Node, packet: str) -> Length:
    """The length of the axis that a call indexes with `index`; None if it does not."""
    if packet == "index" and len(user.args) > 1 and isinstance(user.args[1], tuple | list):
        rows = user.args[0]
        axis_position = next(
            (axis for axis, argument in enumerate(user.args[1]) if argument is index), None
        )
        return None if axis_position is None else _length(rows, axis_position)
    pick = _PICKS.get(packet)
    if pick is None or len(user.args) <= pick.indices or user.args[pick.indices] is not index:
        return None
    axis = 0 if pick.axis is None else user.args[pick.axis]
    return _length(user.args[0], axis) if isinstance(axis, int) else None


def _length(rows: object, axis: int) -> Length:
    tensor = tensor_of(rows) if isinstance(rows, fx.Node) else None
    return (
        length_of(tensor.shape[axis])
        if tensor is not None and -tensor.dim() <= axis < tensor.dim()
        else None
    )
