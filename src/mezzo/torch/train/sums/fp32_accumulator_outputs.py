"""FP32 outputs of low-precision matmuls: outputs the FP32 accumulator without rounding it.

Devices support this if `out_dtype` of torch.mm and torch.bmm works, which is tested. Otherwise, and
for convolutions and their gradients, it can be emulated: an FP32 matmul of the rounded operands has
exactly the same terms. Addends are added last, and alpha and beta applied in FP32. A convolution's
backward becomes one operator per gradient. Attention and recurrent kernels round internally, and
stay unchanged.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx

from mezzo.aten.program import tensor_of
from mezzo.aten.read.groups import is_view
from mezzo.aten.read.ports import is_getitem
from mezzo.aten.read.retype import CAST, is_cast
from mezzo.aten.torch_internals import without_python_dispatcher
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.torch_internals import without_modes
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.joint_nodes import is_product, readers
from mezzo.torch.train.sums.exact_products import (
    CONVOLUTION,
    CONVOLUTION_INPUT,
    CONVOLUTION_WEIGHT,
    PRODUCT,
)

_ATEN: Any = torch.ops.aten
_NATIVE = {_ATEN.mm: _ATEN.mm.dtype, _ATEN.bmm: _ATEN.bmm.dtype}
_OF_SUM = {_ATEN.addmm: _ATEN.mm, _ATEN.baddbmm: _ATEN.bmm}
_GRADIENTS: Any = _ATEN.convolution_backward.default
_CONVOLUTIONS = frozenset({_ATEN.convolution, _ATEN.convolution_backward})
_BIAS = 2  # index of the bias gradient among a convolution's gradients
_TERMS = 4097  # not representable in BF16 or FP16


class Way(Enum):
    """How an operator produces FP32 outputs, with the text for reports."""

    NATIVE = "hands on its FP32 sums: out_dtype of PyTorch's products, which holds in a test here"
    EMULATED = (
        "hands on its FP32 sums: an FP32 product of rounded operands, as out_dtype fails in a test"
        " here"
    )
    CONVOLVED = (
        "hands on its FP32 sums: an FP32 convolution of rounded operands, as convolutions have no"
        " out_dtype"
    )
    ROUNDED = (
        "is rounded before it is FP32, as nothing here hands on its sums; accumulate='fp32'"
        " emulates it"
    )
    LEFT = "is rounded before it is FP32, as products of its kind offer nothing else"


@dataclass(frozen=True, slots=True)
class Fp32Output:
    """A node of a plan with a planned FP32 output, and how it is produced."""

    plan: Plan
    node: str
    way: Way


def way_for(controls: Controls, low: torch.dtype, device: str) -> Way | None:
    """How a device's matmuls output FP32; None with low accumulation: nothing to preserve."""
    if controls.accumulate not in (None, "fp32"):
        return None
    if has_fp32_outputs(low, device):
        return Way.NATIVE
    return Way.ROUNDED if controls.accumulate is None else Way.EMULATED


@functools.cache
def has_fp32_outputs(low: torch.dtype, device: str) -> bool:
    """Whether a device's matmuls can output FP32, by self-test."""
    with without_modes(), without_python_dispatcher(), torch.no_grad():
        ones: Any = torch.ones(_TERMS, dtype=low, device=device)
        row, column = ones.view(1, -1), ones.view(-1, 1)
        try:
            results = (
                torch.mm(row, column, out_dtype=torch.float32),
                torch.bmm(row[None], column[None], out_dtype=torch.float32),
            )
        except RuntimeError:  # no such kernel
            return False
        return all(result.dtype is torch.float32 and float(result) == _TERMS for result in results)


def write_fp32_outputs(
    planned: RewrittenGraph, low: torch.dtype, way: Way, controls: Controls
) -> tuple[Fp32Output, ...]:
    """Make operators with planned FP32 outputs produce them, in the rewritten graph.

    Convolutions and their gradients are emulated if FP32 accumulation is requested. Low-precision
    users still get the rounded output; outputs without FP32 users are unchanged. Returns what was
    done for each operator.
    """
    handed: list[Fp32Output] = []
    for name, call, results in _fp32_outputs_of(planned, low):
        offered = _offered(call, way, is_emulated=controls.accumulate == "fp32")
        if offered not in (Way.ROUNDED, Way.LEFT):
            for result in results:
                with call.graph.inserting_before(result):
                    wide = _written(CallInserter(call.graph, call), call, result, offered)
                _read_wide(result, wide, low)
            if call.target is _GRADIENTS:
                _compute_rest(call)
        handed.append(Fp32Output(planned.plan, name, offered))
    return tuple(handed)


def _fp32_outputs_of(
    planned: RewrittenGraph, low: torch.dtype
) -> Iterator[tuple[str, fx.Node, Sequence[fx.Node]]]:
    """Low-precision operators with planned FP32 outputs: name, call, outputs used in FP32."""
    for node, call in planned.calls():
        if (
            node.precision.output is not HIGH
            or node.precision.compute is HIGH
            or not is_product(call)
        ):
            continue
        results = [
            result
            for result in _results(call)
            if result.meta["val"].dtype is low and _is_read_wide(result)
        ]
        if results:
            yield node.name, call, results


