"""Opset steps of Softmax and normalization operators. Source: onnx 1.23, docs/Changelog.md."""

import onnx

from mezzo.onnx.opset_steps.site import BlockedError, StepSite, operand, put, take, take_int


def normalize_one_axis(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 13: Softmax, LogSoftmax and Hardmax work along one axis, not all from `axis` on."""
    axis = take_int(node, "axis", 1)
    shape = site.values.shape(node.input[0])
    single = None if shape is None else _single_axis(shape, axis)
    if axis == -1 or single is not None:
        put(node, axis=-1 if axis == -1 else single)
        return
    data, output = node.input[0], node.output[0]
    node.input[0] = site.add_fresh("Flatten", [data], f"{data}_flat", axis=axis)
    node.output[0] = site.fresh(f"{output}_flat")
    put(node, axis=-1)
    site.add("Reshape", [node.output[0], _sizes(data, shape, site)], output)


def _sizes(data: str, shape: tuple[int | None, ...] | None, site: StepSite) -> str:
    """A value's shape for a Reshape: a constant if at most one dimension is unknown."""
    wish = f"{data}_shape"
    if shape is None or shape.count(None) > 1 or 0 in shape:
        return site.add_fresh("Shape", [data], wish)
    return site.ints(wish, [-1 if size is None else size for size in shape])


def _single_axis(shape: tuple[int | None, ...], axis: int) -> int | None:
    """The only flattened axis longer than 1; None if there are several."""
    rank = len(shape)
    flat = range(axis + rank if axis < 0 else axis, rank)
    long = [place for place in flat if shape[place] != 1]
    if not long:
        return -1 if flat else None
    return None if len(long) > 1 else -1 if long[0] == rank - 1 else long[0]


def normalize_channels(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 9: BatchNormalization is per channel only. One with spatial=0 is decomposed:
    Y [N, C, D...] = (X - mean) / sqrt(var + epsilon) * scale + B, with parameters [C, D...].
    """
    if any(node.output[1:]):  # training mode by the operator's document, inference in ONNX Runtime
        raise BlockedError("it is in training mode: export the model for inference")
    if take_int(node, "spatial", 1):
        return
    data, scale, bias, mean, variance = node.input
    output = node.output[0]
    attribute = take(node, "epsilon")
    epsilon = site.like(data, f"{output}_epsilon", [1e-5 if attribute is None else attribute.f])
    take(node, "momentum")
    centred = site.add_fresh("Sub", [data, mean], f"{output}_centred")
    finite = site.add_fresh("Add", [variance, epsilon], f"{output}_variance")
    deviation = site.add_fresh("Sqrt", [finite], f"{output}_deviation")
    unit = site.add_fresh("Div", [centred, deviation], f"{output}_unit")
    scaled = site.add_fresh("Mul", [unit, scale], f"{output}_scaled")
    node.op_type = "Add"
    node.input[:] = [scaled, bias]


def name_training(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 14: BatchNormalization has training_mode; before, five outputs meant training, of which
    two (saved_mean and saved_var) are gone.
    """
    count = sum(map(bool, node.output))
    if count not in (1, 5):
        raise BlockedError(
            "it gives some outputs of training mode and not all: export the model for inference"
        )
    if any(site.values.is_read(name) for name in node.output[3:] if name):
        raise BlockedError("its saved mean or variance is read, which opset 14 no longer has")
    del node.output[3 if count == 5 else 1 :]
    if count == 5:
        put(node, training_mode=1)


def repeat_groups(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 21: GroupNormalization's scale and bias are [channels], no longer [groups]: each
    element is repeated for all channels of its group.
    """
    groups = take_int(node, "num_groups", 1)
    put(node, num_groups=groups)
    output = node.output[0]
    sizes = site.add_fresh("Shape", [node.input[0]], f"{output}_channels", start=1, end=2)
    group_size = site.add_fresh(
        "Div", [sizes, site.ints(f"{output}_groups", [groups])], f"{output}_each"
    )
    shape = site.add_fresh(
        "Concat", [site.ints(f"{output}_one", [1]), group_size], f"{output}_repeats", axis=0
    )
    column = site.ints(f"{output}_column", [-1, 1])
    flat = site.ints(f"{output}_flat", [-1])
    for index in (1, 2):
        name = operand(node, index)
        parted = site.add_fresh("Reshape", [name, column], f"{name}_column")
        repeated = site.add_fresh("Expand", [parted, shape], f"{name}_repeated")
        node.input[index] = site.add_fresh("Reshape", [repeated, flat], f"{name}_channels")
