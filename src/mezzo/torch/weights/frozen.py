"""Constant folding for frozen weights: packing, and BatchNorm folded into weights and biases.

Inductor folds everything computed from constants. A scaling or shift of channels after a matmul or
convolution becomes part of its weight and bias in FP32, before the weight is rounded: one rounding
in place of two.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import fx

from mezzo.aten.program import Program, ProgramTensor, tensor_of
from mezzo.aten.read.retype import CAST, is_cast
from mezzo.aten.torch_internals import OpOverload
from mezzo.torch.compiler.building import CallInserter, arguments_of
from mezzo.torch.onednn.epilogues import retraced, widened
from mezzo.torch.onednn.int8_kernels import INT8_CONVOLUTION, INT8_PRODUCTS
from mezzo.torch.onednn.kernels import CONVOLUTION, LINEAR, PACK_MATRIX
from mezzo.torch.torch_internals import MutationType, TracingContext
from mezzo.torch.weights.block_products import BlockSlots, pack_blocks, rounded_weights
from mezzo.torch.weights.packing import pack
from mezzo.torch.weights.weight_layouts import Packed, forms_of

_ATEN: Any = torch.ops.aten
_LEAST = torch.finfo(torch.float32).tiny  # of a channel that is scaled by 0
_MUL, _ADD, _SUB = _ATEN.mul.Tensor, _ATEN.add.Tensor, _ATEN.sub.Tensor


class _Scaling(NamedTuple):
    """A channel scaling of an output: `end` computes output * scale + shift."""

    end: fx.Node
    scale: fx.Node | None
    shift: fx.Node | None


def casts_of_constants(graph: fx.Graph) -> int:
    """The number of conversions that Inductor folds, as they depend only on weights."""
    return sum(node.target is CAST for node in made_of(graph, set(constants_of(graph))))


def hold_corrected(program: Program, weights: Mapping[str, ProgramTensor]) -> None:
    """Make a program's graph read corrected weights in place of the caller's own. `weights`: all
    of them, as they are to be.
    """
    graph, owner = program.graph, program.owner
    for node in [node for node in graph.nodes if node.name in program.weights]:
        corrected = weights[node.name]
        if corrected is program.weights[node.name]:
            continue
        assert corrected.tensor is not None, "its elements were computed"
        name = f"mezzo_corrected_{node.name}"
        owner.register_buffer(name, corrected.tensor())
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            constant = graph.create_node("get_attr", name)
        constant.meta = {"val": node.meta["val"]}
        node.replace_all_uses_with(constant)


def pack_constants(graph: fx.Graph, dtype: torch.dtype) -> None:
    """Pack the weights of a graph to be frozen, and fold channel scalings into them."""
    build, constants = CallInserter(graph), set(constants_of(graph))
    forms = [form for weight in constants for form in forms_of(weight)]
    wide = {cast: form for form in forms for cast in form.users if is_cast(cast, dtype)}
    slots = {
        low: _slot(graph, low, weight)
        for low, weight in wide.items()
        if weight.meta["val"].dim() > 1
    }
    sources = {slot: wide[low] for low, slot in slots.items()}
    layouts = pack(graph, slots, wide)
    _pack_blocks(build, constants, wide)
    constant_nodes = made_of(graph, constants)
    packed: dict[fx.Node, fx.Node] = {}
    for product in [node for node in graph.nodes if node.target in (LINEAR, CONVOLUTION)]:
        slot: Any = product.args[1]
        if slot not in layouts or _fold(
            build, product, sources[slot], layouts[slot], constant_nodes
        ):
            continue
        if slot not in packed:
            with graph.inserting_before(slot):
                packed[slot] = layouts[slot].spell(build.call, sources[slot])
        product.replace_input_with(slot, packed[slot])
    graph.eliminate_dead_code()


def _pack_blocks(
    build: CallInserter, constants: set[fx.Node], wide: Mapping[fx.Node, fx.Node]
) -> None:
    """Pack the weights that are rounded to blocks. Scalings are not folded, as the plan rounds the
    weight as it is.
    """
    graph, slots = build.graph, {}
    roundings: dict[fx.Node, fx.Node] = {}  # by slot
    for weight in constants:
        for rounded in rounded_weights(weight):
            slot, grids = (_slot(graph, rounded.floats, weight) for _ in range(2))
            slots[rounded.floats] = BlockSlots(rounded.storage, slot, grids)
            roundings |= {slot: rounded.rounded, grids: rounded.rounded}
    for slot, layout in pack_blocks(graph, slots, wide).items():
        with graph.inserting_before(slot):
            slot.replace_all_uses_with(layout.spell(build.call, roundings[slot]))


def _slot(graph: fx.Graph, low: fx.Node, weight: fx.Node) -> fx.Node:
    """A stand-in node for a packed weight until its layout is known."""
    with graph.inserting_after(low):
        slot = graph.call_function(PACK_MATRIX, (weight,))
    slot.meta = {"val": low.meta["val"]}
    return slot


def constants_of(graph: fx.Graph) -> Iterator[fx.Node]:
    """The FP32 CPU weights that Inductor will freeze (not mutated, without output views), and
    constants.
    """
    yield from filter(_is_fp32, graph.find_nodes(op="get_attr"))
    context = TracingContext.try_get()
    frozen = None if context is None else context.params_flat_unwrap_subclasses
    if frozen is None:
        return
    may_change = inputs_that_may_change(graph)
    for node in graph.find_nodes(op="placeholder")[: len(frozen)]:
        if node not in may_change and _is_fp32(node):
            yield node


def inputs_that_may_change(graph: fx.Graph) -> set[fx.Node]:
    """The inputs of a graph that it writes to, and those that the caller gets a view of."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return set()
    written = (MutationType.MUTATED_IN_GRAPH, MutationType.MUTATED_OUT_GRAPH)
    places = {output.base_idx for output in metadata.output_info if output.base_idx is not None}
    places |= {
        place for place, info in enumerate(metadata.input_info) if info.mutation_type in written
    }
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    return {node for place, node in inputs if place in places}


