"""The policy `autocast` says of each operator what PyTorch's autocast does with it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import policies
from mezzo.reference import autocast
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
import torch.nn.functional as F

# Where a kernel of autocast stands without a list: it refuses the call.
_REFUSED = {"AutocastCUDA": {"aten:binary_cross_entropy"}, "AutocastCPU": set[str]()}
_LISTED = {
    "AutocastCUDA": autocast.CUDA_LOW | autocast.CUDA_FP32 | autocast.CUDA_WIDEST,
    "AutocastCPU": autocast.CPU_LOW | autocast.CPU_FP32 | autocast.CPU_WIDEST,
}


@pytest.mark.parametrize("device", list(_LISTED))
def test_operators_are_those_that_autocast_intercepts(device: str) -> None:
    intercepted = {
        "aten:" + name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, device)
    }
    assert intercepted - _REFUSED[device] == _LISTED[device]


def macro(name: str) -> set[str]:
    """The operators of a list in ATen's header."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    joined = header.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(rf"#define {name}\(_\)(.*)", joined)
    assert found is not None
    return {f"aten:{op}" for op in re.findall(r"_\((\w+)", found.group(1))}


def test_cuda_lists_are_those_of_the_header() -> None:
    high = macro("AT_FORALL_FP32") | macro("AT_FORALL_FP32_SET_OPT_DTYPE")
    # What the header leaves to the place where it registers kernels.
    assert macro("AT_FORALL_LOWER_PRECISION_FP") == autocast.CUDA_LOW - {
        "aten:cudnn_convolution",
        "aten:cudnn_convolution_transpose",
    }
    assert high | {"aten:norm"} == autocast.CUDA_FP32
    assert macro("AT_FORALL_PROMOTE") == autocast.CUDA_WIDEST


