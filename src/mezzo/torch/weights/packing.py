"""Weight packing: replaces matmuls and convolutions by oneDNN kernels with prepacked weights."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import guard_or_true

from mezzo.aten.program import tensor_of
from mezzo.torch.onednn.kernels import (
    CONVOLUTION,
    LINEAR,
    NOTHING,
    is_laid_out_last,
    laid_out,
    layout_of,
)
from mezzo.torch.weights.weight_layouts import HEIGHT, UNSQUEEZE, Packed, PackedFilter, PackedMatrix

_ATEN: Any = torch.ops.aten
_MM, _ADDMM, _CONVOLUTION = _ATEN.mm.default, _ATEN.addmm.default, _ATEN.convolution.default
_CLONE = _ATEN.clone.default
SQUEEZE = _ATEN.squeeze.dim
TURNS = {_ATEN.permute.default: ([1, 0],), _ATEN.t.default: ()}
_SEQUENCE_RANK = 3  # a sequence is packed as an image with one row
_RANKS = frozenset({_SEQUENCE_RANK, 4, 5})


class Product(NamedTuple):
    """A matmul or convolution by a weight, with the arguments of its packed form."""

    call: fx.Node
    x: fx.Node
    bias: fx.Node | None
    layout: Packed
    about: tuple[Any, ...]


def pack(
    graph: fx.Graph, slots: Mapping[fx.Node, fx.Node], wide: Mapping[fx.Node, fx.Node]
) -> dict[fx.Node, Packed]:
    """Replace matmuls and convolutions by their packed forms.

    Args:
        slots: for each input with a low-precision weight, the input for its packed form.
        wide: for each input with a low-precision weight, the FP32 weight, used for biases.

    Returns: the layouts of the slots in use. A weight with other uses, or that needs several
    layouts, is not packed.
    """
    packed: dict[fx.Node, Packed] = {}
    for low, slot in slots.items():
        readers = readers_of(low)
        products = [product for product in readers if product is not None]
        layouts = {product.layout for product in products}
        if len(products) < len(readers) or len(layouts) != 1 or not all(map(_is_fixed, layouts)):
            continue
        packed[slot] = layouts.pop()
        for product in products:
            replace_packed(graph, product, slot, wide)
    return packed


def keep_channels_first(graph: fx.Graph, low: fx.Node) -> None:
    """Copy results of convolutions by a channels-last copy of a weight to channels first, which the
    weight itself gives them: views, outputs and users depend on it. Inductor fuses the copies.
    """
    if not is_laid_out_last(low.meta["val"]):
        return
    for call in list(low.users):
        result = call.meta["val"]
        if call.target is not _CONVOLUTION or is_laid_out_last(result):
            continue
        with graph.inserting_after(call):
            restored = graph.call_function(_CLONE, (call,))
            restored.kwargs = {"memory_format": torch.contiguous_format}
        restored.meta = dict(call.meta)
        call.meta["val"] = laid_out(result, last=True)
        call.replace_all_uses_with(restored, lambda user, clone=restored: user is not clone)


def _is_fixed(layout: Packed) -> bool:
    """Whether a weight can be packed before its product is called."""
    return not isinstance(layout, PackedFilter) or layout.input_size is not None


def replace_packed(
    graph: fx.Graph, product: Product, slot: fx.Node, wide: Mapping[fx.Node, fx.Node]
) -> None:
    """Replace a product by its packed form, with an FP32 bias if there is one."""
    bias = product.bias if product.bias is None else wide.get(product.bias, product.bias)
    with graph.inserting_before(product.call):
        packed_call = _written(graph, product, slot, bias)
    replace_call(graph, product, packed_call)


def replace_call(graph: fx.Graph, product: Product, packed_call: fx.Node) -> None:
    """Replace a product by a call, and remove transposes of its weight that nothing else reads."""
    transposes = [
        transpose for transpose in product.call.all_input_nodes if transpose.target in TURNS
    ]
    product.call.replace_all_uses_with(packed_call)
    graph.erase_node(product.call)
    for transpose in transposes:
        if not transpose.users:
            graph.erase_node(transpose)


def _written(graph: fx.Graph, product: Product, slot: fx.Node, bias: fx.Node | None) -> fx.Node:
    """The packed call; sequences are reshaped to images around it."""
    layout, meta = product.layout, product.call.meta
    arguments = (slot, bias, *product.about, *NOTHING)
    if isinstance(layout, PackedMatrix):
        return _call(graph, LINEAR, (product.x, *arguments), meta)
    if not layout.is_of_sequences:
        return _call(graph, CONVOLUTION, (product.x, *arguments), meta)
    x = _call(graph, UNSQUEEZE, (product.x, HEIGHT), _of_images(product.x.meta))
    images = _call(graph, CONVOLUTION, (x, *arguments), _of_images(meta))
    return _call(graph, SQUEEZE, (images, HEIGHT), meta)


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> fx.Node:
    node = graph.call_function(target, args)
    node.meta = dict(meta)
    return node


def _of_images(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of sequences, converted to images with one row."""
    return {**meta, "val": meta["val"].unsqueeze(HEIGHT)}


