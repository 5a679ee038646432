"""Nodes of a joint graph: their bytes, readers and marks for Inductor's partitioner."""

from collections.abc import Callable, Iterator
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import dialect_and_op, is_view
from mezzo.aten.read.read import count_elements, facts_of
from mezzo.aten.read.retype import is_cast
from mezzo.tables.facts import HEAVY


def bytes_of(node: fx.Node) -> int:
    """The size of a node's tensor in bytes; symbolic sizes count with their hint from tracing."""
    tensor = tensor_of(node)
    return 0 if tensor is None else count_elements(tensor) * tensor.element_size()


def readers(node: fx.Node, is_seen_through: Callable[[fx.Node], bool]) -> Iterator[fx.Node]:
    """The users of a node, and transitively of those users that `is_seen_through` accepts."""
    for user in node.users:
        yield user
        if is_seen_through(user):
            yield from readers(user, is_seen_through)


def low_form(node: fx.Node, low: torch.dtype) -> fx.Node | None:
    """A value's conversion to the low type, if the graph has one."""
    return next((user for user in node.users if is_cast(user, low)), None)


def is_product(node: fx.Node) -> bool:
    """Whether a call is a heavy operator: a matmul, convolution, attention or the like."""
    row = facts_of(*dialect_and_op(node.target, facts_of)) if node.op == "call_function" else None
    return row is not None and row.cost in HEAVY


def is_kernel(node: fx.Node) -> bool:
    """Whether a call is not fused with others: a heavy operator, or one that no fact lists."""
    value: Any = node.meta.get("val")
    if node.op != "call_function" or node.target is getitem or is_view(node):
        return False
    if not isinstance(value, torch.Tensor | tuple | list):
        return False
    row = facts_of(*dialect_and_op(node.target, facts_of))
    return row is None or row.cost in HEAVY


def decide(node: fx.Node, policy: CheckpointPolicy) -> None:
    """Set the partitioner's policy for a node, unless the program's own checkpointing has."""
    if node.op == "call_function" and "recompute" not in node.meta:
        node.meta["recompute"], node.meta["ac_graph_id"] = policy, 0
