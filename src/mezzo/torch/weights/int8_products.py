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
    QUANTIZE_TENSOR,
)
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.int8_kernels import (
    HELD,
    INT8_CONVOLUTION,
    INT8_LINEAR,
    PLAIN,
    Steps,
)
from mezzo.torch.onednn.kernels import NOTHING
from mezzo.torch.scaled_matmuls import multiply_integers
from mezzo.torch.weights.int8_layouts import (
    Int8Filter,
    Int8Integers,
    Int8Matrix,
    Int8Scales,
    Int8Sums,
    OfChannels,
)
from mezzo.torch.weights.packing import SQUEEZE, TURNS, Product, readers_of, replace_call
from mezzo.torch.weights.weight_layouts import (
    HEIGHT,
    PERMUTE,
    UNSQUEEZE,
    PackedFilter,
    WeightLayout,
)

_ATEN: Any = torch.ops.aten
_SUM = _ATEN.sum.dim_IntList
_IMAGE_RANK = 4
_INTEGERS = frozenset({torch.uint8, torch.int8})
_S8 = (-128, 127, torch.int8)


class Int8Slots(NamedTuple):
    """A weight's inputs for its packed integers, for its scales, and for the channels' sums."""

    packed: fx.Node
    scales: fx.Node
    sums: fx.Node


def call_int8_kernels(
    graph: fx.Graph,
    slots: Mapping[fx.Node, Int8Slots],
    *,
    in_pairs: bool = False,
    are_scaled: bool = False,
    constants: Set[fx.Node] = frozenset(),
) -> dict[fx.Node, WeightLayout]:
    """Make quantized products call INT8 kernels, oneDNN's or matmuls whose sums are scaled.

    Args:
        slots: for each FP32 weight that may change, the inputs for what its integers need.
        in_pairs: kernels add the products of two neighbours in INT16, as the plan's target says.
        are_scaled: products are matmuls of S8 whose sums are scaled, as on GPUs.
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
        has_kernel = _has_scaled_kernel if are_scaled else _has_kernel
        write_product = write.scaled if are_scaled else write.product
        readers, sums = readers_of(floats), list(_sums_of(floats))
        products = [product for product in readers if product is not None and has_kernel(product)]
        if not sums or len(products) + len(sums) == len(readers):  # else the sums are of floats
            for product in products:
                write_product(product)
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


def _signed(build: CallInserter, x: fx.Node) -> tuple[fx.Node, float]:
    """A dequantized tensor as S8 whose zero is 0, and its scale."""
    quantized, scale, *_, dtype = x.args
    if dtype is torch.int8:
        return quantized, scale
    return build.call(QUANTIZE_TENSOR, quantized.args[0], scale, 0, *_S8), scale


def _has_scaled_kernel(product: Product) -> bool:
    """Whether a product is a matmul that can multiply S8 whose zero is 0."""
    if isinstance(product.layout, PackedFilter) or not _has_kernel(product):
        return False
    quantized, _, zero, low, *_, dtype = product.x.args
    is_written = dtype is torch.int8 or quantized.target is QUANTIZE_TENSOR
    return is_written and zero + _S8[0] == low


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

    def scaled(self, product: Product) -> None:
        """Replace a matmul by one of integers whose sums are scaled."""
        is_transposed = product.layout.channel_axis == 1
        about = {"in_pairs": self.in_pairs, "is_transposed": is_transposed}
        build = CallInserter(self.graph, product.call)
        (rows, channels), summed = product.call.meta["val"].shape, product.x.meta["val"].shape[1]
        with self.graph.inserting_before(product.call):
            x, scale = _signed(build, product.x)
            sizes = [channels, summed]
            integers = self._held(build, Int8Integers(**about), "packed", sizes, torch.int8)
            scales = self._held(build, Int8Scales(**about), "scales", [channels])
            matrix = build.call(PERMUTE, integers, [1, 0])
            scales = build.call(_ATEN.mul.Tensor, scales, scale)
            fixed_rows = rows if isinstance(rows, int) else None
            result = multiply_integers(build.call, x, matrix, scales, fixed_rows)
            if product.bias is not None:
                result = build.call(_ATEN.add.Tensor, result, product.bias)
        replace_call(self.graph, product, result)

    def sums(self, call: fx.Node, is_transposed: bool) -> None:
        """Replace the sums of a dequantized weight's channels by those of its integers."""
        layout = Int8Sums(in_pairs=self.in_pairs, is_transposed=is_transposed)
        sizes = [*call.meta["val"].shape]
        with self.graph.inserting_before(call):
            sums = self._held(CallInserter(self.graph, call), layout, "sums", sizes)
        call.replace_all_uses_with(sums)

    def _held(
        self,
        build: CallInserter,
        layout: OfChannels,
        slot: str,
        sizes: list[int],
        dtype: torch.dtype = torch.float32,
    ) -> fx.Node:
        """A form of the weight that generated code reads."""
        form = self._form(build, layout, slot)
        is_input = self.slots is not None and form is getattr(self.slots, slot)
        return build.call(HELD, form, sizes, dtype) if is_input else form

    def _form(self, build: CallInserter, layout: OfChannels, slot: str) -> fx.Node:
        """A form of the weight: the graph's input for it, or computed at every call if that has
        another layout, or there is none.
        """
        place: fx.Node | None = getattr(self.slots, slot, None)
        if place is not None and self.layouts.setdefault(place, layout) == layout:
            return place
        form: fx.Node = layout.spell(build.call, self.weight, self.planned)
        return form
