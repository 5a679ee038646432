"""Broadcasting of opset 6 and older: the second operand is aligned at an axis, not the end.

Source: onnx 1.23, docs/Changelog.md, `axis` and `broadcast` of Add-6 and similar; PRelu-6.
"""

import onnx

from mezzo.onnx.opset_steps.site import BlockedError, StepSite, take, take_int

_CHANNELS = 1


def align(node: onnx.NodeProto, site: StepSite) -> None:
    """Append axes of length 1 to the second operand, to align it at `axis` for numpy."""
    axis = take(node, "axis")
    is_broadcast = take_int(node, "broadcast", 0)
    if is_broadcast and axis is not None:
        _align(node, site, axis.i)


def align_slope(node: onnx.NodeProto, site: StepSite) -> None:
    """Append axes of length 1 to a PRelu slope [C]. A slope with one element needs none."""
    slope = site.values.shape(node.input[1])
    rank = site.values.rank(node.input[0])
    is_shared = slope is not None and all(size == 1 for size in slope)
    is_per_channel = slope is None or len(slope) == 1
    if is_shared or not is_per_channel or (rank is not None and rank <= _CHANNELS + 1):
        return
    if slope is None:
        raise BlockedError("the rank of its slope is not known")
    _align(node, site, _CHANNELS)


def _align(node: onnx.NodeProto, site: StepSite, axis: int) -> None:
    data, operand = node.input[:2]
    rank, operand_rank = site.values.rank(data), site.values.rank(operand)
    wish = f"{operand}_aligned"
    if rank is None or operand_rank is None:
        node.input[1] = _align_unknown(node, site, axis, wish)
        return
    trailing = rank - (axis + rank if axis < 0 else axis) - operand_rank
    if trailing > 0 and operand_rank > 0:
        node.input[1] = site.add_fresh(
            "Unsqueeze", [operand], wish, axes=list(range(operand_rank, operand_rank + trailing))
        )


def _align_unknown(node: onnx.NodeProto, site: StepSite, axis: int, wish: str) -> str:
    """Align an operand of unknown rank at run time, by a Reshape to its shape and ones."""
    if axis < 0:
        raise BlockedError(
            f"its axis {axis} counts from the end, and its operands' ranks are not known"
        )
    data, operand = node.input[:2]
    shape = site.add_fresh("Shape", [operand], f"{operand}_shape")
    ranks = [
        site.add_fresh("Shape", [sizes], f"{sizes}_rank")
        for sizes in (site.add_fresh("Shape", [data], f"{data}_shape"), shape)
    ]
    trailing_rank = site.add_fresh(
        "Sub", [ranks[0], site.ints(f"{wish}_axis", [axis])], f"{wish}_behind"
    )
    count = site.add_fresh("Sub", [trailing_rank, ranks[1]], f"{wish}_count")
    ones = site.add_fresh("Tile", [site.ints(f"{wish}_one", [1]), count], f"{wish}_ones")
    aligned = site.add_fresh("Concat", [shape, ones], f"{wish}_shape", axis=0)
    return site.add_fresh("Reshape", [operand, aligned], wish)
