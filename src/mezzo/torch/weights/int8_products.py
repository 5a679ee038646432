"""Matmuls and convolutions in INT8 whose weights are quantized and packed once, and may change."""

from collections.abc import Iterator, Mapping, Set
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.edit.quantizing import (
    DEQUANTIZE_CHANNELS,
    DEQUANTIZE_DYNAMIC,
    DEQUANTIZE_TENSOR,
    QUANTIZE_CHANNELS,
    QUANTIZE_DYNAMIC,
)
from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.int8_kernels import (
    INT8_CONVOLUTION,
    INT8_DYNAMIC_LINEAR,
    INT8_LINEAR,
    PLAIN,
    Steps,
)
from mezzo.torch.onednn.kernels import NOTHING
from mezzo.torch.weights.int8_layouts import Int8Filter, Int8Matrix, Int8Scales
from mezzo.torch.weights.packing import SQUEEZE, Product, readers_of, replace_call
from mezzo.torch.weights.weight_layouts import HEIGHT, UNSQUEEZE, PackedFilter, WeightLayout

_ATEN: Any = torch.ops.aten
_IMAGE_RANK = 4
_INTEGERS = frozenset({torch.uint8, torch.int8})
# The matmul's operator, by what dequantizes its data.
_LINEARS = {DEQUANTIZE_TENSOR: INT8_LINEAR, DEQUANTIZE_DYNAMIC: INT8_DYNAMIC_LINEAR}


class Int8Slots(NamedTuple):
    """A weight's inputs for its packed integers and for its scales."""

    packed: fx.Node
    scales: fx.Node


def call_int8_kernels(
    graph: fx.Graph,
    slots: Mapping[fx.Node, Int8Slots],
    in_pairs: bool,
    constants: Set[fx.Node] = frozenset(),
) -> dict[fx.Node, WeightLayout]:
    """Make quantized products call oneDNN's INT8 kernels.

    Args:
        slots: for each FP32 weight that may change, the inputs for its integers and scales.
        in_pairs: kernels add the products of two neighbours in INT16, as the plan's target says.
        constants: the weights that do not change, which have the scales of the plan, and which
            Inductor packs.

    Returns: the layouts of the slots in use. What no kernel takes reads the weight's own floats.
    """
    layouts: dict[fx.Node, WeightLayout] = {}
    for weight, floats in list(_quantized(graph)):
        planned = floats.args[1] if weight in constants else None
        for product in readers_of(floats):
            if product is not None and _has_kernel(product):
                _write(graph, product, weight, planned, in_pairs, slots, layouts)
        floats.replace_all_uses_with(weight)
    graph.eliminate_dead_code()
    return layouts


def write_dynamic_quantization(graph: fx.Graph) -> None:
    """Write dynamic quantization in operators that Inductor vectorizes: its own lowering takes 18
    times as long with AVX2.
    """
    for quantize in graph.find_nodes(op="call_function", target=QUANTIZE_DYNAMIC):
        numbers, scale, zero, low, high, dtype = quantize.args
        build = CallInserter(graph, quantize)
        with graph.inserting_before(quantize):
            factor = build.call(_ATEN.reciprocal.default, scale)
            steps = build.call(_ATEN.round.default, build.call(_ATEN.mul.Tensor, numbers, factor))
            steps = build.call(_ATEN.add.Tensor, steps, build.call(CAST, zero, torch.float32))
            steps = build.call(_ATEN.clamp_min.default, steps, float(low))
            steps = build.call(_ATEN.clamp_max.default, steps, float(high))
            integers = build.call(CAST, steps, dtype)
        quantize.replace_all_uses_with(integers)
        graph.erase_node(quantize)


def _quantized(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The weights that the plan quantizes, each with its dequantized form."""
    for integers in graph.find_nodes(op="call_function", target=QUANTIZE_CHANNELS):
        weight, scales, *_ = integers.args
        if scales.op == "get_attr":  # mezzo's own
            for floats in [user for user in integers.users if user.target is DEQUANTIZE_CHANNELS]:
                yield weight, floats


def _has_kernel(product: Product) -> bool:
    x, layout = product.x, product.layout
    is_quantized = x.target in _LINEARS and x.args[0].meta["val"].dtype in _INTEGERS
    is_of_images = not isinstance(layout, PackedFilter) or len(product.about[0]) == _IMAGE_RANK
    return is_quantized and is_of_images


def _write(
    graph: fx.Graph,
    product: Product,
    weight: fx.Node,
    planned: fx.Node | None,
    in_pairs: bool,
    slots: Mapping[fx.Node, Int8Slots],
    layouts: dict[fx.Node, WeightLayout],
) -> None:
    """Replace a product by mezzo's operator. `planned`: the scales of a weight that is constant; a
    second layout of another is made at every call.
    """
    build, packing = CallInserter(graph, product.call), product.layout
    x, scale, zero, *_ = product.x.args
    of_x = Steps(scale, zero)
    is_transposed = packing.channel_axis == 1
    scaling = Int8Scales(in_pairs=in_pairs, is_transposed=is_transposed)
    layout: Int8Matrix | Int8Filter = (
        Int8Filter(in_pairs=in_pairs, of_x=of_x, packing=packing)
        if isinstance(packing, PackedFilter)
        else Int8Matrix(in_pairs=in_pairs, is_transposed=is_transposed)
    )
    with graph.inserting_before(product.call):
        packed, scales = slots.get(weight, (None, None))
        if packed is None or layouts.setdefault(packed, layout) != layout:
            packed = layout.spell(build.call, weight, planned)
        if planned is not None:
            scales = planned
        elif scales is None or layouts.setdefault(scales, scaling) != scaling:
            scales = scaling.spell(build.call, weight)
        operands = (packed, scales, product.bias, None)
        if not isinstance(packing, PackedFilter):
            about = (*product.about, *of_x, *PLAIN, torch.float32, *NOTHING)
            result = build.call(_LINEARS[product.x.target], x, *operands, *about)
        else:
            *sizes, is_last = product.about
            x = build.call(UNSQUEEZE, x, HEIGHT) if packing.is_of_sequences else x
            after, how = NOTHING
            about = (*sizes, *of_x, *PLAIN, *PLAIN, torch.float32, is_last, after, [], how)
            result = build.call(INT8_CONVOLUTION, x, *operands, *about)
            result = build.call(SQUEEZE, result, HEIGHT) if packing.is_of_sequences else result
    replace_call(graph, product, result)
