"""What reads each input of a program, as far as a walk through what hands its numbers on tells."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import fx

from mezzo.aten.program import TORCH_DTYPES, Program, packet_of, tensor_of
from mezzo.ir.input_roles import Length, Part, Slot

_MOST_STEPS = 4096  # of one walk
# Operators that hand on the numbers of an operand.
_HANDS_ON = frozenset(
    {
        "_to_copy", "alias", "cat", "clone", "contiguous", "convert_element_type", "detach", "expand", "flatten",
        "masked_fill", "permute", "repeat", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze",
        "stack", "to", "transpose", "unsqueeze", "view",
    }
)  # fmt: skip
# Operators that ask integers which places count.
_ASKS = frozenset(
    {"bitwise_and", "bitwise_not", "eq", "ge", "gt", "le", "logical_and", "logical_not", "lt", "ne", "where"}
)


class _Pick(NamedTuple):
    """An operator that picks rows: where the rows stand among its arguments, and where the axis; None: the first."""

    rows: int
    indices: int
    axis: int | None


_PICKS: Mapping[str, _Pick] = MappingProxyType(
    {"embedding": _Pick(0, 1, None), "gather": _Pick(0, 2, 1), "index_select": _Pick(0, 2, 1)}
)


def length_of(size: object) -> Length:
    """How long an axis is; a name where the program leaves it open."""
    return size if isinstance(size, int) else str(size)


def slot_of(program: Program, name: str, node: fx.Node) -> Slot:
    """What an input takes."""
    held = tensor_of(node)
    assert held is not None, "an input is a tensor"
    part, below = _part(node, held)
    return Slot(
        name=name,
        dtype=TORCH_DTYPES.get(held.dtype),
        lengths=tuple(map(length_of, held.shape)),
        part=part,
        below=below,
    )


def _part(node: fx.Node, held: torch.Tensor) -> tuple[Part, Length]:
    if held.dtype is torch.bool:
        return Part.MASK, None
    if held.dtype.is_floating_point or held.dtype.is_complex:
        return Part.DATA, None
    bounds: list[Length] = []
    waiting, seen = [node], {node}
    is_asked = False
    while waiting and len(seen) < _MOST_STEPS:
        one = waiting.pop()
        for user in one.users:
            packet = packet_of(user.target)
            picked = _picked(user, one, packet)
            if picked is not None:
                bounds.append(picked)
            is_asked = is_asked or packet in _ASKS or _becomes_float(user, one)
            if packet in _HANDS_ON and user not in seen and not _becomes_float(user, one):
                seen.add(user)
                waiting.append(user)
    if bounds:
        known = [bound for bound in bounds if isinstance(bound, int)]
        return Part.INDEX, min(known) if known else bounds[0]
    return (Part.MASK, None) if is_asked else (Part.DATA, None)


def _picked(user: fx.Node, index: fx.Node, packet: str) -> Length:
    """How many rows a reader picks from; None where it picks none by this operand."""
    if packet == "index" and len(user.args) > 1 and isinstance(user.args[1], tuple | list):
        rows = user.args[0]
        at = next((axis for axis, one in enumerate(user.args[1]) if one is index), None)
        return None if at is None else _length(rows, at)
    pick = _PICKS.get(packet)
    if pick is None or len(user.args) <= max(pick.rows, pick.indices) or user.args[pick.indices] is not index:
        return None
    axis = 0 if pick.axis is None else user.args[pick.axis]
    return _length(user.args[pick.rows], axis) if isinstance(axis, int) else None


def _length(rows: object, axis: int) -> Length:
    held = tensor_of(rows) if isinstance(rows, fx.Node) else None
    return length_of(held.shape[axis]) if held is not None and -held.dim() <= axis < held.dim() else None


def _becomes_float(user: fx.Node, source: fx.Node) -> bool:
    made = tensor_of(user)
    return made is not None and made.dtype.is_floating_point and packet_of(user.target) in _HANDS_ON
