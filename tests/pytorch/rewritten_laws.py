"""What a rewritten graph says that its nodes make is what PyTorch makes of them: types, sizes, strides, and memory.
What regions ask for is what its operators run in.

Compilers decide by it what they may leave out (a clone of what has its strides already) and what they may write over.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from mezzo.aten.marks import KEY
from mezzo.aten.program import Program, attribute_of
from mezzo.aten.read.retype import fake_mode_of, run_fake
from mezzo.formats.dtypes import HIGH
from mezzo.ir.nodes import Kind
from mezzo.torch.compiler.rewriting import RewrittenGraph

tree_leaves = torch.utils._pytree.tree_leaves


def stale(program: Program) -> list[str]:
    """Nodes of a graph that make something else than they say, each with both."""
    mode = fake_mode_of(program.graph)
    made: dict[fx.Node, Any] = {}
    found = []
    for node in program.graph.nodes:
        if node.op == "get_attr":
            made[node] = attribute_of(program.owner, node)
        elif node.op == "placeholder":
            made[node] = node.meta["val"]
        elif node.op == "call_function":
            made[node] = _made(mode, node, program, made)
            says, makes = _layouts(node.meta.get("val")), _layouts(made[node])
            if says != makes:
                found.append(f"{node.format_node()}: says {says}, makes {makes}")
    said = {node: node.meta["val"] for node in made if "val" in node.meta and node.op != "get_attr"}
    shared, sharing = _sharing(said), _sharing({node: made[node] for node in said})
    return found + [
        f"{node} shares memory with {sharing[node]}, not {shared[node]}"
        for node in said
        if shared[node] != sharing[node]
    ]


def _made(mode: Any, node: fx.Node, program: Program, made: Mapping[fx.Node, Any]) -> Any:
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return run_fake(mode, node, program.owner, lambda one: made[one])
    return node.meta.get("val")  # what its bodies make is theirs to say


def _layouts(given: Any) -> list[Any]:
    return [
        (one.dtype, tuple(one.shape), tuple(one.stride())) if isinstance(one, torch.Tensor) else type(one)
        for one in tree_leaves(given)
    ]


def _sharing(given: Mapping[fx.Node, Any]) -> dict[fx.Node, list[str]]:
    """For each node the first nodes that have its memory."""
    first: dict[Any, str] = {}
    shared = {}
    for node, held in given.items():
        memory = [one.untyped_storage()._cdata for one in tree_leaves(held) if isinstance(one, FakeTensor)]
        shared[node] = [first.setdefault(one, node.name) for one in memory]
    return shared


def disobeyed(planned: RewrittenGraph) -> list[str]:
    """Operators of a graph, not of a body, that run in another format than the region around them asks for."""
    precisions = {node.name: node.precision.compute for node in planned.plan.nodes}
    (low,) = planned.reading.lows
    found = []
    for node, calls in zip(planned.reading.graph.nodes, planned.reading.calls, strict=True):
        word = (calls[0].meta.get("custom") or {}).get(KEY) if calls else None
        if word is None or node.kind is not Kind.OP or node.signature.dtype is not HIGH:
            continue
        is_low, is_asked = precisions[node.name] is low, str(word).rpartition(" ")[2] not in ("keep", "fp32")
        if is_low != (is_asked and low in node.signature.legal):
            found.append(f"{node.name} in {word!r} runs in {precisions[node.name]}")
    return found
