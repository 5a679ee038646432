"""Matmuls and convolutions in INT8 whose weights are quantized and packed once, and may change.

Inductor fuses quantize operators into oneDNN's INT8 calls, and epilogues into those, but in frozen
graphs alone. Its patterns run on any graph here, and then the packed weight becomes an input.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.edit.quantizing import DEQUANTIZE_CHANNELS, QUANTIZE_CHANNELS
from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.onednn.int8_kernels import INT8_CONVOLUTION, INT8_LINEAR, ONEDNN, PLAIN, Steps
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.torch_internals import PatternMatcherPass, freezing_patterns
from mezzo.torch.weights.int8_layouts import Int8Filter, Int8Matrix, Int8Scales
from mezzo.torch.weights.weight_layouts import HEIGHT, UNSQUEEZE, WeightLayout

_ATEN: Any = torch.ops.aten
_VIEW, _RESHAPE, _SQUEEZE = _ATEN.view.default, _ATEN.reshape.default, _ATEN.squeeze.dim
# The functions behind Inductor's patterns of static INT8.
_PASSES = frozenset(
    {
        "dequant_promotion",
        "qconv",
        "qconv_weight_prepack",
        "qlinear_post_op_fusion",
        "qlinear_weight_prepack",
    }
)
_SEQUENCE_RANK, _IMAGE_RANK = 3, 4


class Int8Slots(NamedTuple):
    """A weight's inputs for its packed integers and for its scales."""

    packed: fx.Node
    scales: fx.Node


class _Kernel(NamedTuple):
    """A call of oneDNN as Inductor writes it: its operands, and all else by Inductor's order."""

    call: fx.Node
    x: fx.Node
    of_x: Steps
    quantized: fx.Node
    other: fx.Node | None
    bias: fx.Node | None
    about: tuple[Any, ...]


_LINEAR = {ONEDNN.qlinear_pointwise.default: False, ONEDNN.qlinear_pointwise.binary: True}
_CONVOLUTION = {ONEDNN.qconv_pointwise.default: False, ONEDNN.qconv2d_pointwise.binary: True}
_ADDS = {**_LINEAR, **_CONVOLUTION}  # whether there is another operand, which is added


def call_int8_kernels(
    graph: fx.Graph, slots: Mapping[fx.Node, Int8Slots]
) -> dict[fx.Node, WeightLayout]:
    """Make quantized products call oneDNN's INT8 kernels with weights that are inputs.

    Args:
        slots: for each FP32 weight, the inputs for its integers and scales.

    Returns: the layouts of the slots in use. What no kernel takes reads the weight's own floats.
    """
    weights = {
        quantized: weight
        for weight in slots
        for quantized in weight.users
        if quantized.target is QUANTIZE_CHANNELS
    }
    if not weights:
        return {}
    _apply_patterns(graph, weights)
    layouts: dict[fx.Node, WeightLayout] = {}
    for kernel in _kernels(graph, weights):
        weight = weights[kernel.quantized]
        _write(CallInserter(graph, kernel.call), kernel, weight, slots[weight], layouts)
    graph.eliminate_dead_code()
    for quantized, weight in weights.items():
        for floats in [user for user in quantized.users if user.target is DEQUANTIZE_CHANNELS]:
            floats.replace_all_uses_with(weight)
    graph.eliminate_dead_code()
    return layouts


def _apply_patterns(graph: fx.Graph, weights: Mapping[fx.Node, fx.Node]) -> None:
    """Let Inductor's patterns write oneDNN's calls for the quantized weights."""
    for product in [reader for quantized in weights for reader in _products(quantized)]:
        for view in (*product.all_input_nodes, *product.users):
            if view.target is _VIEW:  # the patterns are written for Inductor's later form
                view.target = _RESHAPE

    def is_ours(match: Any) -> bool:
        quantized = match.kwargs.get("q_weight")
        packed = match.kwargs.get("packed_weight")
        if isinstance(packed, fx.Node):
            quantized = packed.args[0]
        return quantized is None or quantized in weights

    freezing_patterns.lazy_init()
    for registered in freezing_patterns.pass_patterns:
        matcher = PatternMatcherPass()
        for key, entries in registered.patterns.items():
            for entry in entries:
                if getattr(getattr(entry, "handler", None), "__name__", "") in _PASSES:
                    matcher.patterns[key].append(_with_check(entry, is_ours))
        matcher.apply(graph)


