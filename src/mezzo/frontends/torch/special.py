"""What neither schemas nor fake tensors tell of ports: a row with its reason each."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import fx

_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"
_ON_CPU = "scaled_dot_product_attention"
# Arguments that stay as they are, by operator. A mask of FP32's lowest number is minus infinity in BF16, and a row that
# is masked as a whole has no answer then; kernels of CPUs add an FP32 mask to their scores beside low operands.
_STAYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {_FOR_CPU: frozenset({"attn_mask"}), _ON_CPU: frozenset({"attn_mask"})}
)


def stays(node: fx.Node, argument: str) -> bool:
    """Whether an operand keeps its type whatever the call runs in."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    kept = _STAYS.get(node.target._schema.name.partition("::")[2], frozenset())
    return argument in kept and _is_on_cpu(node)


def _is_on_cpu(node: fx.Node) -> bool:
    held = [one.meta.get("val") for one in node.all_input_nodes]
    return all(one.device.type == "cpu" for one in held if isinstance(one, torch.Tensor))
