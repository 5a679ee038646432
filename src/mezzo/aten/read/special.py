"""What neither schemas nor fake tensors tell of ports: a row with its reason each."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import fx

from mezzo.aten.program import packet_of

_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"
_BACKWARD_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu_backward"
_ON_CPU = "scaled_dot_product_attention"
# Arguments that stay as they are, by operator. A mask of FP32's lowest number is minus infinity in BF16, and a row that
# is masked as a whole has no answer then; kernels of CPUs add an FP32 mask to their scores beside low operands. Their
# logarithms of sums are FP32 whatever the operands are.
_STAYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        _FOR_CPU: frozenset({"attn_mask"}),
        _BACKWARD_FOR_CPU: frozenset({"attn_mask", "logsumexp"}),
        _ON_CPU: frozenset({"attn_mask"}),
    }
)
# Known operators that fake tensors run low, and kernels of CPUs do not: "not implemented for 'BFloat16'".
_WITHOUT_LOW_KERNEL = frozenset(
    {
        "_cdist_backward",
        "_cdist_forward",
        "_fft_r2c",
        "_pdist_forward",
        "_upsample_bicubic2d_aa",
        "_upsample_bilinear2d_aa",
        "avg_pool3d",
        "cdist",
        "complex",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_margin_loss_forward",
        "pdist",
        "polar",
        "special_erfcx",
        "special_log_ndtr",
        "special_ndtri",
        "special_zeta",
        "stft",
    }
)


def lacks_kernel(node: fx.Node) -> bool:
    """Whether a call cannot run low where it runs, though fake tensors say that it can."""
    return packet_of(node.target) in _WITHOUT_LOW_KERNEL and _is_on_cpu(node)


def stays(node: fx.Node, argument: str) -> bool:
    """Whether an operand keeps its type whatever the call runs in."""
    kept = _STAYS.get(packet_of(node.target), frozenset())
    return argument in kept and _is_on_cpu(node)


def _is_on_cpu(node: fx.Node) -> bool:
    held = [one.meta.get("val") for one in node.all_input_nodes]
    return all(one.device.type == "cpu" for one in held if isinstance(one, torch.Tensor))