def _is_fp32(node: fx.Node) -> bool:
    """Whether a node is an FP32 tensor on the CPU."""
    value = tensor_of(node)
    return value is not None and value.dtype is torch.float32 and value.device.type == "cpu"


def made_of(graph: fx.Graph, constants: set[fx.Node]) -> set[fx.Node]:
    """The constants, and the nodes that depend only on constants and draw no random numbers."""
    dependents = set(constants)
    for node in graph.nodes:
        operands = node.all_input_nodes
        is_call = node.op == "call_function" and _is_deterministic(node.target)
        if is_call and operands and dependents.issuperset(operands):
            dependents.add(node)
    return dependents


def _is_deterministic(target: object) -> bool:
    if isinstance(target, OpOverload):
        return torch.Tag.nondeterministic_seeded not in target.tags
    return target is getitem


def _fold(
    build: CallInserter, product: fx.Node, weight: fx.Node, layout: Packed, constants: set[fx.Node]
) -> bool:
    """Fold channel scalings after a matmul or convolution into it; False if there are none."""
    bias: Any = product.args[2]
    start = widened(product)
    if start is None or (bias is not None and bias not in constants):
        return False
    if layout.dtype is not torch.bfloat16:  # scaling by a tiny variance may overflow FP16
        return False
    scaling = _scaling(build, product, start, weight, constants)
    if scaling is None:
        return False
    with build.graph.inserting_before(scaling.end):
        source = _scaled(build, weight, layout.channel_axis, scaling)
        shift = _shifted(build, bias, scaling, _channels(product))
        packed = layout.spell(build.call, source)
        fused = build.graph.call_function(
            product.target, (product.args[0], packed, shift, *product.args[3:])
        )
        fused.meta = dict(product.meta)
        scaling.end.replace_all_uses_with(retraced(build.graph, product, start, fused))
    build.graph.eliminate_dead_code()
    return True


def fold_into_int8(graph: fx.Graph) -> None:
    """Fold channel scalings after INT8 products into their constant weights: the integers stay, up
    to their sign, and the scales of channels change. Nothing else is fused into the products yet.
    """
    build, constants = CallInserter(graph), made_of(graph, set(constants_of(graph)))
    for product in [node for node in graph.nodes if node.target in INT8_PRODUCTS]:
        arguments = arguments_of(product)
        packed, scales, bias = (arguments[name] for name in ("packed", "scales", "bias"))
        if not constants.issuperset((packed, scales)) or (bias and bias not in constants):
            continue
        scaling = _scaling(build, product, product, scales, constants)
        if scaling is None:
            continue
        with graph.inserting_before(scaling.end):
            if scaling.scale is not None:
                weight = _scaled(build, packed.args[0], 0, scaling)
                sizes = build.call(_ATEN.abs.default, scaling.scale)
                scales = build.call(
                    _ATEN.clamp_min.default, build.call(_MUL, scales, sizes), _LEAST
                )
                arguments["packed"] = build.call(packed.target, weight, scales, *packed.args[2:])
                arguments["scales"] = scales
            arguments["bias"] = _shifted(build, bias, scaling, _channels(product))
            folded = build.call(product.target, *arguments.values())
        scaling.end.replace_all_uses_with(folded)
    graph.eliminate_dead_code()


