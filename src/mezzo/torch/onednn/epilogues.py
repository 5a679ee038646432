"""Epilogue fusion of activations into packed oneDNN matmuls and convolutions, before rounding.

Patterns come from tracing each activation with Inductor's decompositions.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from mezzo.aten.read.retype import CAST, is_cast
from mezzo.torch.onednn.kernels import CONVOLUTION, LINEAR, NOTHING, After
from mezzo.torch.torch_internals import select_decomp_table, without_modes

_ATEN: Any = torch.ops.aten
SHAPES = frozenset(
    {_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default, _ATEN.squeeze.dim}
)
SAME = SHAPES | {_ATEN.clone.default}
_COMMUTE = frozenset({_ATEN.mul.Tensor, _ATEN.add.Tensor})
# Significant digits compared in constants, which authors write with more or fewer digits.
_DIGITS = 5


def _gelu_by_tanh(x: Any) -> Any:
    return F.gelu(x, approximate="tanh")


def _gelu_of_gpt2(x: Any) -> Any:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def _silu_by_gate(x: Any) -> Any:
    return x * torch.sigmoid(x)


def _relu6(x: Any) -> Any:
    return F.relu6(x)


_WRITTEN: tuple[tuple[Callable[[Any], Any], After], ...] = (
    (_ATEN.relu, After("relu", "")),
    (_ATEN.gelu, After("gelu", "none")),
    (_gelu_by_tanh, After("gelu", "tanh")),
    (_gelu_of_gpt2, After("gelu", "tanh")),
    (_ATEN.silu, After("swish", "")),
    (_silu_by_gate, After("swish", "")),
    (_ATEN.sigmoid, After("sigmoid", "")),
    (_ATEN.tanh, After("tanh", "")),
    (_relu6, After("hardtanh", "")),
    (_ATEN.hardswish, After("hardswish", "")),
)
_OF_FLOATS = frozenset({"gelu", "relu", "sigmoid", "swish", "tanh"})


class _Found(NamedTuple):
    """An activation after a matmul or convolution, and its only users: casts to low precision."""

    casts: tuple[fx.Node, ...]
    after: After


def fuse(graph: fx.Graph) -> int:
    """Fuse activations into the packed matmuls and convolutions before them; returns the count."""
    count = 0
    for product in [node for node in graph.nodes if node.target in (LINEAR, CONVOLUTION)]:
        activation = _behind(product)
        if activation is None:
            continue
        count += 1
        product.args = (*product.args[: -len(NOTHING)], *activation.after)
        for cast in activation.casts:
            _read_directly(graph, product, cast)
    if count:
        graph.eliminate_dead_code()
    return count


def _read_directly(graph: fx.Graph, product: fx.Node, cast: fx.Node) -> None:
    """Replace a cast by the fused output, in the shape of the cast's operand."""
    with graph.inserting_before(cast):
        replacement = retraced(graph, product, cast, product)
    cast.replace_all_uses_with(replacement)


def retraced(graph: fx.Graph, start: fx.Node, end: fx.Node, by: fx.Node) -> fx.Node:
    """Replay the reshapes and FP32 casts between two nodes on another value, without arithmetic."""
    steps: list[fx.Node] = []
    node = end
    while node is not start:
        steps.append(node)
        node = node.all_input_nodes[0]
    value = by
    for step in reversed(steps):
        if step.target in SHAPES or (step is end and is_cast(step, torch.float32)):
            dtype = torch.float32 if step is end else value.meta["val"].dtype
            value = graph.call_function(step.target, (value, *step.args[1:]))
            value.meta = {**step.meta, "val": step.meta["val"].to(dtype)}
    return value


def _behind(product: fx.Node) -> _Found | None:
    """The activation that is an output's only use and itself used only in low precision."""
    start = widened(product)
    found = None if start is None else activation_of(start)
    if found is None or found[1].name not in _OF_FLOATS:
        return None
    end, after = found
    casts = tuple(_casts(end, product.meta["val"].dtype))
    return _Found(casts, after) if casts and None not in casts else None


def activation_of(start: fx.Node) -> tuple[fx.Node, After] | None:
    """The activation that is a value's only use, with its last node."""
    formulas: dict[fx.Node, Any] = {start: "x"}
    pending = list(start.users)
    while pending:
        node = pending.pop(0)
        formula = _spelled(node, formulas)
        if node in formulas or formula is None:
            continue
        formulas[node] = formula
        after = _activations().get(formula)
        if after is not None and _is_all(node, start, formulas):
            return node, after
        pending += node.users
    return None


def widened(product: fx.Node) -> fx.Node | None:
    """The FP32 cast of an output, if that is its only use."""
    node = product
    while len(node.users) == 1:
        (node,) = node.users
        if node.target is CAST:
            return node if is_cast(node, torch.float32) else None
        if node.target not in SAME:
            return None
    return None


def _is_all(node: fx.Node, start: fx.Node, formulas: Mapping[fx.Node, Any]) -> bool:
    """Whether no value between `start` and `node` has other users."""
    inside = {node}
    for formula_node in reversed(list(formulas)):  # users come later
        if any(user in inside for user in formula_node.users):
            inside.add(formula_node)
    return start in inside and all(
        set(member.users) <= inside for member in inside if member is not node
    )


def _casts(node: fx.Node, dtype: torch.dtype) -> Iterator[fx.Node | None]:
    """The casts to low precision at the end of each path; None for other ends."""
    for user in node.users:
        if user.target is CAST:
            yield user if is_cast(user, dtype) else None
        elif user.target in SAME:
            yield from _casts(user, dtype)
        else:
            yield None


def _spelled(node: fx.Node, formulas: Mapping[fx.Node, Any]) -> Any:
    """A node as nested tuples of operators, constants and known formulas; else None."""
    if node.op != "call_function" or node.kwargs or not node.all_input_nodes:
        return None
    if node.target is _ATEN.clone.default:
        return formulas.get(node.all_input_nodes[0])
    parts = []
    for argument in node.args:
        if isinstance(argument, fx.Node):
            if argument not in formulas:
                return None
            parts.append(formulas[argument])
        elif isinstance(argument, int | float):
            parts.append(f"{argument:.{_DIGITS}g}")
        else:
            return None
    if node.target in _COMMUTE:
        parts.sort(key=repr)
    return (str(node.target), *parts)


@functools.cache
def _activations() -> Mapping[Any, After]:
    """oneDNN's activations by their formulas."""
    activations: dict[Any, After] = {}
    table = select_decomp_table()
    for function, after in _WRITTEN:
        with without_modes():
            traced = make_fx(function, decomposition_table=table)(torch.ones(2))
        formulas: dict[fx.Node, Any] = {}
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                formulas[node] = "x"
            elif node.op == "call_function":
                formulas[node] = _spelled(node, formulas)
        (last,) = next(node for node in traced.graph.nodes if node.op == "output").all_input_nodes
        activations[formulas[last]] = after
    return activations