def readers_of(low: fx.Node) -> list[Product | None]:
    """The matmuls and convolutions by a weight; None for each other use."""
    products: list[Product | None] = []
    for user in low.users:
        transpose_args = TURNS.get(user.target)
        users = [(user, low, False)]
        if transpose_args is not None and tuple(user.args[1:]) == transpose_args:
            users = [(consumer, user, True) for consumer in user.users]
        for consumer, weight, is_transposed in users:
            products.append(_product(consumer, weight, is_transposed))
    return products


def _product(call: fx.Node, weight: fx.Node, is_transposed: bool) -> Product | None:
    args = call.args
    if sum(argument is weight for argument in args) != 1:
        return None
    if call.target is _CONVOLUTION and not is_transposed and args[1] is weight:
        return _convolution(call, weight)
    if call.target is _MM and args[1] is weight:
        return _linear(call, args[0], None, weight, is_transposed)
    is_unscaled = call.kwargs.get("alpha", 1) == 1 and call.kwargs.get("beta", 1) == 1
    if call.target is _ADDMM and args[2] is weight and is_unscaled:
        return _linear(call, args[1], args[0], weight, is_transposed)
    return None


def _linear(
    call: fx.Node, x: Any, bias: Any, weight: fx.Node, is_transposed: bool
) -> Product | None:
    value = weight.meta["val"]
    features = value.shape[1]
    if (
        not _is_low(x, value.dtype)
        or not _is_low(call, value.dtype)
        or not _is_bias(bias, features, value.dtype)
    ):
        return None
    return Product(
        call, x, bias, PackedMatrix(value.dtype, is_transposed=not is_transposed), (features,)
    )


def _convolution(call: fx.Node, weight: fx.Node) -> Product | None:
    args: Any = call.args
    x, _, bias, stride, padding, dilation, is_transposed, _, groups = args
    value = weight.meta["val"]
    size, result = tuple(x.meta["val"].shape), call.meta["val"]
    if is_transposed or value.dim() not in _RANKS:
        return None
    if (
        not _is_low(x, value.dtype)
        or not _is_low(call, value.dtype)
        or not _is_bias(bias, value.shape[0], value.dtype)
    ):
        return None
    # One number is for all axes: padding="valid" is [0].
    stride, padding, dilation = (
        tuple(sizes) * (value.dim() - 2) if len(sizes) == 1 else tuple(sizes)
        for sizes in (stride, padding, dilation)
    )
    shape = tuple(value.shape)
    is_of_sequences = value.dim() == _SEQUENCE_RANK
    if is_of_sequences:
        size, shape, result = (
            (*size[:2], 1, *size[2:]),
            (*shape[:2], 1, *shape[2:]),
            result.unsqueeze(HEIGHT),
        )
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    layout = PackedFilter(
        dtype=value.dtype,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        input_size=size if all(isinstance(length, int) for length in size) else None,
        is_of_sequences=is_of_sequences,
    )
    is_last = not result.is_contiguous()
    if not result.is_contiguous(memory_format=layout_of(len(shape), last=is_last)):
        return None
    attributes = (list(shape), list(stride), list(padding), list(dilation), groups, is_last)
    return Product(call, x, bias, layout, attributes)


def _is_low(node: Any, dtype: torch.dtype) -> bool:
    value = tensor_of(node) if isinstance(node, fx.Node) else None
    return value is not None and value.dtype is dtype and not guard_or_true(value.numel() == 0)


def _is_bias(node: Any, features: int, dtype: torch.dtype) -> bool:
    if node is None:
        return True
    value = tensor_of(node) if isinstance(node, fx.Node) else None
    if value is None or value.dtype not in (dtype, torch.float32):
        return False
    return tuple(value.shape) == (features,)
