"""Matmuls and convolutions in INT8 whose weights are quantized and packed once, and may change."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.edit.quantizing import (
    DEQUANTIZE_CHANNELS,
    DEQUANTIZE_TENSOR,
    QUANTIZE_CHANNELS,
)
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.int8_kernels import (
    HELD_SUMS,
    INT8_CONVOLUTION,
    INT8_LINEAR,
    PLAIN,
    Steps,
)
from mezzo.torch.onednn.kernels import NOTHING
from mezzo.torch.weights.int8_layouts import (
    Int8Filter,
    Int8Matrix,
    Int8Scales,
    Int8Sums,
    OfChannels,
)
from mezzo.torch.weights.packing import SQUEEZE, TURNS, Product, readers_of, replace_call
from mezzo.torch.weights.weight_layouts import HEIGHT, UNSQUEEZE, PackedFilter, WeightLayout

_ATEN: Any = torch.ops.aten
_SUM = _ATEN.sum.dim_IntList
_IMAGE_RANK = 4
_INTEGERS = frozenset({torch.uint8, torch.int8})


class Int8Slots(NamedTuple):
    """A weight's inputs for its packed integers, for its scales, and for the channels' sums."""

    packed: fx.Node
    scales: fx.Node
    sums: fx.Node


def call_int8_kernels(
    graph: fx.Graph,
    slots: Mapping[fx.Node, Int8Slots],
    in_pairs: bool,
    constants: Set[fx.Node] = frozenset(),
) -> dict[fx.Node, WeightLayout]:
    """Make quantized products call oneDNN's INT8 kernels.

    Args:
        slots: for each FP32 weight that may change, the inputs for what its integers need.
        in_pairs: kernels add the products of two neighbours in INT16, as the plan's target says.
        constants: the weights that do not change, which have the scales of the plan, and which
            Inductor packs.

    Returns: the layouts of the slots in use. What no kernel takes reads the weight's own floats.
    """
    layouts: dict[fx.Node, WeightLayout] = {}
    for weight, floats in list(_quantized(graph)):
        planned = floats.args[1] if weight in constants else None
        write = _Writer(
            graph=graph,
            weight=weight,
            planned=planned,
            in_pairs=in_pairs,
            slots=slots.get(weight),
            layouts=layouts,
        )
        readers, sums = readers_of(floats), list(_sums_of(floats))
        products = [product for product in readers if product is not None and _has_kernel(product)]
        if not sums or len(products) + len(sums) == len(readers):  # else the sums are of floats
            for product in products:
                write.product(product)
            for call, is_transposed in sums:
                write.sums(call, is_transposed)
        floats.replace_all_uses_with(weight)
    graph.eliminate_dead_code()
    return layouts


def _quantized(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The weights that the plan quantizes, each with its dequantized form."""
    for integers in graph.find_nodes(op="call_function", target=QUANTIZE_CHANNELS):
        weight, scales, *_ = integers.args
        if scales.op == "get_attr":  # mezzo's own
            for floats in [user for user in integers.users if user.target is DEQUANTIZE_CHANNELS]:
                yield weight, floats


def _has_kernel(product: Product) -> bool:
    x, layout = product.x, product.layout
    is_quantized = x.target is DEQUANTIZE_TENSOR and x.args[0].meta["val"].dtype in _INTEGERS
    is_of_images = not isinstance(layout, PackedFilter) or len(product.about[0]) == _IMAGE_RANK
    return is_quantized and is_of_images


def _sums_of(floats: fx.Node) -> Iterator[tuple[fx.Node, bool]]:
    """The sums of a matrix's output channels, and whether these are the second of its axes."""
    for user in floats.users:
        is_turned = user.target in TURNS
        for call in user.users if is_turned else (user,):
            if call.target is _SUM:
                yield call, (call.args[1] == [0]) != is_turned


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    """Writes the calls that read one weight. `planned`: the scales of a weight that is constant; a
    second layout of another is made at every call.
    """

    graph: fx.Graph
    weight: fx.Node
    planned: fx.Node | None
    in_pairs: bool
    slots: Int8Slots | None
    layouts: dict[fx.Node, WeightLayout]

    def product(self, product: Product) -> None:
        """Replace a product by mezzo's operator."""
        graph, packing, is_transposed = self.graph, product.layout, product.layout.channel_axis == 1
        build = CallInserter(graph, product.call)
        x, scale, zero, *_ = product.x.args
        of_x = Steps(scale, zero)
        layout: Int8Matrix | Int8Filter = (
            Int8Filter(in_pairs=self.in_pairs, of_x=of_x, packing=packing)
            if isinstance(packing, PackedFilter)
            else Int8Matrix(in_pairs=self.in_pairs, is_transposed=is_transposed)
        )
        scaling = Int8Scales(in_pairs=self.in_pairs, is_transposed=is_transposed)
        with graph.inserting_before(product.call):
            packed = self._form(build, layout, "packed")
            scales = self._form(build, scaling, "scales")
            operands = (packed, scales, product.bias, None)
            if not isinstance(packing, PackedFilter):
                about = (*product.about, *of_x, *PLAIN, torch.float32, *NOTHING)
                result = build.call(INT8_LINEAR, x, *operands, *about)
            else:
                *sizes, is_last = product.about
                x = build.call(UNSQUEEZE, x, HEIGHT) if packing.is_of_sequences else x
                after, how = NOTHING
                about = (*sizes, *of_x, *PLAIN, *PLAIN, torch.float32, is_last, after, [], how)
                result = build.call(INT8_CONVOLUTION, x, *operands, *about)
                result = build.call(SQUEEZE, result, HEIGHT) if packing.is_of_sequences else result
        replace_call(graph, product, result)

    def sums(self, call: fx.Node, is_transposed: bool) -> None:
        """Replace the sums of a dequantized weight's channels by those of its integers."""
        layout = Int8Sums(in_pairs=self.in_pairs, is_transposed=is_transposed)
        with self.graph.inserting_before(call):
            build = CallInserter(self.graph, call)
            sums = self._form(build, layout, "sums")
            if self.slots is not None and sums is self.slots.sums:
                sums = build.call(HELD_SUMS, sums, *call.meta["val"].shape)
        call.replace_all_uses_with(sums)

    def _form(self, build: CallInserter, layout: OfChannels, slot: str) -> fx.Node:
        """A form of the weight: the graph's input for it, or computed at every call if that has
        another layout, or there is none.
        """
        place: fx.Node | None = getattr(self.slots, slot, None)
        if place is not None and self.layouts.setdefault(place, layout) == layout:
            return place
        form: fx.Node = layout.spell(build.call, self.weight, self.planned)
        return form
