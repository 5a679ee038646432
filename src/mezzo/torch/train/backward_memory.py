"""Peak memory of the backward: stores waiting values in low precision in place of FP32.

Inductor fuses the conversions of several weight gradients into one kernel, which runs after the
last of them: until then matmul outputs and all their inputs stay alive. It also sums rows in a
separate loop, so that operands of FP32 sums are written in FP32, twice the bytes that matmuls read.
docs/figures/pytorch-training.md has the effect of both on peaks.
"""

from collections.abc import Collection, Iterator
from operator import getitem
from typing import Any

import torch
from torch import fx

from mezzo.aten.program import torch_dtype_of
from mezzo.aten.read.groups import is_view
from mezzo.aten.read.retype import CAST, is_cast, is_laid_out_alike
from mezzo.formats.dtypes import HIGH
from mezzo.tables.policy import Category
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import inductor_config
from mezzo.torch.train.joint import backward_of
from mezzo.torch.train.joint_nodes import is_product, readers

_SUM: Any = torch.ops.aten.sum.dim_IntList


def _widened(low: Any, after: Any) -> Any:
    return low.float()


def _fake_widened(low: Any, after: Any) -> Any:
    return torch.empty_like(low, dtype=torch.float32)


WIDENED: Any = define("widened(Tensor low, Tensor after) -> Tensor", _widened, _fake_widened)


def convert_apart(graph: fx.Graph, device: str) -> int:
    """Convert returned gradients to FP32 in separate calls, after the last one is computed.

    No FP32 gradient is then alive along with inputs of pending matmuls. Results are unchanged.
    Skipped on other devices, whose kernels do not fuse unrelated conversions, and with autotuned
    matmuls, which convert themselves. Returns the number of conversions.
    """
    if device != "cpu" or inductor_config.max_autotune or inductor_config.max_autotune_gemm:
        return 0
    backward_nodes, end = backward_of(graph), graph.output_node()
    casts = [node for node in graph.nodes if node in backward_nodes and _is_gradient_widened(node)]
    low_gradients = {cast.args[0] for cast in casts}
    last = next((node for node in reversed(graph.nodes) if node in low_gradients), None)
    for cast in casts:
        views = [user for user in readers(cast, is_view) if user is not end]
        with graph.inserting_before(end):
            converted = CallInserter(graph, cast).call(WIDENED, cast.args[0], last)
        for view in views:
            end.prepend(view)
        cast.replace_all_uses_with(converted)
        graph.erase_node(cast)
    return len(casts)


def round_once(planned: RewrittenGraph, low: torch.dtype) -> None:
    """Share a single rounded form of each backward value among all users that round it.

    Casts yield the same values. Sums use it too, in place of the FP32 value, and still accumulate
    and output FP32. This applies to sums only if the value has no other FP32 users, so that it need
    not be stored in FP32; if the policy allows low precision; and in a format with FP32's exponent
    range, since FP16 would flush small gradients.
    """
    reaches_as_far = torch.finfo(low).smallest_normal <= torch.finfo(torch.float32).smallest_normal
    free_sums = frozenset(_free_sums(planned)) if reaches_as_far else frozenset()
    backward_nodes = planned.reading.program.backward
    for producer in [
        node
        for node in planned.result.program.graph.nodes
        if node in backward_nodes and _is_made_in_fp32(node)
    ]:
        users = [user for user in readers(producer, is_view) if not is_view(user)]
        casts = [user for user in users if is_cast(user, low)]
        sums = [user for user in users if user in free_sums]
        if casts and sums and len(casts) + len(sums) == len(users):
            _read_rounded(producer, low, sums, casts)
        elif len(casts) > 1:
            _read_rounded(producer, low, (), casts)


def _is_made_in_fp32(node: fx.Node) -> bool:
    """Whether a call produces a new FP32 tensor, not a view."""
    is_wide = torch_dtype_of(node) is torch.float32
    return is_wide and node.op == "call_function" and not is_view(node)


def _free_sums(planned: RewrittenGraph) -> Iterator[fx.Node]:
    """FP32 sums of the backward that the policy allows in low precision."""
    backward_nodes = planned.reading.program.backward
    for node, call in planned.calls():
        may_be_low = node.precision.compute is HIGH and node.category is Category.ALLOW
        if (
            may_be_low
            and call in backward_nodes
            and call.target is _SUM
            and call.meta["val"].dtype is torch.float32
        ):
            yield call


def _read_rounded(
    producer: fx.Node, low: torch.dtype, sums: Collection[fx.Node], casts: Collection[fx.Node]
) -> None:
    """Round a value directly after its producer, for use by its casts and sums."""
    graph = producer.graph
    with graph.inserting_after(producer):
        rounded = CallInserter(graph, producer).call(CAST, producer, low)
    if not is_laid_out_alike(rounded.meta["val"], producer.meta["val"]):
        graph.erase_node(rounded)  # with other strides, views may fail
        return
    for cast in casts:
        with graph.inserting_before(cast):
            replacement = _seen_as(cast.args[0], producer, rounded)
        cast.replace_all_uses_with(replacement)
        graph.erase_node(cast)
    for total in sums:
        with graph.inserting_before(total):
            operand = _seen_as(total.args[0], producer, rounded)
            replacement = CallInserter(graph, total).call(
                _SUM, operand, *total.args[1:], dtype=torch.float32
            )
        total.replace_all_uses_with(replacement)
        graph.erase_node(total)


def _seen_as(view: Any, producer: fx.Node, replacement: fx.Node) -> fx.Node:
    """Replay a chain of views on another node."""
    if view is producer:
        return replacement
    source = _seen_as(view.args[0], producer, replacement)
    return CallInserter(view.graph, view).call(view.target, source, *view.args[1:], **view.kwargs)


def _maker(node: Any) -> Any:
    """The producer of a value, behind views and getitems."""
    while node.target is getitem or is_view(node):
        node = node.args[0]
    return node


def _is_gradient_widened(node: fx.Node) -> bool:
    """Whether a call converts a low matmul output to FP32 only for the graph's output."""
    if not is_cast(node, torch.float32) or not is_product(_maker(node.args[0])):
        return False
    is_returned = all(user.op == "output" or is_view(user) for user in readers(node, is_view))
    return is_returned and len(node.args[0].users) == 1
