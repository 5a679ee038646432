"""The most that a backward holds at once: what would lie in FP32 waiting for its readers lies rounded instead.

Inductor writes conversions of several weights' gradients into one kernel, which runs when the last of them is there:
till then products wait, and all that they read. It sums rows in a loop of its own, so that what is summed in FP32 is
written in FP32, twice the bytes of what products beside it read. What both did to peaks is in docs/figures.md.
"""

from collections.abc import Collection, Iterator
from operator import getitem
from typing import Any

import torch
import torch._inductor.config
from torch import fx

from mezzo.aten.read.retype import CAST, is_cast, is_laid_out_alike
from mezzo.formats.dtypes import HIGH
from mezzo.tables.policy import Category
from mezzo.torch.compiler.building import Builder
from mezzo.torch.compiler.rewriting import Planned
from mezzo.torch.train.joint import backward_of
from mezzo.torch.train.rematerialization import is_product, is_view, readers

_LIBRARY = torch.library.Library("mezzo", "FRAGMENT")
_LIBRARY.define("widened(Tensor low, Tensor after) -> Tensor")
WIDENED: Any = torch.ops.mezzo.widened.default
_SUM: Any = torch.ops.aten.sum.dim_IntList


@torch.library.impl(_LIBRARY, "widened", "CompositeExplicitAutograd")
def _widened(low: Any, after: Any) -> Any:
    return low.float()


@torch.library.register_fake("mezzo::widened", lib=_LIBRARY)
def _fake_widened(low: Any, after: Any) -> Any:
    return torch.empty_like(low, dtype=torch.float32)


def convert_apart(graph: fx.Graph, device: str) -> int:
    """Let gradients that products make low, and that are returned in FP32, be converted by calls of their own, one by
    one when the last of them is there: none lies in FP32 beside what products still read. The numbers are the same.

    Other devices' kernels hold no conversions of tensors that have nothing in common, and products that are tuned
    convert by themselves. Returns how many there are.
    """
    if device != "cpu" or torch._inductor.config.max_autotune or torch._inductor.config.max_autotune_gemm:
        return 0
    late, end = backward_of(graph), next(reversed(graph.nodes))
    casts = [node for node in graph.nodes if node in late and _is_gradient_widened(node)]
    low_ones = {cast.args[0] for cast in casts}
    last = next((node for node in reversed(graph.nodes) if node in low_ones), None)
    for cast in casts:
        views = [user for user in readers(cast, is_view) if user is not end]
        with graph.inserting_before(end):
            apart = Builder(graph, cast).call(WIDENED, cast.args[0], last)
        for view in views:
            end.prepend(view)
        cast.replace_all_uses_with(apart)
        graph.erase_node(cast)
    return len(casts)


def round_once(planned: Planned, low: torch.dtype) -> None:
    """Let all who read a number of the backward rounded read one rounded form of it, or a view of that: the numbers are
    the same. Sums read it too, instead of what was rounded, and add up and hand on in FP32 as before.

    Sums only where nobody else reads the number in FP32, so that it need not be written; where the policy lets them run
    low; and in a format that reaches as far as FP32, as small gradients would be lost in FP16.
    """
    reaches_as_far = torch.finfo(low).smallest_normal <= torch.finfo(torch.float32).smallest_normal
    free_sums = frozenset(_free_sums(planned)) if reaches_as_far else frozenset()
    late = planned.reading.program.backward
    for maker in [node for node in planned.result.program.graph.nodes if node in late and _is_made_in_fp32(node)]:
        ends = [user for user in readers(maker, is_view) if not is_view(user)]
        casts = [user for user in ends if is_cast(user, low)]
        sums = [user for user in ends if user in free_sums]
        if casts and sums and len(casts) + len(sums) == len(ends):
            _read_rounded(maker, low, sums, casts)
        elif len(casts) > 1:
            _read_rounded(maker, low, (), casts)


def _is_made_in_fp32(node: fx.Node) -> bool:
    """Whether a call makes a number of its own, and in FP32."""
    held = node.meta.get("val")
    is_wide = isinstance(held, torch.Tensor) and held.dtype is torch.float32
    return is_wide and node.op == "call_function" and not is_view(node)


def _free_sums(planned: Planned) -> Iterator[fx.Node]:
    """Sums of the backward that run in FP32 and may run low."""
    late = planned.reading.program.backward
    for node, call in planned.calls():
        is_free = node.precision.compute is HIGH and node.category is Category.ALLOW
        if is_free and call in late and call.target is _SUM and call.meta["val"].dtype is torch.float32:
            yield call


def _read_rounded(maker: fx.Node, low: torch.dtype, sums: Collection[fx.Node], casts: Collection[fx.Node]) -> None:
    """Round a number once, right where it is made; let its conversions be views of that, and its sums read them."""
    graph = maker.graph
    with graph.inserting_after(maker):
        rounded = Builder(graph, maker).call(CAST, maker, low)
    if not is_laid_out_alike(rounded.meta["val"], maker.meta["val"]):
        graph.erase_node(rounded)  # views of it might be none
        return
    for cast in casts:
        with graph.inserting_before(cast):
            instead = _seen_as(cast.args[0], maker, rounded)
        cast.replace_all_uses_with(instead)
        graph.erase_node(cast)
    for one in sums:
        with graph.inserting_before(one):
            operand = _seen_as(one.args[0], maker, rounded)
            instead = Builder(graph, one).call(_SUM, operand, *one.args[1:], dtype=torch.float32)
        one.replace_all_uses_with(instead)
        graph.erase_node(one)


def _seen_as(view: Any, maker: fx.Node, instead: fx.Node) -> fx.Node:
    """The views by which a node is seen, of another node."""
    if view is maker:
        return instead
    seen = _seen_as(view.args[0], maker, instead)
    return Builder(view.graph, view).call(view.target, seen, *view.args[1:], **view.kwargs)


def _maker(node: Any) -> Any:
    """What makes a number, behind those that only hand it on."""
    while node.target is getitem or is_view(node):
        node = node.args[0]
    return node


def _is_gradient_widened(node: fx.Node) -> bool:
    """Whether a call makes FP32 of what a product makes low, and nobody but the caller reads either."""
    if not is_cast(node, torch.float32) or not is_product(_maker(node.args[0])):
        return False
    is_returned = all(user.op == "output" or is_view(user) for user in readers(node, is_view))
    return is_returned and len(node.args[0].users) == 1
