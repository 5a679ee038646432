"""Upsample and Resize. Source: onnx 1.23, docs/Changelog.md; ONNX Runtime 1.32 and the operator tests of opset 10.

Before opset 11 a Resize maps coordinates asymmetrically, and "nearest" rounds down where an axis grows and up where it
shrinks.
"""

import onnx

from mezzo.onnx.opset_steps.site import BlockedError, Site, operand, put, put_operand, take, take_text

_FLOAT = onnx.TensorProto.FLOAT


def spell_scales(node: onnx.NodeProto, _: Site) -> None:
    """Upsample-1 has a scale for height and width of [N, C, H, W]."""
    scales = [attribute.f for name in ("height_scale", "width_scale") if (attribute := take(node, name)) is not None]
    put(node, scales=[1.0, 1.0, *scales])


def move_scales(node: onnx.NodeProto, site: Site) -> None:
    """Upsample's scales, FP32 [rank] as an operand."""
    attribute = take(node, "scales")
    if attribute is not None:
        scales = site.tensor(f"{node.output[0]}_scales", _FLOAT, [len(attribute.floats)], attribute.floats)
        put_operand(node, 1, scales)


def name_coordinates(node: onnx.NodeProto, site: Site) -> None:
    """Resize-11 says how it maps coordinates. What grows and shrinks at once takes a Resize for each."""
    data, scales = node.input[:2]
    node.input[:] = [data, site.tensor(f"{node.output[0]}_roi", _FLOAT, [0], []), scales]
    put(node, coordinate_transformation_mode="asymmetric")
    if _text(node, "mode", "nearest") != "nearest":
        return
    constant = site.values.constant(scales)
    factors = [] if constant is None else constant.astype(float).reshape(-1).tolist()
    shrinks = any(factor < 1 for factor in factors)
    if constant is None or (shrinks and any(factor > 1 for factor in factors)):
        _part(node, site)
    else:
        put(node, nearest_mode="ceil" if shrinks else "floor")


def _part(node: onnx.NodeProto, site: Site) -> None:
    """Resize what grows, then what shrinks: "nearest" picks along each axis by itself."""
    data, roi, scales = node.input
    one = site.tensor(f"{scales}_one", _FLOAT, [1], [1.0])
    larger = site.add_fresh("Max", [scales, one], f"{scales}_larger")
    node.input[2] = site.add_fresh("Min", [scales, one], f"{scales}_smaller")
    node.input[0] = site.add_fresh(
        "Resize",
        [data, roi, larger],
        f"{node.output[0]}_larger",
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    put(node, nearest_mode="ceil")


def leave_out_operands(node: onnx.NodeProto, site: Site) -> None:
    """Resize-13 leaves out what Resize-11 gave empty, and has no mode of TensorFlow's first nearest neighbour."""
    mode = _text(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        _name_half_pixels(node)
    if mode != "tf_crop_and_resize":
        node.input[1] = ""
    sizes = operand(node, 3)
    held = site.values.constant(sizes) if sizes else None
    if sizes and (held is None or held.size):
        node.input[2] = ""
    else:
        del node.input[3:]


# Nearest neighbours of (x + .5) / scale, as those of the half pixel (x + .5) / scale - .5.
_HALF_PIXELS = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


def _name_half_pixels(node: onnx.NodeProto) -> None:
    nearest = _HALF_PIXELS.get(_text(node, "nearest_mode", "round_prefer_floor"))
    if _text(node, "mode", "nearest") != "nearest" or nearest is None:
        raise BlockedError("newer opsets have no coordinates 'tf_half_pixel_for_nn' for its mode")
    put(node, coordinate_transformation_mode="half_pixel", nearest_mode=nearest)


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    """An attribute's string, left where it is."""
    word = take_text(node, name, default)
    put(node, **{name: word})
    return word