def _scaled(build: CallInserter, weight: fx.Node, axis: int, scaling: _Scaling) -> fx.Node:
    """A weight times the scale of each channel."""
    if scaling.scale is None:
        return weight
    shape = [-1 if place == axis else 1 for place in range(weight.meta["val"].dim())]
    return build.call(_MUL, weight, build.call(_ATEN.reshape.default, scaling.scale, shape))


def _shifted(
    build: CallInserter, bias: fx.Node | None, scaling: _Scaling, channels: int
) -> fx.Node | None:
    """The bias that scales and shifts as a scaling does."""
    shift = scaling.shift
    if bias is not None:
        bias = build.call(CAST, bias, torch.float32)
        bias = bias if scaling.scale is None else build.call(_MUL, bias, scaling.scale)
        shift = bias if shift is None else build.call(_ADD, bias, shift)
    return None if shift is None else build.call(_ATEN.expand.default, shift, [channels])


def _scaling(
    build: CallInserter, product: fx.Node, start: fx.Node, weight: fx.Node, constants: set[fx.Node]
) -> _Scaling | None:
    """The chain of channel scalings after an output, each the only user of the previous one."""
    end, scale, shift = start, None, None
    scalings: list[tuple[fx.Node, Any]] = []
    while len(end.users) == 1:
        (user,) = end.users
        other = _other(user, end)
        if user.target is _ATEN.clone.default:
            end = user
            continue
        if other is None or not _is_of_channels(product, start, other, constants):
            break
        scalings.append((user, other))
        end = user
    if not scalings:
        return None
    with build.graph.inserting_before(end):
        for user, other in scalings:
            vector = _flat(build, other, weight)
            if user.target is _MUL:
                scale = vector if scale is None else build.call(_MUL, scale, vector)
                shift = shift if shift is None else build.call(_MUL, shift, vector)
            elif shift is None:
                shift = vector if user.target is _ADD else build.call(_ATEN.neg.default, vector)
            else:
                shift = build.call(user.target, shift, vector)
    return _Scaling(end, scale, shift)


def _other(user: fx.Node, value: fx.Node) -> Any:
    """The other operand of a scaling; None if the node is not a scaling."""
    if user.target not in (_MUL, _ADD, _SUB) or user.kwargs or len(user.args) != 2:
        return None
    left, right = user.args
    if left is value:
        return None if right is value else right
    return None if user.target is _SUB else left


def _is_of_channels(product: fx.Node, start: fx.Node, other: Any, constants: set[fx.Node]) -> bool:
    """Whether an operand is a number, or a constant with one value or one per channel."""
    if not isinstance(other, fx.Node):
        return isinstance(other, int | float)
    if other not in constants:
        return False
    value, rank = tensor_of(other), start.meta["val"].dim()
    if value is None or value.dtype is not torch.float32 or value.dim() > rank:
        return False
    sizes: Sequence[Any] = [1] * (rank - value.dim()) + list(value.shape)
    axis = 1 if product.target in (CONVOLUTION, INT8_CONVOLUTION) else rank - 1
    return all(size == 1 for place, size in enumerate(sizes) if place != axis) and sizes[axis] in (
        1,
        _channels(product),
    )


def _channels(product: fx.Node) -> int:
    shape = product.meta["val"].shape
    size: int = shape[1] if product.target in (CONVOLUTION, INT8_CONVOLUTION) else shape[-1]
    return size


def _flat(build: CallInserter, other: Any, like: fx.Node) -> fx.Node:
    """An operand as a vector."""
    if isinstance(other, fx.Node):
        return build.call(_ATEN.reshape.default, other, [-1])
    return build.call(_ATEN.new_full.default, like, [1], float(other))  # so that Inductor folds it
