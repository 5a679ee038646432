"""Opset steps of Upsample and Resize.

Before opset 11, Resize maps coordinates asymmetrically; "nearest" rounds down along an axis that
grows and up along one that shrinks. Source: onnx 1.23, docs/Changelog.md; ONNX Runtime 1.32 and the
operator tests of opset 10.
"""

import onnx

from mezzo.onnx.opset_steps.site import (
    BlockedError,
    StepSite,
    operand,
    put,
    put_operand,
    take,
    take_text,
)

_FLOAT = onnx.TensorProto.FLOAT


def spell_scales(node: onnx.NodeProto, _: StepSite) -> None:
    """Opset 7: Upsample has scales of all axes, no longer of height and width alone."""
    scales = [
        attribute.f
        for name in ("height_scale", "width_scale")
        if (attribute := take(node, name)) is not None
    ]
    put(node, scales=[1.0, 1.0, *scales])


def move_scales(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 9: Upsample's scales become an operand, FP32 [rank]."""
    attribute = take(node, "scales")
    if attribute is not None:
        scales = site.tensor(
            f"{node.output[0]}_scales", _FLOAT, [len(attribute.floats)], attribute.floats
        )
        put_operand(node, 1, scales)


def name_coordinates(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 11: Resize states its coordinate mapping; growing and shrinking ones are split."""
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


def _part(node: onnx.NodeProto, site: StepSite) -> None:
    """Resize growing axes first, then shrinking ones; "nearest" is separable by axis."""
    data, roi, scales = node.input
    unit = site.tensor(f"{scales}_one", _FLOAT, [1], [1.0])
    larger = site.add_fresh("Max", [scales, unit], f"{scales}_larger")
    node.input[2] = site.add_fresh("Min", [scales, unit], f"{scales}_smaller")
    node.input[0] = site.add_fresh(
        "Resize",
        [data, roi, larger],
        f"{node.output[0]}_larger",
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    put(node, nearest_mode="ceil")


def leave_out_operands(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 13: Resize omits operands that were empty before, and loses tf_half_pixel_for_nn."""
    mode = _text(node, "coordinate_transformation_mode", "half_pixel")
    if mode == "tf_half_pixel_for_nn":
        _name_half_pixels(node)
    if mode != "tf_crop_and_resize":
        node.input[1] = ""
    sizes = operand(node, 3)
    size_values = site.values.constant(sizes) if sizes else None
    if sizes and (size_values is None or size_values.size):
        node.input[2] = ""
    else:
        del node.input[3:]


# Rounding of tf_half_pixel_for_nn, (x + .5) / scale, to that of half_pixel, (x + .5) / scale - .5.
_HALF_PIXELS = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}


def _name_half_pixels(node: onnx.NodeProto) -> None:
    nearest = _HALF_PIXELS.get(_text(node, "nearest_mode", "round_prefer_floor"))
    if _text(node, "mode", "nearest") != "nearest" or nearest is None:
        raise BlockedError("newer opsets have no coordinates 'tf_half_pixel_for_nn' for its mode")
    put(node, coordinate_transformation_mode="half_pixel", nearest_mode=nearest)


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    """A string attribute, which stays in place."""
    word = take_text(node, name, default)
    put(node, **{name: word})
    return word
