"""Decomposition of retired experimental operators (Affine, Scale, Crop, ...) into current ones.

ONNX Runtime runs them up to opset 9 only.

Source: onnx 1.2, docs/Operators.md, "experimental"; the kernels of ONNX Runtime 1.32.
"""

import onnx

from mezzo.onnx.opset_steps.site import BlockedError, StepSite, put, take, take_int

_TO_THE_END = 2**63 - 1


def _number(node: onnx.NodeProto, name: str, default: float | None) -> float:
    attribute = take(node, name)
    if attribute is None and default is None:
        raise BlockedError(f"it has no attribute {name!r}")
    return attribute.f if attribute is not None else default or 0.0


def _scaled(node: onnx.NodeProto, site: StepSite, data: str, factor: float) -> str:
    """The name of a new value `data * factor`."""
    wish = f"{node.output[0]}_scaled"
    return site.add_fresh("Mul", [data, site.like(node.input[0], f"{wish}_by", [factor])], wish)


def spell_affine(node: onnx.NodeProto, site: StepSite) -> None:
    """Affine: alpha x + beta."""
    scaled = _scaled(node, site, node.input[0], _number(node, "alpha", 1.0))
    shift = site.like(node.input[0], f"{node.output[0]}_shift", [_number(node, "beta", 0.0)])
    node.op_type = "Add"
    node.input[:] = [scaled, shift]


def spell_scale(node: onnx.NodeProto, site: StepSite) -> None:
    """Scale: scale x."""
    factor = site.like(node.input[0], f"{node.output[0]}_scale", [_number(node, "scale", 1.0)])
    node.op_type = "Mul"
    node.input.append(factor)


def spell_image_scaler(node: onnx.NodeProto, site: StepSite) -> None:
    """ImageScaler: scale x + bias, with x [N, C, H, W] and bias [C]."""
    scaled = _scaled(node, site, node.input[0], _number(node, "scale", 1.0))
    attribute = take(node, "bias")
    bias = [0.0] if attribute is None else list(attribute.floats)
    shift = site.like(node.input[0], f"{node.output[0]}_bias", bias, [len(bias), 1, 1])
    node.op_type = "Add"
    node.input[:] = [scaled, shift]


def spell_activation(node: onnx.NodeProto, site: StepSite) -> None:
    """ParametricSoftplus and ScaledTanh: alpha f(beta x)."""
    alpha, beta = _number(node, "alpha", None), _number(node, "beta", None)
    inner = _scaled(node, site, node.input[0], beta)
    kind = "Softplus" if node.op_type == "ParametricSoftplus" else "Tanh"
    curve = site.add_fresh(kind, [inner], f"{node.output[0]}_curve")
    factor = site.like(node.input[0], f"{node.output[0]}_alpha", [alpha])
    node.op_type = "Mul"
    node.input[:] = [curve, factor]


def spell_crop(node: onnx.NodeProto, site: StepSite) -> None:
    """Crop [N, C, H, W] by a border [left, top, right, bottom], or to [height, width]."""
    border, scale = take(node, "border"), take(node, "scale")
    if border is None or len(border.ints) != 4:
        raise BlockedError("it has no border of four sides")
    left, top, right, bottom = border.ints
    ends = [-bottom or _TO_THE_END, -right or _TO_THE_END]
    if scale is not None:
        ends = [top + scale.ints[0], left + scale.ints[1]]
    output = node.output[0]
    node.op_type = "Slice"
    for name, numbers in (("starts", [top, left]), ("ends", ends), ("axes", [2, 3])):
        node.input.append(site.ints(f"{output}_{name}", numbers))


def name_axes(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 9: MeanVarianceNormalization has axes, and always divides by the standard deviation."""
    across, divides = take_int(node, "across_channels", 0), take_int(node, "normalize_variance", 1)
    axes = take(node, "axes")
    numbers = list(axes.ints) if axes is not None else [0, 1, 2, 3] if across else [0, 2, 3]
    if divides:
        put(node, axes=numbers)
        return
    data = node.input[0]
    mean = site.add_fresh("ReduceMean", [data], f"{node.output[0]}_mean", axes=numbers, keepdims=1)
    node.op_type = "Sub"
    node.input[:] = [data, mean]


def refuse(node: onnx.NodeProto, _: StepSite) -> None:
    """A step that blocks an operator without equivalent."""
    raise BlockedError("ONNX took it back, and no other operator does the same")
