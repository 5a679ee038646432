"""What freezing allows besides: weights are constants, so packing them and scaling filters is work of the compiler.

Inductor folds whatever is made of constants. What BatchNorm and other scalings of channels do behind a product becomes
part of its weight and bias, in FP32, before the weight is rounded: one rounding for two.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._functorch._aot_autograd.schemas import MutationType
from torch._guards import TracingContext

from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.compiler.building import Builder
from mezzo.torch.onednn.epilogues import retraced, widened
from mezzo.torch.onednn.kernels import CONVOLUTION, LINEAR, PACK_MATRIX
from mezzo.torch.weights.packing import pack
from mezzo.torch.weights.weight_layouts import Packed

_ATEN: Any = torch.ops.aten
_MUL, _ADD, _SUB = _ATEN.mul.Tensor, _ATEN.add.Tensor, _ATEN.sub.Tensor


class _Scaling(NamedTuple):
    """What is done to the channels of a product's answer: `end` makes answer * scale + shift, both a tensor each."""

    end: fx.Node
    scale: fx.Node | None
    shift: fx.Node | None


def casts_of_constants(graph: fx.Graph) -> int:
    """Conversions that the compiler carries out, as they are of weights alone."""
    return sum(node.target is CAST for node in _made_of(graph, set(_constants(graph))))


def pack_constants(graph: fx.Graph, dtype: torch.dtype) -> None:
    """Let products of a graph that is about to be frozen read packed weights, and fold what scales their channels."""
    build, constants = Builder(graph), set(_constants(graph))
    wide = {cast: held for held in constants for cast in held.users if is_cast(cast, dtype)}
    slots = {low: _slot(graph, low, held) for low, held in wide.items() if held.meta["val"].dim() > 1}
    sources = {slot: wide[low] for low, slot in slots.items()}
    recipes = pack(graph, slots, wide)
    alone = _made_of(graph, constants)
    made: dict[fx.Node, fx.Node] = {}
    for product in [node for node in graph.nodes if node.target in (LINEAR, CONVOLUTION)]:
        slot: Any = product.args[1]
        if slot not in recipes or _fold(build, product, sources[slot], recipes[slot], alone):
            continue
        if slot not in made:
            with graph.inserting_before(slot):
                made[slot] = recipes[slot].spell(build.call, sources[slot])
        product.replace_input_with(slot, made[slot])
    graph.eliminate_dead_code()


def _slot(graph: fx.Graph, low: fx.Node, weight: fx.Node) -> fx.Node:
    """What stands for a packed weight until it is known how it is made."""
    with graph.inserting_after(low):
        made = graph.call_function(PACK_MATRIX, (weight,))
    made.meta = {"val": low.meta["val"]}
    return made


def _constants(graph: fx.Graph) -> Iterator[fx.Node]:
    """The FP32 weights on the CPU that Inductor will make constants: none that is written, or that an output is a view
    of.
    """
    context = TracingContext.try_get()
    about = None if context is None else context.fw_metadata
    if context is None or about is None or context.params_flat_unwrap_subclasses is None:
        return
    written = (MutationType.MUTATED_IN_GRAPH, MutationType.MUTATED_OUT_GRAPH)
    kept = {one.base_idx for one in about.output_info if one.base_idx is not None}
    kept |= {place for place, one in enumerate(about.input_info) if one.mutation_type in written}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for place, node in enumerate(inputs[: len(context.params_flat_unwrap_subclasses)]):
        held = node.meta["val"]
        is_plain = isinstance(held, torch.Tensor) and held.dtype is torch.float32 and held.device.type == "cpu"
        if place not in kept and is_plain:
            yield node


def _made_of(graph: fx.Graph, constants: set[fx.Node]) -> set[fx.Node]:
    """What is made of constants alone."""
    found = set(constants)
    for node in graph.nodes:
        operands = node.all_input_nodes
        if node.op == "call_function" and operands and all(one in found for one in operands):
            found.add(node)
    return found


