"""Matmuls and convolutions in INT8 whose weights are quantized and packed once, and may change.

Inductor fuses quantize operators into oneDNN's INT8 calls, and epilogues into those, but in frozen
graphs alone. Its patterns run on any graph here, and then the packed weight becomes an input.
"""

from collections.abc import Callable, Iterator, Mapping
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
from mezzo.torch.weights.weight_layouts import HEIGHT, PERMUTE, UNSQUEEZE, WeightLayout

_ATEN: Any = torch.ops.aten
_VIEW, _RESHAPE, _SQUEEZE = _ATEN.view.default, _ATEN.reshape.default, _ATEN.squeeze.dim
# The functions behind Inductor's patterns of static INT8.
_PASSES = frozenset(
    {
        "dequant_promotion",
        "qconv_weight_prepack",
        "qlinear_weight_prepack",
    }
)
_SEQUENCE_RANK = 3
_MATMULS = (_ATEN.mm.default, _ATEN.addmm.default)
_BEFORE_PRODUCTS = frozenset({DEQUANTIZE_CHANNELS, CAST, PERMUTE, _ATEN.clone.default})


class Int8Slots(NamedTuple):
    """A weight's inputs for its packed integers and for its scales."""

    packed: fx.Node
    scales: fx.Node


class _Kernel(NamedTuple):
    """A call of oneDNN as Inductor writes it: its operands, and all else by Inductor's order."""

    call: fx.Node
    x: fx.Node
    of_x: Steps
    weight: fx.Node  # in FP32, with channels first
    other: fx.Node | None
    bias: fx.Node | None
    about: tuple[Any, ...]


_LINEAR = {ONEDNN.qlinear_pointwise.default: False, ONEDNN.qlinear_pointwise.binary: True}
_CONVOLUTION = {ONEDNN.qconv_pointwise.default: False, ONEDNN.qconv2d_pointwise.binary: True}
_ADDS = {**_LINEAR, **_CONVOLUTION}  # whether there is another operand, which is added


def call_int8_kernels(
    graph: fx.Graph, slots: Mapping[fx.Node, Int8Slots]
) -> dict[fx.Node, WeightLayout]:
    """Make quantized products call oneDNN's INT8 kernels.

    Args:
        slots: for each FP32 weight that may change, the inputs for its integers and scales; weights
            without are constants, which Inductor folds.

    Returns: the layouts of the slots in use. What no kernel takes reads the weight's own floats.
    """
    quantized = _separated(graph)
    if not quantized:
        return {}
    _apply_patterns(graph, quantized)
    layouts: dict[fx.Node, WeightLayout] = {}
    for kernel in _kernels(graph, quantized):
        _write(CallInserter(graph, kernel.call), kernel, slots, layouts)
    graph.eliminate_dead_code()
    for integers in [node for node in graph.nodes if node in quantized]:
        for floats in list(integers.users):
            floats.replace_all_uses_with(integers.args[0])
    graph.eliminate_dead_code()
    return layouts


def _separated(graph: fx.Graph) -> set[fx.Node]:
    """The quantize calls of weights, once each product reads a dequantized weight of its own with
    channels first, as Inductor's patterns want it.
    """
    quantized = {
        node
        for node in graph.find_nodes(op="call_function", target=QUANTIZE_CHANNELS)
        if node.args[1].op == "get_attr"  # mezzo's own
    }
    for integers in list(quantized):
        for product, path in list(_products(integers, ())):
            is_transposed = product.target in _MATMULS and PERMUTE not in (n.target for n in path)
            if not is_transposed and all(len(step.users) == 1 for step in path):
                continue
            build = CallInserter(graph, product)
            with graph.inserting_before(product):
                own = _turned(build, integers) if is_transposed else integers
                floats = own
                for step in path:
                    about = own.args if step.target is DEQUANTIZE_CHANNELS else step.args
                    floats = build.call(step.target, floats, *about[1:], **step.kwargs)
                floats = build.call(PERMUTE, floats, [1, 0]) if is_transposed else floats
            quantized.add(own)
            product.replace_input_with(path[-1], floats)
    return quantized


def _turned(build: CallInserter, integers: fx.Node) -> fx.Node:
    """The quantize call of a transposed matrix, whose channels come first."""
    weight, scales, zero_points, axis, *about = integers.args
    turned = build.call(PERMUTE, weight, [1, 0])
    return build.call(QUANTIZE_CHANNELS, turned, scales, zero_points, 1 - axis, *about)


def _products(
    node: fx.Node, path: tuple[fx.Node, ...]
) -> Iterator[tuple[fx.Node, tuple[fx.Node, ...]]]:
    """The calls that read a quantized weight, with the conversions and transposes before each."""
    for user in node.users:
        if user.target in _BEFORE_PRODUCTS:
            yield from _products(user, (*path, user))
        else:
            yield user, path


