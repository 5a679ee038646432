"""Fusion into oneDNN's INT8 matmuls and convolutions of what follows them: a residual sum, an
activation, and the conversion of the result to BF16 or to the integers that the next one reads;
and max pooling of integers.

oneDNN computes all of it from the INT32 sums in FP32, and rounds once.
"""

from collections.abc import Iterator, Mapping
from operator import getitem
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.edit.quantizing import (
    DEQUANTIZE_TENSOR,
    QUANTIZE_TENSOR,
    ROW_OPERATORS,
    Rows,
)
from mezzo.aten.program import tensor_of
from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.compiler.building import CallInserter, arguments_of
from mezzo.torch.onednn.epilogues import SAME, SHAPES, activation_of
from mezzo.torch.onednn.int8_kernels import (
    INT8_CONVOLUTION,
    INT8_LINEAR,
    adds_to_int8,
)
from mezzo.torch.onednn.kernels import NOTHING, After
from mezzo.torch.operators import STORED

_ATEN: Any = torch.ops.aten
_MOVES = SAME | {_ATEN.permute.default, _ATEN.unsqueeze.default}
_MERGED = SHAPES | ROW_OPERATORS | {CAST, QUANTIZE_TENSOR}
_FLOATS = (torch.float32, torch.bfloat16)
# What oneDNN writes in place of FP32, with the span of integers.
_RESULTS = frozenset({(torch.bfloat16,), (torch.uint8, 0, 255), (torch.int8, -128, 127)})
_ACTIVATIONS: Mapping[Any, frozenset[str]] = MappingProxyType(
    {
        INT8_LINEAR: frozenset({"gelu", "hardswish", "relu", "swish", "tanh"}),
        INT8_CONVOLUTION: frozenset({"hardswish", "hardtanh", "relu", "swish"}),
    }
)
_BOUNDS = [0.0, 6.0]  # of the hardtanh that ReLU6 is
_AFTER_SUMS = frozenset({"relu"})

_MAX_POOLS = frozenset(
    {
        _ATEN.max_pool2d_with_indices.default,
        torch.ops.prims._low_memory_max_pool_with_offsets.default,
    }
)
# Kernel size, stride, padding, dilation, and whether sizes are rounded up.
_POOL_ARGUMENTS = 5

Path = tuple[fx.Node, ...]


class _Place(NamedTuple):
    """A node, and the reshapes on the way to it."""

    node: fx.Node
    path: Path


def fuse_int8(graph: fx.Graph) -> None:
    """Fuse what follows INT8 products into them, which have FP32 outputs and nothing fused yet."""
    _merge(graph)
    _store_rows(graph)
    for integers in graph.find_nodes(op="call_function", target=QUANTIZE_TENSOR):
        _pool_integers(graph, integers)
    for product in reversed([node for node in graph.nodes if node.target in _ACTIVATIONS]):
        _fuse(graph, product)


def _merge(graph: fx.Graph) -> None:
    """Merge alike reshapes, conversions and quantizations: each reader has its own."""
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target in _MERGED and not node.kwargs:
            earlier = seen.setdefault((node.target, str(node.args)), node)
            if earlier is not node:
                node.replace_all_uses_with(earlier)
                graph.erase_node(node)


def _store_rows(graph: fx.Graph) -> None:
    """Have rows that are quantized computed once: their range and their integers read them."""
    for low in graph.find_nodes(op="call_function", target=_ATEN.amin.default):
        source = low.args[0]
        readers = {user for user in source.users if user.target in ROW_OPERATORS}
        is_range = low.args[1:] == ([-1], True) and len(readers) >= len(Rows._fields)
        if not is_range or source.op == "placeholder":
            continue
        with graph.inserting_before(min(readers)):
            stored = CallInserter(graph, source).call(STORED, source)
        source.replace_all_uses_with(stored, delete_user_cb=lambda user, of=readers: user in of)


def _pool_integers(graph: fx.Graph, integers: fx.Node) -> None:
    """Pool integers, where a maximum of dequantized ones is quantized again with their scale."""
    result = integers.args[0]
    if result.target is not getitem or result.args[1] != 0:
        return
    pool = result.args[0]
    if pool.target not in _MAX_POOLS or len(pool.users) > 1:
        return
    source = pool.args[0]
    if source.target is not DEQUANTIZE_TENSOR or source.args[1:] != integers.args[1:]:
        return
    build = CallInserter(graph, pool)
    with graph.inserting_before(pool):
        about = pool.args[1 : 1 + _POOL_ARGUMENTS]
        pooled = build.call(torch.ops.quantized.max_pool2d.default, source.args[0], *about)
        floats = build.call(DEQUANTIZE_TENSOR, pooled, *source.args[1:])
    integers.replace_all_uses_with(pooled)
    graph.erase_node(integers)
    result.replace_all_uses_with(floats)
    for unused in (result, pool):
        graph.erase_node(unused)
    for node in (floats, source):
        _drop(graph, node)