def _fold(build: Builder, product: fx.Node, weight: fx.Node, recipe: Packed, alone: set[fx.Node]) -> bool:
    """Make scalings behind a product part of it. False where there are none."""
    bias: Any = product.args[2]
    start = widened(product)
    if start is None or (bias is not None and bias not in alone):
        return False
    if recipe.dtype is not torch.bfloat16:  # FP16 has no room for what a channel of no variance is scaled by
        return False
    found = _scaling(build, product, start, weight, alone)
    if found is None:
        return False
    with build.graph.inserting_before(found.end):
        shift, source = found.shift, weight
        if found.scale is not None:
            shape = [-1 if place == recipe.channel_axis else 1 for place in range(weight.meta["val"].dim())]
            source = build.call(_MUL, weight, build.call(_ATEN.reshape.default, found.scale, shape))
        if bias is not None:
            bias = build.call(CAST, bias, torch.float32)
            bias = bias if found.scale is None else build.call(_MUL, bias, found.scale)
            shift = bias if shift is None else build.call(_ADD, bias, shift)
        if shift is not None:
            shift = build.call(_ATEN.expand.default, shift, [_channels(product)])
        packed = recipe.spell(build.call, source)
        made = build.graph.call_function(product.target, (product.args[0], packed, shift, *product.args[3:]))
        made.meta = dict(product.meta)
        found.end.replace_all_uses_with(retraced(build.graph, product, start, made))
    build.graph.eliminate_dead_code()
    return True


def _scaling(build: Builder, product: fx.Node, start: fx.Node, weight: fx.Node, alone: set[fx.Node]) -> _Scaling | None:
    """The scalings that follow a product's answer one upon another, each the only reader of the last."""
    end, scale, shift = start, None, None
    steps: list[tuple[fx.Node, Any]] = []
    while len(end.users) == 1:
        (user,) = end.users
        other = _other(user, end)
        if user.target is _ATEN.clone.default:
            end = user
            continue
        if other is None or not _is_of_channels(product, start, other, alone):
            break
        steps.append((user, other))
        end = user
    if not steps:
        return None
    with build.graph.inserting_before(end):
        for user, other in steps:
            held = _flat(build, other, weight)
            if user.target is _MUL:
                scale = held if scale is None else build.call(_MUL, scale, held)
                shift = shift if shift is None else build.call(_MUL, shift, held)
            elif shift is None:
                shift = held if user.target is _ADD else build.call(_ATEN.neg.default, held)
            else:
                shift = build.call(user.target, shift, held)
    return _Scaling(end, scale, shift)


def _other(user: fx.Node, held: fx.Node) -> Any:
    """What a scaling does to a value; None where it is no scaling."""
    if user.target not in (_MUL, _ADD, _SUB) or user.kwargs or len(user.args) != 2:
        return None
    first, second = user.args
    if first is held:
        return None if second is held else second
    return None if user.target is _SUB else first


def _is_of_channels(product: fx.Node, start: fx.Node, other: Any, alone: set[fx.Node]) -> bool:
    """Whether an operand is a number, or constant and one for each channel."""
    if not isinstance(other, fx.Node):
        return isinstance(other, int | float)
    held, rank = other.meta.get("val"), start.meta["val"].dim()
    if other not in alone or not isinstance(held, torch.Tensor) or held.dtype is not torch.float32 or held.dim() > rank:
        return False
    sizes: Sequence[Any] = [1] * (rank - held.dim()) + list(held.shape)
    at = 1 if product.target is CONVOLUTION else rank - 1
    return all(size == 1 for place, size in enumerate(sizes) if place != at) and sizes[at] in (1, _channels(product))


def _channels(product: fx.Node) -> int:
    size: int = product.meta["val"].shape[1]
    return size


def _flat(build: Builder, other: Any, like: fx.Node) -> fx.Node:
    """An operand as a vector."""
    if isinstance(other, fx.Node):
        return build.call(_ATEN.reshape.default, other, [-1])
    return build.call(_ATEN.new_full.default, like, [1], float(other))  # of no constant the compiler makes none
