"""Lets products read weights as oneDNN packs them: nobody orders them anew at each call."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.torch.onednn.kernels import CONVOLUTION, LINEAR, NOTHING, layout_of
from mezzo.torch.weights.weight_layouts import HEIGHT, UNSQUEEZE, Packed, PackedFilter, PackedMatrix

_ATEN: Any = torch.ops.aten
_MM, _ADDMM, _CONVOLUTION = _ATEN.mm.default, _ATEN.addmm.default, _ATEN.convolution.default
_SQUEEZE = _ATEN.squeeze.dim
_TURNS = {_ATEN.permute.default: ([1, 0],), _ATEN.t.default: ()}
_SEQUENCE_RANK = 3  # a sequence is packed as an image of one row
_RANKS = frozenset({_SEQUENCE_RANK, 4, 5})


class _Product(NamedTuple):
    """A call that reads a weight, with all that its packed form takes but for the weight."""

    call: fx.Node
    x: fx.Node
    bias: fx.Node | None
    recipe: Packed
    about: tuple[Any, ...]


def pack(graph: fx.Graph, slots: Mapping[fx.Node, fx.Node], wide: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, Packed]:
    """Replace products by those of packed weights.

    Args:
        slots: for the inputs of low copies of weights those where a packed one can come in.
        wide: for the inputs of low copies those of the weights, which are added as biases as they are.

    Returns: how to make what comes in at the slots that are read now. Of a weight that others read too, or that would
    have to be packed in several ways, none is.
    """
    packed: dict[fx.Node, Packed] = {}
    for low, slot in slots.items():
        products = _products(low)
        recipes = {product.recipe for product in products or ()}
        if products is None or len(recipes) != 1:
            continue
        packed[slot] = recipes.pop()
        for product in products:
            bias = product.bias if product.bias is None else wide.get(product.bias, product.bias)
            _replace(graph, product, slot, bias)
    return packed


def _replace(graph: fx.Graph, product: _Product, slot: fx.Node, bias: fx.Node | None) -> None:
    with graph.inserting_before(product.call):
        made = _written(graph, product, slot, bias)
    turned = [one for one in product.call.all_input_nodes if one.target in _TURNS]
    product.call.replace_all_uses_with(made)
    graph.erase_node(product.call)
    for one in turned:
        if not one.users:
            graph.erase_node(one)


def _written(graph: fx.Graph, product: _Product, slot: fx.Node, bias: fx.Node | None) -> fx.Node:
    """The call of a packed product; of one on sequences between two that make images of them, and sequences again."""
    recipe, meta = product.recipe, product.call.meta
    given = (slot, bias, *product.about, *NOTHING)
    if isinstance(recipe, PackedMatrix):
        return _call(graph, LINEAR, (product.x, *given), meta)
    if not recipe.is_of_sequences:
        return _call(graph, CONVOLUTION, (product.x, *given), meta)
    x = _call(graph, UNSQUEEZE, (product.x, HEIGHT), _of_images(product.x.meta))
    images = _call(graph, CONVOLUTION, (x, *given), _of_images(meta))
    return _call(graph, _SQUEEZE, (images, HEIGHT), meta)


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> fx.Node:
    made = graph.call_function(target, args)
    made.meta = dict(meta)
    return made


def _of_images(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of sequences, of images of one row."""
    return {**meta, "val": meta["val"].unsqueeze(HEIGHT)}


def _products(low: fx.Node) -> list[_Product] | None:
    """The calls that multiply by a weight; None where something else is done with it."""
    found: list[_Product] = []
    for user in low.users:
        turned = _TURNS.get(user.target)
        readers = [(user, low, False)]
        if turned is not None and tuple(user.args[1:]) == turned:
            readers = [(reader, user, True) for reader in user.users]
        for reader, weight, is_turned in readers:
            product = _product(reader, weight, is_turned)
            if product is None:
                return None
            found.append(product)
    return found


def _product(call: fx.Node, weight: fx.Node, is_turned: bool) -> _Product | None:
    args = call.args
    if sum(one is weight for one in args) != 1:
        return None
    if call.target is _CONVOLUTION and not is_turned and args[1] is weight:
        return _convolution(call, weight)
    if call.target is _MM and args[1] is weight:
        return _linear(call, args[0], None, weight, is_turned)
    is_plain = call.kwargs.get("alpha", 1) == 1 and call.kwargs.get("beta", 1) == 1
    if call.target is _ADDMM and args[2] is weight and is_plain:
        return _linear(call, args[1], args[0], weight, is_turned)
    return None


def _linear(call: fx.Node, x: Any, bias: Any, weight: fx.Node, is_turned: bool) -> _Product | None:
    held = weight.meta["val"]
    features = held.shape[1]
    if not _is_low(x, held.dtype) or not _is_low(call, held.dtype) or not _is_bias(bias, features, held.dtype):
        return None
    return _Product(call, x, bias, PackedMatrix(held.dtype, is_transposed=not is_turned), (features,))


def _convolution(call: fx.Node, weight: fx.Node) -> _Product | None:
    args: Any = call.args
    x, _, bias, stride, padding, dilation, is_transposed, _, groups = args
    held = weight.meta["val"]
    size, made = tuple(x.meta["val"].shape), call.meta["val"]
    if is_transposed or held.dim() not in _RANKS or not all(isinstance(one, int) for one in size):
        return None
    if not _is_low(x, held.dtype) or not _is_low(call, held.dtype) or not _is_bias(bias, held.shape[0], held.dtype):
        return None
    if any(len(one) != held.dim() - 2 for one in (stride, padding, dilation)):
        return None
    shape = tuple(held.shape)
    is_of_sequences = held.dim() == _SEQUENCE_RANK
    if is_of_sequences:
        size, shape, made = (*size[:2], 1, *size[2:]), (*shape[:2], 1, *shape[2:]), made.unsqueeze(HEIGHT)
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    recipe = PackedFilter(
        dtype=held.dtype,
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        input_size=size,
        is_of_sequences=is_of_sequences,
    )
    is_last = not made.is_contiguous()
    if not made.is_contiguous(memory_format=layout_of(len(shape), last=is_last)):
        return None
    about = (list(shape), list(stride), list(padding), list(dilation), groups, is_last)
    return _Product(call, x, bias, recipe, about)


def _is_low(node: Any, dtype: torch.dtype) -> bool:
    held = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(held, torch.Tensor) and held.dtype is dtype and held.numel() != 0


def _is_bias(node: Any, features: int, dtype: torch.dtype) -> bool:
    if node is None:
        return True
    held = node.meta.get("val") if isinstance(node, fx.Node) else None
    return (
        isinstance(held, torch.Tensor)
        and held.dtype in (dtype, torch.float32)
        and held.dim() == 1
        and held.shape[0] == features
    )