def _fuse(graph: fx.Graph, product: fx.Node) -> None:
    arguments, build = arguments_of(product), CallInserter(graph, product)
    # `fused`: what is a part of the kernel, up to here.
    fused, arguments["other"] = _with_sum(product)
    fused, activation = _with_activation(product, fused, arguments["other"] is not None)
    arguments["after"], arguments["how"] = activation
    if activation.name == "hardtanh":
        arguments["numbers"] = _BOUNDS
    arguments["dtype"] = fused.node.meta["val"].dtype
    ends = _conversions(fused.node, arguments)
    if not ends and fused.node is product:
        return
    other, is_convolution = arguments["other"], product.target is INT8_CONVOLUTION
    with graph.inserting_before(fused.node.next):
        if other is not None and fused.path and not is_convolution:
            sizes = [-1, arguments["features"]]
            arguments["other"] = build.call(_ATEN.reshape.default, other, sizes)
        elif other is not None and other.meta["val"].dtype.is_floating_point and is_convolution:
            # oneDNN demands the result's type; a rounding to BF16 is one more than was planned.
            arguments["other"] = build.call(CAST, other, arguments["dtype"])
        result = build.call(product.target, *arguments.values())
    for end in ends or [fused]:
        path = (*fused.path, *end.path) if ends else fused.path
        with graph.inserting_before(end.node if ends else result.next):
            moved = result
            for move in path:
                moved = build.call(move.target, moved, *move.args[1:], **move.kwargs)
        end.node.replace_all_uses_with(moved)
        _drop(graph, end.node)


def _drop(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a node without users, and what only it reads."""
    pending, erased = [node], set[fx.Node]()
    while pending:
        node = pending.pop()
        if node.op == "call_function" and not node.users and node not in erased:
            pending += node.all_input_nodes
            graph.erase_node(node)
            erased.add(node)


def _followed(place: _Place) -> _Place:
    """The last of the reshapes and roundings behind a node, each the only user of what is before
    it. A kernel rounds once, behind all that is fused.
    """
    node, path = place
    while len(node.users) == 1:
        (user,) = node.users
        if user.target in SAME:
            path = (*path, user)
        elif user.target is not CAST or user.args[1] not in _FLOATS:
            break
        node = user
    return _Place(node, path)


def _with_sum(product: fx.Node) -> tuple[_Place, fx.Node | None]:
    """The residual sum behind a product, and what it adds; else the product."""
    start = _followed(_Place(product, ()))
    total = next(iter(start.node.users)) if len(start.node.users) == 1 else None
    if total is None or total.target is not _ATEN.add.Tensor or total.kwargs:
        return _Place(product, ()), None
    others = [addend for addend in total.args if addend is not start.node]
    other = others[0] if len(others) == 1 and isinstance(others[0], fx.Node) else None
    if other is None or not _is_alike(other, total, product):
        return _Place(product, ()), None
    return _Place(total, start.path), other


def _is_alike(other: fx.Node, total: fx.Node, product: fx.Node) -> bool:
    """Whether an addend has the shape of the sum, and of a convolution, and a type that a matmul
    adds here.
    """
    value, result, made = tensor_of(other), total.meta["val"], product.meta["val"]
    if value is None or value.dtype not in _FLOATS or value.shape != result.shape:
        return False
    if product.target is not INT8_LINEAR:
        return bool(made.shape == result.shape)
    is_added = value.dtype is torch.float32 or adds_to_int8(value.dtype)
    return is_added and (made.shape == result.shape or made.dim() == 2)


def _with_activation(product: fx.Node, place: _Place, is_sum: bool) -> tuple[_Place, After]:
    """The activation behind a place; else the place."""
    start = _followed(place)
    found = activation_of(start.node)
    names = _ACTIVATIONS[product.target]
    names = names & _AFTER_SUMS if is_sum else names
    if found is None or found[1].name not in names:
        return place, NOTHING
    return _Place(found[0], start.path), found[1]


def _conversions(node: fx.Node, arguments: dict[str, Any]) -> list[_Place]:
    """The conversions of a result, if it is only converted and always alike, after which the
    kernel's arguments say so.
    """
    ends = list(_ends(node, ()))
    kinds = {None if end is None else (end.node.target, *end.node.args[1:]) for end in ends}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        return []
    _, *steps, dtype = kind
    scale, zero, *span = steps or (1.0, 0)
    if (dtype, *span) not in _RESULTS:
        return []
    other: dict[str, Any] | None = {}
    if arguments["other"] is not None and "other_scale" in arguments and span:
        other = _integers_of(arguments["other"], dtype)
    if other is None:
        return []
    arguments |= {"scale": scale, "zero": zero, "dtype": dtype, **other}
    return [end for end in ends if end is not None]


def _integers_of(other: fx.Node, dtype: torch.dtype) -> dict[str, Any] | None:
    """A convolution's addend as integers of the type of its result; None if it is not quantized."""
    source = other.args[0] if is_cast(other, torch.float32) else other
    if source.target is not DEQUANTIZE_TENSOR or source.args[-1] is not dtype:
        return None
    return dict(zip(("other", "other_scale", "other_zero"), source.args, strict=False))


def _ends(node: fx.Node, path: Path) -> Iterator[_Place | None]:
    """The conversions to BF16 or integers at the end of each path; None for other ends."""
    for user in node.users:
        if user.target in _MOVES:
            yield from _ends(user, (*path, user))
        elif user.target is CAST and user.args[1] is torch.float32:
            yield from _ends(user, path)
        elif user.target in (CAST, QUANTIZE_TENSOR):
            yield _Place(user, path)
        else:
            yield None
