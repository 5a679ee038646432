"""Residual sums behind INT8 matmuls whose addend Inductor may not overwrite.

Frozen, Inductor (PyTorch 2.13) fuses `add(matmul, addend)` into an INT8 kernel that writes the sum
over the addend, an input or a constant of the program too: the next call reads the sum.
"""

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from mezzo.aten.edit.quantizing import DEQUANTIZE
from mezzo.aten.program import tensor_of
from mezzo.aten.read.origins import inherited

_ATEN: Any = torch.ops.aten


def protect_addends(graph: fx.Graph, inputs: Collection[fx.Node]) -> None:
    """Write a sum with an input, or with what depends on constants alone, as a difference from the
    negated addend: the same bits, and Inductor fuses no difference. `inputs`: those of the user.
    """
    constants: set[fx.Node] = set()
    for node in list(graph.nodes):
        operands = node.all_input_nodes
        if node not in inputs and node.op != "output" and constants.issuperset(operands):
            constants.add(node)
        if node.target is not _ATEN.add.Tensor or node.kwargs or len(operands) != 2:
            continue
        first, second = operands
        for matmul, addend in ((first, second), (second, first)):
            is_kept = addend in constants or addend in inputs
            if is_kept and _is_quantized(matmul) and _rank_of(matmul) == _rank_of(addend):
                with graph.inserting_before(node):
                    negated = graph.call_function(_ATEN.neg.default, (addend,))
                negated.meta = {**inherited(node), "val": -addend.meta["val"]}
                node.target, node.args = _ATEN.sub.Tensor, (matmul, negated)


def _is_quantized(node: fx.Node) -> bool:
    return any(operand.target in DEQUANTIZE for operand in node.all_input_nodes)


def _rank_of(node: fx.Node) -> int | None:
    value = tensor_of(node)
    return None if value is None else value.dim()