def _with_check(entry: Any, is_ours: Any) -> Any:
    """A pattern that applies where another condition holds too."""
    valid = entry.extra_check
    return replace(entry, extra_check=lambda match: is_ours(match) and valid(match))


def _products(node: fx.Node) -> Iterator[fx.Node]:
    """The matmuls behind a quantized weight: behind its floats, conversions and transposes."""
    for user in node.users:
        if user.target in (DEQUANTIZE_CHANNELS, CAST, _ATEN.permute.default):
            yield from _products(user)
        else:
            yield user


def _kernels(graph: fx.Graph, weights: Mapping[fx.Node, fx.Node]) -> Iterator[_Kernel]:
    """Inductor's calls of oneDNN by weights."""
    for call in [node for node in graph.nodes if node.target in _ADDS]:
        x, x_scale, x_zero, packed, _, _, *about = call.args
        quantized: Any = packed.args[0] if isinstance(packed, fx.Node) else None
        if quantized not in weights:
            continue
        other = about.pop(0) if _ADDS[call.target] else None
        bias, *about = about
        yield _Kernel(call, x, Steps(x_scale, x_zero), quantized, other, bias, tuple(about))


def _write(
    build: CallInserter,
    kernel: _Kernel,
    weight: fx.Node,
    slots: Int8Slots,
    layouts: dict[fx.Node, WeightLayout],
) -> None:
    """Replace a call by mezzo's operator. A second layout of a weight is made at every call."""
    is_linear = kernel.call.target in _LINEAR
    layout = Int8Matrix() if is_linear else _filter_layout(kernel)
    with build.graph.inserting_before(kernel.call):
        packed = slots.packed
        if layouts.setdefault(packed, layout) != layout:
            packed = layout.spell(build.call, weight)
        layouts[slots.scales] = Int8Scales()
        weight_inputs = (packed, slots.scales)
        if is_linear:
            result = _linear(build, kernel, weight, weight_inputs)
        else:
            result = _convolution(build, kernel, weight, weight_inputs, layout)
    kernel.call.replace_all_uses_with(result)
    build.graph.erase_node(kernel.call)


def _filter_layout(kernel: _Kernel) -> Int8Filter:
    stride, padding, dilation, groups, *_ = kernel.about
    size = tuple(kernel.x.meta["val"].shape)
    is_of_sequences = len(size) == _SEQUENCE_RANK
    if is_of_sequences:
        size = (*size[:HEIGHT], 1, *size[HEIGHT:])
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    is_fixed = all(isinstance(length, int) for length in size)
    return Int8Filter(
        of_x=kernel.of_x,
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        input_size=size if is_fixed else None,
        is_of_sequences=is_of_sequences,
    )


def _linear(
    build: CallInserter, kernel: _Kernel, weight: fx.Node, weight_inputs: tuple[fx.Node, fx.Node]
) -> fx.Node:
    scale, zero, dtype, *about = kernel.about
    *_, after, _, how = about
    operands = (kernel.x, *weight_inputs, kernel.bias, kernel.other, weight.meta["val"].shape[0])
    return build.call(INT8_LINEAR, *operands, *kernel.of_x, scale, zero, dtype, after, how)


def _convolution(
    build: CallInserter,
    kernel: _Kernel,
    weight: fx.Node,
    weight_inputs: tuple[fx.Node, fx.Node],
    layout: Int8Filter,
) -> fx.Node:
    _, _, _, _, scale, zero, dtype, *about = kernel.about
    *of_addition, after, numbers, how = about
    of_other = Steps(*of_addition[:2]) if of_addition else PLAIN
    x, other, size = kernel.x, kernel.other, list(weight.meta["val"].shape)
    is_last = is_laid_out_last(kernel.call.meta["val"])
    if layout.is_of_sequences:
        x, size = build.call(UNSQUEEZE, x, HEIGHT), [*size[:HEIGHT], 1, *size[HEIGHT:]]
        other = None if other is None else build.call(UNSQUEEZE, other, HEIGHT)
    if other is not None and dtype.is_floating_point and other.meta["val"].dtype is not dtype:
        other = build.call(CAST, other, dtype)
    operands = (x, *weight_inputs, kernel.bias, other, size)
    sizes = ([*layout.stride], [*layout.padding], [*layout.dilation], layout.groups)
    steps = (*kernel.of_x, *of_other, scale, zero)
    after = (after, [float(number) for number in numbers], how)
    result = build.call(INT8_CONVOLUTION, *operands, *sizes, *steps, dtype, is_last, *after)
    return build.call(_SQUEEZE, result, HEIGHT) if layout.is_of_sequences else result
