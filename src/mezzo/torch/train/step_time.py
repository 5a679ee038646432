"""Estimated time of a step's matmuls and convolutions, in bytes that memory moves meanwhile.

The more a device computes while it moves a byte, the less room a step has for recomputation.
Source: measured steps and bandwidths of the CPUs in docs/figures/machines.md give 15 to 35 flops
per byte; data sheets of A100 and H100 give 156 and 295 in BF16.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import dialect_and_op
from mezzo.aten.read.read import facts_of, nominal_shape
from mezzo.tables.facts import Cost
from mezzo.torch.train.joint_nodes import bytes_of, is_product

_CPU_FLOPS_PER_BYTE = 16
_GPU_FLOPS_PER_BYTE = 200


def step_time_bytes(nodes: Iterable[fx.Node]) -> float:
    """What a step takes for its heavy operators, and to read and write their operands."""
    return sum(_product_time_bytes(node) for node in nodes if is_product(node))


def _product_time_bytes(node: fx.Node) -> float:
    outside = sum(map(bytes_of, (node, *node.all_input_nodes)))
    operands = map(tensor_of, node.all_input_nodes)
    is_on_cpu = any(one is not None and one.device.type == "cpu" for one in operands)
    return _flops(node) / (_CPU_FLOPS_PER_BYTE if is_on_cpu else _GPU_FLOPS_PER_BYTE) + outside


def _flops(node: fx.Node) -> int:
    """Floating-point operations of a matmul or convolution; 0 of others, as PyTorch's formulas for
    attention reject some shapes.
    """
    target: Any = node.target
    row = facts_of(*dialect_and_op(target, facts_of))
    formula = flop_registry.get(getattr(target, "overloadpacket", None))
    if row is None or row.cost is not Cost.LINEAR or formula is None:
        return 0
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: _shape(operand.meta["val"]))
    value = node.meta["val"]
    result = tuple(map(_shape, value)) if isinstance(value, tuple | list) else _shape(value)
    return int(formula(*args, **kwargs, out_val=result))


def _shape(value: object) -> object:
    return nominal_shape(value) if isinstance(value, torch.Tensor) else value