def _apply_patterns(graph: fx.Graph, quantized: set[fx.Node]) -> None:
    """Let Inductor's patterns write oneDNN's calls for the quantized weights."""
    for product in {product for node in quantized for product, _ in _products(node, ())}:
        for view in (*product.all_input_nodes, *product.users):
            if view.target is _VIEW:  # the patterns are written for Inductor's later form
                view.target = _RESHAPE

    def applies(match: Any) -> bool:
        packed = match.kwargs.get("packed_weight")
        weight = packed.args[0] if isinstance(packed, fx.Node) else match.kwargs.get("q_weight")
        # Inductor asserts that a call has no epilogue yet, and that results are not in FP16.
        is_plain = match.kwargs.get("postop_name", "none") == "none"
        results = [node.meta["val"].dtype for node in match.output_nodes()]
        is_ours = weight is None or weight in quantized
        return is_ours and is_plain and torch.float16 not in results

    freezing_patterns.lazy_init()
    for registered in freezing_patterns.pass_patterns:
        matcher = PatternMatcherPass()
        for key, entries in registered.patterns.items():
            for entry in entries:
                if getattr(getattr(entry, "handler", None), "__name__", "") in _PASSES:
                    matcher.patterns[key].append(_with_check(entry, applies))
        matcher.apply(graph)


def _with_check(entry: Any, applies: Callable[[Any], bool]) -> Any:
    """A pattern with a further condition."""
    valid = entry.extra_check
    return replace(entry, extra_check=lambda match: applies(match) and valid(match))


def _kernels(graph: fx.Graph, quantized: set[fx.Node]) -> Iterator[_Kernel]:
    """Inductor's calls of oneDNN by quantized weights."""
    for call in [node for node in graph.nodes if node.target in _ADDS]:
        x, x_scale, x_zero, packed, _, _, *about = call.args
        integers: Any = packed.args[0] if isinstance(packed, fx.Node) else None
        if integers not in quantized:
            continue
        other = about.pop(0) if _ADDS[call.target] else None
        bias, *about = about
        weight = integers.args[0]
        yield _Kernel(call, x, Steps(x_scale, x_zero), weight, other, bias, tuple(about))


def _write(
    build: CallInserter,
    kernel: _Kernel,
    slots: Mapping[fx.Node, Int8Slots],
    layouts: dict[fx.Node, WeightLayout],
) -> None:
    """Replace a call by mezzo's operator. A second layout of a weight is made at every call."""
    weight, is_transposed = kernel.weight, kernel.weight.target is PERMUTE
    if is_transposed:
        (weight,) = weight.all_input_nodes
    scaling = Int8Scales(is_transposed=is_transposed)
    is_linear = kernel.call.target in _LINEAR
    layout: Int8Matrix | Int8Filter = (
        Int8Matrix(is_transposed=is_transposed) if is_linear else _filter_layout(kernel)
    )
    with build.graph.inserting_before(kernel.call):
        packed, scales = slots.get(weight, (None, None))
        if packed is not None and layouts.setdefault(packed, layout) != layout:
            packed = None
        if scales is not None and layouts.setdefault(scales, scaling) != scaling:
            scales = None
        weight_inputs = (
            layout.spell(build.call, weight) if packed is None else packed,
            scaling.spell(build.call, weight) if scales is None else scales,
        )
        if isinstance(layout, Int8Matrix):
            result = _linear(build, kernel, weight_inputs)
        else:
            result = _convolution(build, kernel, weight_inputs, layout)
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


def _sizes(kernel: _Kernel) -> list[int]:
    return list(kernel.weight.meta["val"].shape)


def _linear(
    build: CallInserter, kernel: _Kernel, weight_inputs: tuple[fx.Node, fx.Node]
) -> fx.Node:
    scale, zero, dtype, *about = kernel.about
    *_, after, _, how = about
    operands = (kernel.x, *weight_inputs, kernel.bias, kernel.other, _sizes(kernel)[0])
    return build.call(INT8_LINEAR, *operands, *kernel.of_x, scale, zero, dtype, after, how)


def _convolution(
    build: CallInserter,
    kernel: _Kernel,
    weight_inputs: tuple[fx.Node, fx.Node],
    layout: Int8Filter,
) -> fx.Node:
    _, _, _, _, scale, zero, dtype, *about = kernel.about
    *of_addition, after, numbers, how = about
    of_other = Steps(*of_addition[:2]) if of_addition else PLAIN
    x, other, size = kernel.x, kernel.other, _sizes(kernel)
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
