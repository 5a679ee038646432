"""Broadcasting of opset 6 and before: an operand is aligned at an axis of the other, not at its end.

Source: onnx 1.23, docs/Changelog.md, `axis` and `broadcast` of Add-6 and its kin; PRelu-6, whose slope is per channel.
"""

import onnx

from mezzo.onnx.opset_steps.site import BlockedError, Site, take, take_int

_CHANNELS = 1


def align(node: onnx.NodeProto, site: Site) -> None:
    """Give the second operand trailing axes of 1, so that it broadcasts from `axis` on as numpy has it."""
    axis = take(node, "axis")
    is_broadcast = take_int(node, "broadcast", 0)
    if is_broadcast and axis is not None:
        _align(node, site, axis.i)


def align_slope(node: onnx.NodeProto, site: Site) -> None:
    """Give a slope per channel axes of 1 for what is behind the channels. One of one number is shared by all."""
    slope = site.values.shape(node.input[1])
    rank = site.values.rank(node.input[0])
    is_shared = slope is not None and all(size == 1 for size in slope)
    is_per_channel = slope is None or len(slope) == 1
    if is_shared or not is_per_channel or (rank is not None and rank <= _CHANNELS + 1):
        return
    if slope is None:
        raise BlockedError("the rank of its slope is not known")
    _align(node, site, _CHANNELS)


def _align(node: onnx.NodeProto, site: Site, axis: int) -> None:
    left, right = node.input[:2]
    rank, own = site.values.rank(left), site.values.rank(right)
    wish = f"{right}_aligned"
    if rank is None or own is None:
        node.input[1] = _align_unknown(node, site, axis, wish)
        return
    trailing = rank - (axis + rank if axis < 0 else axis) - own
    if trailing > 0 and own > 0:
        node.input[1] = site.add_fresh("Unsqueeze", [right], wish, axes=list(range(own, own + trailing)))


def _align_unknown(node: onnx.NodeProto, site: Site, axis: int, wish: str) -> str:
    """The same for ranks that only the running model knows: Reshape to its shape and as many ones as are missing."""
    if axis < 0:
        raise BlockedError(f"its axis {axis} counts from the end, and its operands' ranks are not known")
    left, right = node.input[:2]
    shape = site.add_fresh("Shape", [right], f"{right}_shape")
    ranks = [
        site.add_fresh("Shape", [sizes], f"{sizes}_rank")
        for sizes in (site.add_fresh("Shape", [left], f"{left}_shape"), shape)
    ]
    behind = site.add_fresh("Sub", [ranks[0], site.ints(f"{wish}_axis", [axis])], f"{wish}_behind")
    count = site.add_fresh("Sub", [behind, ranks[1]], f"{wish}_count")
    ones = site.add_fresh("Tile", [site.ints(f"{wish}_one", [1]), count], f"{wish}_ones")
    aligned = site.add_fresh("Concat", [shape, ones], f"{wish}_shape", axis=0)
    return site.add_fresh("Reshape", [right, aligned], wish)