def drawn(low: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.rand(shape).to(low)


_Call = Callable[[torch.dtype], torch.Tensor]
_R, _P = drawn, F.pad
_IMAGE, _VOLUME = (1, 2, 4, 4), (1, 2, 4, 4, 4)
# Per ONNX operator, and what of its attributes decides: PyTorch's call for it.
CALLS: list[tuple[str, dict[str, Any], _Call]] = [
    ("AffineGrid", {}, lambda t: F.affine_grid(_R(t, 1, 2, 3), [1, 1, 4, 4], align_corners=False)),
    ("Acosh", {}, lambda t: torch.acosh(1 + _R(t, 4))),
    ("Add", {}, lambda t: _R(t, 4) + _R(t, 4)),
    ("Attention", {}, lambda t: F.scaled_dot_product_attention(*[_R(t, 1, 2, 4, 4)] * 3)),
    ("AveragePool", {"rank": 4}, lambda t: F.avg_pool2d(_R(t, *_IMAGE), 2)),
    ("AveragePool", {"rank": 5}, lambda t: F.avg_pool3d(_R(t, *_VOLUME), 2)),
    ("BatchNormalization", {}, lambda t: F.batch_norm(_R(t, *_IMAGE), torch.zeros(2), torch.ones(2))),
    ("Concat", {}, lambda t: torch.cat([_R(t, 4), _R(t, 4)])),
    ("Conv", {}, lambda t: F.conv2d(_R(t, *_IMAGE), _R(t, 2, 2, 1, 1))),
    ("ConvTranspose", {}, lambda t: F.conv_transpose2d(_R(t, *_IMAGE), _R(t, 2, 2, 1, 1))),
    ("CumProd", {}, lambda t: torch.cumprod(_R(t, 4), 0)),
    ("CumSum", {}, lambda t: torch.cumsum(_R(t, 4), 0)),
    ("DFT", {}, lambda t: torch.fft.fft(_R(t, 4)).real),
    ("Einsum", {}, lambda t: torch.einsum("ij,jk->ik", _R(t, 4, 4), _R(t, 4, 4))),
    ("Elu", {}, lambda t: F.elu(_R(t, 4))),
    ("Erf", {}, lambda t: torch.erf(_R(t, 4))),
    ("Exp", {}, lambda t: torch.exp(_R(t, 4))),
    ("Gelu", {}, lambda t: F.gelu(_R(t, 4))),
    ("Gemm", {}, lambda t: F.linear(_R(t, 4, 4), _R(t, 4, 4))),
    ("GlobalAveragePool", {"rank": 4}, lambda t: F.adaptive_avg_pool2d(_R(t, *_IMAGE), 1)),
    ("GlobalAveragePool", {"rank": 5}, lambda t: F.adaptive_avg_pool3d(_R(t, *_VOLUME), 1)),
    ("GlobalMaxPool", {"rank": 5}, lambda t: F.adaptive_max_pool3d(_R(t, *_VOLUME), 1)),
    ("GridSample", {}, lambda t: F.grid_sample(_R(t, 1, 1, 4, 4), _R(t, 1, 4, 4, 2), align_corners=False)),
    ("GroupNormalization", {}, lambda t: F.group_norm(_R(t, *_IMAGE), 2)),
    ("InstanceNormalization", {}, lambda t: F.instance_norm(_R(t, *_IMAGE))),
    ("LRN", {}, lambda t: F.local_response_norm(_R(t, *_IMAGE), 3)),
    ("LSTM", {}, lambda t: torch.nn.LSTM(4, 4)(_R(t, 2, 3, 4))[0]),
    ("LayerNormalization", {}, lambda t: F.layer_norm(_R(t, 4, 4), [4])),
    ("Log", {}, lambda t: torch.log(_R(t, 4))),
    ("LogSoftmax", {}, lambda t: F.log_softmax(_R(t, 4), 0)),
    ("LpNormalization", {}, lambda t: F.normalize(_R(t, 4, 4))),
    ("LpPool", {"rank": 4}, lambda t: F.lp_pool2d(_R(t, *_IMAGE), 2, 2)),
    ("LpPool", {"rank": 5}, lambda t: F.lp_pool3d(_R(t, *_VOLUME), 2, 2)),
    ("MatMul", {}, lambda t: _R(t, 4, 4) @ _R(t, 4, 4)),
    ("MaxPool", {"rank": 4}, lambda t: F.max_pool2d(_R(t, *_IMAGE), 2)),
    ("MaxPool", {"rank": 5}, lambda t: F.max_pool3d(_R(t, *_VOLUME), 2)),
    ("MaxUnpool", {}, lambda t: F.max_unpool2d(*F.max_pool2d(_R(t, *_IMAGE), 2, return_indices=True), 2)),
    ("Mul", {}, lambda t: _R(t, 4) * _R(t, 4)),
    ("NegativeLogLikelihoodLoss", {}, lambda t: F.nll_loss(_R(t, 4, 4), torch.arange(4))),
    ("PRelu", {}, lambda t: F.prelu(_R(t, 4, 4), _R(t, 1))),
    ("Pad", {"mode": "constant"}, lambda t: _P(_R(t, *_IMAGE), (1, 1, 1, 1))),
    ("Pad", {"mode": "edge"}, lambda t: _P(_R(t, *_IMAGE), (1, 1, 1, 1), mode="replicate")),
    ("Pad", {"mode": "reflect"}, lambda t: _P(_R(t, *_IMAGE), (1, 1, 1, 1), mode="reflect")),
    ("Pad", {"mode": "wrap"}, lambda t: _P(_R(t, *_IMAGE), (1, 1, 1, 1), mode="circular")),
    ("Pow", {}, lambda t: torch.pow(_R(t, 4), 2)),
    ("RMSNormalization", {}, lambda t: F.rms_norm(_R(t, 4, 4), [4])),
    ("RNN", {}, lambda t: torch.nn.RNN(4, 4)(_R(t, 2, 3, 4))[0]),
    ("Reciprocal", {}, lambda t: torch.reciprocal(_R(t, 4))),
    ("ReduceL2", {}, lambda t: torch.linalg.vector_norm(_R(t, 4))),
    ("ReduceLogSumExp", {}, lambda t: torch.logsumexp(_R(t, 4), 0)),
    ("ReduceMean", {}, lambda t: torch.mean(_R(t, 4))),
    ("ReduceProd", {}, lambda t: torch.prod(_R(t, 4))),
    ("ReduceSum", {}, lambda t: torch.sum(_R(t, 4))),
    ("Resize", {}, lambda t: F.interpolate(_R(t, *_IMAGE), scale_factor=2)),
    ("STFT", {}, lambda t: torch.stft(_R(t, 64), 16, return_complex=True, window=torch.ones(16)).real),
    ("Sigmoid", {}, lambda t: torch.sigmoid(_R(t, 4))),
    ("Softmax", {}, lambda t: F.softmax(_R(t, 4), 0)),
    ("SoftmaxCrossEntropyLoss", {}, lambda t: F.cross_entropy(_R(t, 4, 4), torch.arange(4))),
    ("Softplus", {}, lambda t: F.softplus(_R(t, 4))),
    ("Sqrt", {}, lambda t: torch.sqrt(_R(t, 4))),
    ("Tan", {}, lambda t: torch.tan(_R(t, 4))),
    ("Tanh", {}, lambda t: torch.tanh(_R(t, 4))),
    ("Transpose", {}, lambda t: _R(t, 4, 4).T),
    ("Where", {}, lambda t: torch.where(_R(t, 4) > 0, _R(t, 4), _R(t, 4))),
]  # fmt: skip


def seen(call: _Call) -> Category:
    """What autocast on a CPU makes of a call, by the types of its results on FP32 and on BF16 operands."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        high, low = call(torch.float32).dtype, call(torch.bfloat16).dtype
    if high is torch.bfloat16:
        return Category.ALLOW
    return Category.INFER if low is torch.bfloat16 else Category.DENY


def said(op: str, attributes: dict[str, Any]) -> Category:
    """What the policy says, with the rules that speak of an attribute or a rank."""
    policy = policies()["autocast"]
    if op in ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool") and attributes["rank"] == 5:
        return next(rule for rule in policy.rules if rule.name == "pool-3d" and op in rule.ops).category
    if attributes.get("mode") in ("edge", "reflect"):
        return next(rule for rule in policy.rules if rule.name == "pad" and op in rule.ops).category
    return policy.judge(("onnx", op), op_facts("onnx")[op], DType.BFLOAT16).category


@pytest.mark.parametrize(
    ("op", "attributes", "call"), CALLS, ids=["-".join([op, *map(str, held.values())]) for op, held, _ in CALLS]
)
def test_category_is_what_autocast_does_on_a_cpu(op: str, attributes: dict[str, Any], call: _Call) -> None:
    if op == "LSTM" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no LSTM in BF16 for this CPU, and PyTorch's autocast calls it all the same")
    assert said(op, attributes) is seen(call)


# Compound calls of ATen, whose parts autocast intercepts.
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("addmv", lambda t: torch.addmv(_R(t, 4), _R(t, 4, 4), _R(t, 4))),
        ("affine_grid_generator", lambda t: F.affine_grid(_R(t, 1, 2, 3), [1, 1, 4, 4], align_corners=False)),
        ("bilinear", lambda t: F.bilinear(_R(t, 4, 4), _R(t, 4, 4), _R(t, 2, 4, 4))),
        ("dot", lambda t: torch.dot(_R(t, 4), _R(t, 4))),
        ("inner", lambda t: torch.inner(_R(t, 4, 4), _R(t, 4, 4))),
        ("linalg_multi_dot", lambda t: torch.linalg.multi_dot([_R(t, 4, 4)] * 3)),
        ("mv", lambda t: torch.mv(_R(t, 4, 4), _R(t, 4))),
        ("scatter_add", lambda t: torch.scatter_add(_R(t, 4), 0, torch.tensor([1]), _R(t, 1))),
        ("tensordot", lambda t: torch.tensordot(_R(t, 4, 4), _R(t, 4, 4), 1)),
        ("trace", lambda t: torch.trace(_R(t, 4, 4))),
        ("var", lambda t: torch.var(_R(t, 4))),
    ],
)
def test_compound_call_is_what_its_parts_are(name: str, call: _Call) -> None:
    verdict = policies()["autocast"].judge(("aten", name), op_facts("aten")[name], DType.BFLOAT16)
    assert verdict.category is seen(call)