def _results(call: fx.Node) -> list[fx.Node]:
    """The tensor outputs of a call: itself, or its getitems."""
    has_several = isinstance(call.meta.get("val"), tuple | list)
    nodes = [user for user in call.users if is_getitem(user)] if has_several else [call]
    return [node for node in nodes if tensor_of(node) is not None]


def _offered(call: fx.Node, way: Way, *, is_emulated: bool) -> Way:
    """How a call produces FP32 outputs, given that matmuls do so by `way`."""
    packet = getattr(call.target, "overloadpacket", None)
    if packet in _CONVOLUTIONS:
        return Way.CONVOLVED if is_emulated else Way.ROUNDED
    return way if packet in _NATIVE or packet in _OF_SUM else Way.LEFT


def _written(build: CallInserter, call: fx.Node, result: fx.Node, way: Way) -> fx.Node:
    """One output of a matmul, convolution or its backward in FP32."""
    packet = getattr(call.target, "overloadpacket", None)
    if call.target is _GRADIENTS:
        return _gradient(build, call, result)
    if way is Way.CONVOLVED:
        return build.call(CONVOLUTION, *call.args, is_laid_out_last(call.meta["val"]))
    if packet in _NATIVE:
        return _product(build, packet, call.args, way)
    addend, *operands = call.args
    sums = _scaled(
        build, _product(build, _OF_SUM[packet], operands, way), call.kwargs.get("alpha", 1)
    )
    beta = call.kwargs.get("beta", 1)
    if beta == 0:  # the addend is ignored even if it is infinite or NaN
        return sums
    return build.call(
        _ATEN.add.Tensor, sums, _scaled(build, build.call(CAST, addend, torch.float32), beta)
    )


def _gradient(build: CallInserter, call: fx.Node, result: fx.Node) -> fx.Node:
    """The FP32 gradient of a convolution's input, weight or bias, by the getitem's index."""
    gradient, x, weight, _, *sizes, _ = call.args
    assert isinstance(gradient, fx.Node), "it is a tensor"
    if result.args[1] == _BIAS:
        axes = [0, *range(2, gradient.meta["val"].dim())]
        return build.call(_ATEN.sum.dim_IntList, gradient, axes, dtype=torch.float32)
    target = CONVOLUTION_INPUT if result.args[1] == 0 else CONVOLUTION_WEIGHT
    return build.call(target, gradient, x, weight, *sizes, is_laid_out_last(result.meta["val"]))


def _compute_rest(call: fx.Node) -> None:
    """Restrict a convolution's backward to the gradients that are still used."""
    for user in [user for user in call.users if not user.users]:
        call.graph.erase_node(user)
    if not call.users:
        call.graph.erase_node(call)
        return
    needed = {user.args[1] for user in call.users}
    call.args = (*call.args[:-1], [place in needed for place in range(_BIAS + 1)])
    call.meta["val"] = tuple(
        gradient if place in needed else None for place, gradient in enumerate(call.meta["val"])
    )


def _scaled(build: CallInserter, value: fx.Node, scale: Any) -> fx.Node:
    return value if scale == 1 else build.call(_ATEN.mul.Tensor, value, scale)


def _product(build: CallInserter, packet: Any, operands: Sequence[Any], way: Way) -> fx.Node:
    if way is Way.NATIVE:
        return build.call(_NATIVE[packet], *operands, torch.float32)
    return build.call(PRODUCT, *operands)


def _is_read_wide(low: fx.Node) -> bool:
    """Whether a low-precision value has FP32 users, directly or through views."""
    return any(is_cast(user, torch.float32) for user in readers(low, is_view))


def _read_wide(call: fx.Node, wide: fx.Node, low: torch.dtype) -> None:
    """Make users of a low-precision output use the FP32 output, rounded for low-precision users."""
    _widen_readers(call, wide)
    if call.users:
        with call.graph.inserting_before(call):
            rounded = CallInserter(call.graph, call).call(CAST, wide, low)
        call.replace_all_uses_with(rounded)
    call.graph.erase_node(call)


def _widen_readers(value: fx.Node, wide: fx.Node) -> None:
    """Replace FP32 casts of a low-precision value by its FP32 form, also behind views."""
    for user in list(value.users):
        if is_cast(user, torch.float32):
            user.replace_all_uses_with(wide)
            user.graph.erase_node(user)
        elif is_view(user) and user.args[0] is value and _is_read_wide(user):
            with user.graph.inserting_before(user):
                view = CallInserter(user.graph, user).call(
                    user.target, wide, *user.args[1:], **user.kwargs
                )
            _widen_readers(user, view)
            if not user.users:
                user.graph.erase_node(user)
