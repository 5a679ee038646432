"""Matmuls with weights in blocks: integers for few rows, else BF16 with the dequantized weight.

ATen's INT4 kernel reads a quarter of the bytes, and is slower than oneDNN's BF16 from five rows on;
its kernel for INT8 weights reads half of them.
The numbers of a weight are the same in both, so that graphs for many rows and for one agree.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.blocks import ROUNDINGS, storage_of
from mezzo.aten.read.retype import CAST
from mezzo.formats.block_storage import BlockStorage
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.kernels import (
    FEW_ROWS,
    INT4_LINEAR,
    INT8W_LINEAR,
    reads_int4,
    reads_int8w,
    whole_rows,
)
from mezzo.torch.weights.packing import Product, readers_of, replace_call, replace_packed
from mezzo.torch.weights.weight_layouts import (
    BlockFloats,
    Int4Grids,
    Int4Matrix,
    Int8wMatrix,
    Int8wScales,
    OfBlocks,
    PackedBlockFloats,
    PackedMatrix,
)

_ATEN: Any = torch.ops.aten


class BlockSlots(NamedTuple):
    """A weight in blocks: its FX nodes for a packed form and for scales and offsets."""

    storage: BlockStorage
    slot: fx.Node
    grids: fx.Node


class RoundedWeight(NamedTuple):
    """The calls that round a weight and dequantize it."""

    storage: BlockStorage
    rounded: fx.Node
    floats: fx.Node


def rounded_weights(weight: fx.Node) -> Iterator[RoundedWeight]:
    """The roundings of a weight in a planned graph."""
    for rounded in [user for user in weight.users if user.target in ROUNDINGS]:
        (floats,) = rounded.users
        yield RoundedWeight(storage_of(rounded), rounded, floats)


def pack_blocks(
    graph: fx.Graph, weights: Mapping[fx.Node, BlockSlots], wide: Mapping[fx.Node, fx.Node]
) -> dict[fx.Node, OfBlocks]:
    """Make matmuls read weights in blocks, by the node of the dequantized weight.

    Returns: the layouts of the slots in use. Other readers keep the dequantized weight.
    """
    layouts: dict[fx.Node, OfBlocks] = {}
    for low, slots in weights.items():
        value = low.meta["val"]
        products = [product for product in readers_of(low) if product is not None]
        few = [product for product in products if _has_few_rows(product)]
        sizes = tuple(value.shape)
        kernel = _KERNELS[slots.storage.bits]
        if few and kernel.runs():
            for product in few:
                _write_integers(graph, product, slots, wide)
            layouts[slots.slot] = kernel.matrix(storage=slots.storage, sizes=sizes)
            layouts[slots.grids] = kernel.grids(storage=slots.storage, sizes=sizes)
            continue
        packings = {product.layout for product in products}
        if len(packings) != 1:
            continue
        for product in products:
            replace_packed(graph, product, slots.slot, wide)
        packing = packings.pop()
        assert isinstance(packing, PackedMatrix), "weights in blocks are matrices"
        layouts[slots.slot] = PackedBlockFloats(
            storage=slots.storage,
            sizes=sizes,
            dtype=value.dtype,
            strides=tuple(value.stride()),
            packing=packing,
        )
    return layouts


def floats_of(low: fx.Node, storage: BlockStorage) -> BlockFloats:
    """The layout of a dequantized weight that is read as it is."""
    value = low.meta["val"]
    return BlockFloats(
        storage=storage, sizes=tuple(value.shape), dtype=value.dtype, strides=tuple(value.stride())
    )


def _has_few_rows(product: Product) -> bool:
    rows = product.x.meta["val"].shape[0]
    return isinstance(rows, int) and rows <= FEW_ROWS


def _write_integers(
    graph: fx.Graph, product: Product, slots: BlockSlots, wide: Mapping[fx.Node, fx.Node]
) -> None:
    """Replace a matmul by ATen's kernel for its integers. The bias is added apart, which Inductor
    fuses into what follows.
    """
    build, (features,) = CallInserter(graph, product.call), product.about
    with graph.inserting_before(product.call):
        result = _KERNELS[slots.storage.bits].write(build, product.x, slots, features)
        if product.bias is not None:
            total = build.call(_ATEN.add.Tensor, result, wide.get(product.bias, product.bias))
            result = build.call(CAST, total, product.call.meta["val"].dtype)
    replace_call(graph, product, result)


def _int4(build: CallInserter, x: fx.Node, slots: BlockSlots, features: int) -> fx.Node:
    arguments: Sequence[Any] = (slots.slot, slots.grids, whole_rows(features))
    result = build.call(INT4_LINEAR, x, *arguments, slots.storage.block)
    if whole_rows(features) != features:
        result = build.call(_ATEN.slice.Tensor, result, 1, 0, features)
    return result


def _int8(build: CallInserter, x: fx.Node, slots: BlockSlots, features: int) -> fx.Node:
    return build.call(INT8W_LINEAR, x, slots.slot, slots.grids, features)


class _Kernel(NamedTuple):
    """A kernel of ATen's for weights as integers: whether it runs here, what it reads, its call."""

    runs: Callable[[], bool]
    matrix: type[OfBlocks]
    grids: type[OfBlocks]
    write: Callable[[CallInserter, fx.Node, BlockSlots, int], fx.Node]


_KERNELS = {
    4: _Kernel(lambda: reads_int4(), Int4Matrix, Int4Grids, _int4),
    8: _Kernel(lambda: reads_int8w(), Int8wMatrix, Int8wScales, _int8),
}
