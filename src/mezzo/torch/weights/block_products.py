"""Matmuls with weights in blocks: INT4 for few rows, else BF16 with the dequantized weight.

ATen's INT4 kernel reads a quarter of the bytes, and is slower than oneDNN's BF16 from five rows on.
The numbers of a weight are the same in both, so that graphs for many rows and for one agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.blocks import ROUND, storage_of
from mezzo.aten.read.retype import CAST
from mezzo.formats.block_storage import BlockStorage
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.kernels import FEW_ROWS, INT4_LINEAR, reads_int4, whole_rows
from mezzo.torch.weights.packing import Product, readers_of, replace_call, replace_packed
from mezzo.torch.weights.weight_layouts import (
    BlockFloats,
    Int4Grids,
    Int4Matrix,
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
    for rounded in [user for user in weight.users if user.target is ROUND]:
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
        if few and reads_int4():
            for product in few:
                _write_int4(graph, product, slots, wide)
            layouts[slots.slot] = Int4Matrix(storage=slots.storage, sizes=sizes)
            layouts[slots.grids] = Int4Grids(storage=slots.storage, sizes=sizes)
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


def _write_int4(
    graph: fx.Graph, product: Product, slots: BlockSlots, wide: Mapping[fx.Node, fx.Node]
) -> None:
    """Replace a matmul by ATen's INT4 kernel. The bias is added apart, which Inductor fuses into
    what follows.
    """
    build, (features,) = CallInserter(graph, product.call), product.about
    with graph.inserting_before(product.call):
        arguments: Sequence[Any] = (slots.slot, slots.grids, whole_rows(features))
        result = build.call(INT4_LINEAR, product.x, *arguments, slots.storage.block)
        if whole_rows(features) != features:
            result = build.call(_ATEN.slice.Tensor, result, 1, 0, features)
        if product.bias is not None:
            total = build.call(_ATEN.add.Tensor, result, wide.get(product.bias, product.bias))
            result = build.call(CAST, total, product.call.meta["val"].dtype)
    replace_call(graph, product, result)
