"""Exceptions of CPU kernels that schemas and fake tensors do not show, each with its reason."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import fx

from mezzo.aten.program import packet_of, tensor_of

_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu"
_BACKWARD_FOR_CPU = "_scaled_dot_product_flash_attention_for_cpu_backward"
_ON_CPU = "scaled_dot_product_attention"
# Arguments that keep their type, by operator. An FP32 mask's lowest number becomes minus infinity
# in BF16, so that a fully masked row yields NaN; CPU kernels accept an FP32 mask with low-precision
# operands. The logsumexp is FP32 for any operand type.
_STAYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        _FOR_CPU: frozenset({"attn_mask"}),
        _BACKWARD_FOR_CPU: frozenset({"attn_mask", "logsumexp"}),
        _ON_CPU: frozenset({"attn_mask"}),
    }
)
# Operators with facts that pass fake execution in low precision but lack a CPU kernel: "not
# implemented for 'BFloat16'".
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
# oneDNN's LSTM, as which PyTorch compiles LSTMs on every CPU. In BF16 it raises "could not create a
# primitive descriptor" where oneDNN does not support that; in FP16 PyTorch does not use it.
_ONEDNN_LSTM = "mkldnn_rnn_layer"


def lacks_kernel(node: fx.Node, low: torch.dtype) -> bool:
    """Whether a call lacks a kernel of a low dtype on its device, despite passing fake execution.
    For oneDNN's LSTM, it depends on this machine's CPU.
    """
    op = packet_of(node.target)
    if op == _ONEDNN_LSTM:
        return low is not torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return op in _WITHOUT_LOW_KERNEL and _is_on_cpu(node)


def stays(node: fx.Node, argument: str) -> bool:
    """Whether an operand keeps its type in any precision of the call."""
    fixed_arguments = _STAYS.get(packet_of(node.target), frozenset())
    return argument in fixed_arguments and _is_on_cpu(node)


def _is_on_cpu(node: fx.Node) -> bool:
    tensors = map(tensor_of, node.all_input_nodes)
    return all(tensor.device.type == "cpu" for tensor in tensors if tensor is not None)
