"""Activations become part of the products before them: oneDNN applies them to its FP32 sums, before these are rounded.

What an activation looks like in a graph is asked of PyTorch: each is traced as Inductor takes it apart.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.onednn.kernels import CONVOLUTION, LINEAR, NOTHING, After

_ATEN: Any = torch.ops.aten
_SHAPES = frozenset({_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default, _ATEN.squeeze.dim})
_SAME = _SHAPES | {_ATEN.clone.default}
_COMMUTE = frozenset({_ATEN.mul.Tensor, _ATEN.add.Tensor})
# Numbers of one formula that people write with more or fewer digits.
_DIGITS = 5


def _gelu_by_tanh(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _gelu_of_gpt2(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def _silu_by_gate(x: Any) -> Any:
    return x * torch.sigmoid(x)


_WRITTEN: tuple[tuple[Callable[[Any], Any], After], ...] = (
    (_ATEN.relu, After("relu", "")),
    (_ATEN.gelu, After("gelu", "none")),
    (_gelu_by_tanh, After("gelu", "tanh")),
    (_gelu_of_gpt2, After("gelu", "tanh")),
    (_ATEN.silu, After("swish", "")),
    (_silu_by_gate, After("swish", "")),
    (_ATEN.sigmoid, After("sigmoid", "")),
    (_ATEN.tanh, After("tanh", "")),
)


class _Found(NamedTuple):
    """An activation behind a product: the casts to low precision that alone read what it makes, and which it is."""

    casts: tuple[fx.Node, ...]
    after: After


def fuse(graph: fx.Graph) -> int:
    """Move activations into the products of packed weights that they follow; returns how many."""
    count = 0
    for product in [node for node in graph.nodes if node.target in (LINEAR, CONVOLUTION)]:
        found = _behind(product)
        if found is None:
            continue
        count += 1
        product.args = (*product.args[: -len(NOTHING)], *found.after)
        for cast in found.casts:
            _read_directly(graph, product, cast)
    if count:
        graph.eliminate_dead_code()
    return count


def _read_directly(graph: fx.Graph, product: fx.Node, cast: fx.Node) -> None:
    """Let the readers of a cast read the product, in the shape that the cast's operand had."""
    with graph.inserting_before(cast):
        made = retraced(graph, product, cast, product)
    cast.replace_all_uses_with(made)


def retraced(graph: fx.Graph, start: fx.Node, end: fx.Node, by: fx.Node) -> fx.Node:
    """What changes the shape of a value, and casts to FP32, from where it is made to an end, done to another in its
    place; what is done to its numbers on the way is not done again.
    """
    steps: list[fx.Node] = []
    node = end
    while node is not start:
        steps.append(node)
        node = node.all_input_nodes[0]
    made = by
    for step in reversed(steps):
        if step.target in _SHAPES or (step is end and is_cast(step, torch.float32)):
            dtype = torch.float32 if step is end else made.meta["val"].dtype
            made = graph.call_function(step.target, (made, *step.args[1:]))
            made.meta = {**step.meta, "val": step.meta["val"].to(dtype)}
    return made


def _behind(product: fx.Node) -> _Found | None:
    """The activation whose answer alone is read of a product, in its low precision alone."""
    start = widened(product)
    if start is None:
        return None
    spelled: dict[fx.Node, Any] = {start: "x"}
    waiting = list(start.users)
    while waiting:
        node = waiting.pop(0)
        form = _spelled(node, spelled)
        if node in spelled or form is None:
            continue
        spelled[node] = form
        after = _activations().get(form)
        if after is not None and _is_all(node, start, spelled):
            casts = tuple(_casts(node, product.meta["val"].dtype))
            return _Found(casts, after) if casts and None not in casts else None
        waiting += node.users
    return None


def widened(product: fx.Node) -> fx.Node | None:
    """The product's answer in FP32, where that alone is read of it."""
    node = product
    while len(node.users) == 1:
        (node,) = node.users
        if node.target is CAST:
            return node if is_cast(node, torch.float32) else None
        if node.target not in _SAME:
            return None
    return None


def _is_all(node: fx.Node, start: fx.Node, spelled: Mapping[fx.Node, Any]) -> bool:
    """Whether nothing of what leads from a start to a node is read elsewhere."""
    inside = {node}
    for one in reversed(list(spelled)):  # readers come later
        if any(user in inside for user in one.users):
            inside.add(one)
    return start in inside and all(set(one.users) <= inside for one in inside if one is not node)


def _casts(node: fx.Node, dtype: torch.dtype) -> Iterator[fx.Node | None]:
    """The casts to low precision that end each way from a node; None for a way that ends in something else."""
    for user in node.users:
        if user.target is CAST:
            yield user if is_cast(user, dtype) else None
        elif user.target in _SAME:
            yield from _casts(user, dtype)
        else:
            yield None


def _spelled(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """A node as a formula of what is known: operators' names, formulas, numbers. None where it reads anything else."""
    if node.op != "call_function" or node.kwargs or not node.all_input_nodes:
        return None
    if node.target is _ATEN.clone.default:
        return known.get(node.all_input_nodes[0])
    parts = []
    for given in node.args:
        if isinstance(given, fx.Node):
            if given not in known:
                return None
            parts.append(known[given])
        elif isinstance(given, int | float):
            parts.append(f"{given:.{_DIGITS}g}")
        else:
            return None
    if node.target in _COMMUTE:
        parts.sort(key=repr)
    return (str(node.target), *parts)


@functools.cache
def _activations() -> Mapping[Any, After]:
    """Formulas of activations, and what oneDNN calls them."""
    found: dict[Any, After] = {}
    table = select_decomp_table()
    for written, after in _WRITTEN:
        with _disable_current_modes():
            traced = make_fx(written, decomposition_table=table)(torch.ones(2))
        known: dict[fx.Node, Any] = {}
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                known[node] = "x"
            elif node.op == "call_function":
                known[node] = _spelled(node, known)
        (last,) = next(node for node in traced.graph.nodes if node.op == "output").all_input_nodes
        found[known[last]] = after
    return found
