"""Opset steps that turn attributes into operands, or change their names, types or defaults.

Source: onnx 1.23, docs/Changelog.md.
"""

import onnx

from mezzo.onnx.opset_steps.site import (
    BlockedError,
    Convert,
    StepSite,
    operand,
    put,
    put_operand,
    take,
    take_int,
    take_text,
)

_FLOATS = frozenset({
    onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE,
    onnx.TensorProto.BFLOAT16,
})  # fmt: skip


def drop(*names: str) -> Convert:
    """A step that removes attributes without meaning."""

    def convert(node: onnx.NodeProto, _: StepSite) -> None:
        for name in names:
            take(node, name)

    return convert


def keep(_: onnx.NodeProto, __: StepSite) -> None:
    """A step that changes nothing: the schemas differ only in irrelevant details."""


def default(**attributes: object) -> Convert:
    """A step that states attributes which were optional, or had another default."""

    def convert(node: onnx.NodeProto, _: StepSite) -> None:
        present = {attribute.name for attribute in node.attribute}
        put(node, **{name: value for name, value in attributes.items() if name not in present})

    return convert


def both(*conversions: Convert) -> Convert:
    """A step that applies conversions in order."""

    def convert(node: onnx.NodeProto, site: StepSite) -> None:
        for conversion in conversions:
            conversion(node, site)

    return convert


def move_ints(name: str, index: int) -> Convert:
    """A step that turns an attribute of integers into an operand, INT64 [n]."""

    def convert(node: onnx.NodeProto, site: StepSite) -> None:
        attribute = take(node, name)
        if attribute is not None:
            put_operand(node, index, site.ints(f"{_title(node)}_{name}", attribute.ints))

    return convert


def move_int(
    name: str, index: int, absent: int | None = None, *, is_scalar: bool = False
) -> Convert:
    """A step that turns an integer attribute into an operand, INT64 [1] or []."""

    def convert(node: onnx.NodeProto, site: StepSite) -> None:
        attribute = take(node, name)
        number = absent if attribute is None else attribute.i
        if number is not None:
            wish, shape = f"{_title(node)}_{name}", () if is_scalar else (1,)
            put_operand(node, index, site.tensor(wish, onnx.TensorProto.INT64, shape, [number]))

    return convert


def move_bounds(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 11: Clip's bounds become scalar operands; absent ones remain the type's limits."""
    for index, name in ((1, "min"), (2, "max")):
        attribute = take(node, name)
        if attribute is not None:
            put_operand(
                node, index, site.like(node.input[0], f"{_title(node)}_{name}", [attribute.f])
            )


def move_padding(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 11: Pad's `pads` and `value` (0 if absent) become operands."""
    move_ints("pads", 1)(node, site)
    attribute = take(node, "value")
    if attribute is not None and attribute.f:
        put_operand(node, 2, site.like(node.input[0], f"{_title(node)}_value", [attribute.f]))


def rename(old: str, new: str) -> Convert:
    """A step that renames an attribute."""

    def convert(node: onnx.NodeProto, _: StepSite) -> None:
        attribute = take(node, old)
        if attribute is not None:
            attribute.name = new
            node.attribute.append(attribute)

    return convert


def reword(name: str, words: dict[str, str], absent: str) -> Convert:
    """A step that maps a string attribute's value, `absent` by default, to its new spelling."""

    def convert(node: onnx.NodeProto, _: StepSite) -> None:
        word = take_text(node, name, absent)
        put(node, **{name: words.get(word, word)})

    return convert


def become(op: str) -> Convert:
    """A step that renames the operator."""

    def convert(node: onnx.NodeProto, _: StepSite) -> None:
        node.op_type = op

    return convert


def name_dtype(node: onnx.NodeProto, _: StepSite) -> None:
    """Opset 6: Cast's attribute `to` is a TensorProto number, no longer a name."""
    word = take_text(node, "to", "").upper()
    number = dict(onnx.TensorProto.DataType.items()).get(word)
    if number is None:
        raise BlockedError(f"its attribute 'to' names no element type: {word!r}")
    put(node, to=number)


def count_power(node: onnx.NodeProto, _: StepSite) -> None:
    """Opset 2: the exponent `p` of LpPool and GlobalLpPool is an integer, no longer a float."""
    attribute = take(node, "p")
    power = 2.0 if attribute is None else attribute.f
    if power != int(power):
        raise BlockedError(
            f"its norm's exponent {power:g} is no integer, and newer opsets take no other"
        )
    put(node, p=int(power))


def count_outputs(node: onnx.NodeProto, _: StepSite) -> None:
    """Opset 18: a Split without sizes needs num_outputs."""
    if not operand(node, 1):
        put(node, num_outputs=len(node.output))


def fix_sizes(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 2: Split's sizes are an attribute; at opset 1 they could be an operand."""
    if operand(node, 1):
        sizes = site.values.constant(node.input[1])
        if sizes is None:
            raise BlockedError(
                "the sizes of its parts are computed, and opset 2 takes constants only"
            )
        put(node, split=sizes.astype("int64").tolist())
        del node.input[1:]


def fix_tiles(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 6: Tile has repeats for all axes; before, a count and a single axis."""
    tiles, axis = (site.values.constant(name) for name in node.input[1:3])
    rank = site.values.rank(node.input[0])
    if tiles is None or axis is None or rank is None:
        raise BlockedError("its count, its axis or its operand's rank is not known")
    repeats = [1] * rank
    repeats[int(axis.item())] = int(tiles.item())
    del node.input[1:]
    put_operand(node, 1, site.ints(f"{_title(node)}_repeats", repeats))


def refuse_integers(node: onnx.NodeProto, site: StepSite) -> None:
    """A step that blocks integer data, which the operator no longer accepts."""
    dtype = site.values.dtype(node.input[0])
    if dtype is not None and dtype not in _FLOATS:
        raise BlockedError("it is applied to integers, and newer opsets take floats only")


def leave_training(node: onnx.NodeProto, _: StepSite) -> None:
    """Opset 7: outputs, not is_test, select training of Dropout and BatchNormalization."""
    if take_int(node, "is_test", 1) == 0:
        raise BlockedError("it is in training mode (is_test=0): export the model for inference")


def trim_mask(node: onnx.NodeProto, site: StepSite) -> None:
    """Remove Dropout's mask, which is undefined in inference before opset 12."""
    if any(name and site.values.is_read(name) for name in node.output[1:]):
        raise BlockedError(
            "its mask is read, and what that holds without training is not defined before opset 12"
        )
    del node.output[1:]


def drop_ratio(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 12: `ratio` becomes an operand; without training mode it has no effect."""
    take(node, "ratio")
    trim_mask(node, site)


def _title(node: onnx.NodeProto) -> str:
    """The prefix of added values' names."""
    return next((name for name in node.output if name), node.op_type)
