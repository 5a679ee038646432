"""Low products that are planned to hand on FP32 hand on their sums, which nothing rounds on the way.

A device offers that where `out_dtype` of torch.mm and torch.bmm does, which is tried. Elsewhere it can be emulated, and
of convolutions and their gradients: an FP32 product of the rounded operands has the same terms, exactly, and sums them
in FP32. A summand is added last, and what scales sums and summands does so in FP32. Of a convolution's backward each
gradient is a product by itself. Kernels of attention and of recurrent cells round inside, and stay.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from mezzo.aten.read.ports import is_getitem
from mezzo.aten.read.retype import CAST, is_cast, without_python_dispatcher
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH
from mezzo.torch.compiler.building import Builder
from mezzo.torch.compiler.rewriting import Planned
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.train.controls import Controls
from mezzo.torch.train.rematerialization import is_product, is_view, readers
from mezzo.torch.train.sums.exact_products import CONVOLUTION, CONVOLUTION_INPUT, CONVOLUTION_WEIGHT, PRODUCT

_ATEN: Any = torch.ops.aten
_NATIVE = {_ATEN.mm: _ATEN.mm.dtype, _ATEN.bmm: _ATEN.bmm.dtype}
_OF_SUM = {_ATEN.addmm: _ATEN.mm, _ATEN.baddbmm: _ATEN.bmm}
_GRADIENTS: Any = _ATEN.convolution_backward.default
_CONVOLUTIONS = frozenset({_ATEN.convolution, _ATEN.convolution_backward})
_BIAS = 2  # the last of a convolution's gradients
_TERMS = 4097  # neither BF16 nor FP16 has such a number


class Way(Enum):
    """How sums come to be FP32 results, in words of a product."""

    NATIVE = "hands on its FP32 sums: out_dtype of PyTorch's products, which holds in a test here"
    EMULATED = "hands on its FP32 sums: an FP32 product of rounded operands, as out_dtype fails in a test here"
    CONVOLVED = "hands on its FP32 sums: an FP32 convolution of rounded operands, as convolutions have no out_dtype"
    ROUNDED = "is rounded before it is FP32, as nothing here hands on its sums; accumulate='fp32' emulates it"
    LEFT = "is rounded before it is FP32, as products of its kind offer nothing else"


@dataclass(frozen=True, slots=True)
class HandedOn:
    """A product of a plan, by its node's name, that is planned to hand on FP32, and how it does."""

    plan: Plan
    node: str
    way: Way


def way_for(controls: Controls, low: torch.dtype, device: str) -> Way | None:
    """How products of a format hand on FP32 on a device; None where sums are low, and nothing is lost behind them."""
    if controls.accumulate not in (None, "fp32"):
        return None
    if hands_on_sums(low, device):
        return Way.NATIVE
    return Way.ROUNDED if controls.accumulate is None else Way.EMULATED


@functools.cache
def hands_on_sums(low: torch.dtype, device: str) -> bool:
    """Whether a device's products of a format give FP32 results: tried on sums that the format has no number for."""
    with _disable_current_modes(), without_python_dispatcher(), torch.no_grad():
        ones: Any = torch.ones(_TERMS, dtype=low, device=device)
        row, column = ones.view(1, -1), ones.view(-1, 1)
        try:
            results = (
                torch.mm(row, column, out_dtype=torch.float32),
                torch.bmm(row[None], column[None], out_dtype=torch.float32),
            )
        except RuntimeError:  # it has no such kernel
            return False
        return all(one.dtype is torch.float32 and float(one) == _TERMS for one in results)


def hand_on_sums(planned: Planned, low: torch.dtype, way: Way, controls: Controls) -> tuple[HandedOn, ...]:
    """Let the products that a plan has hand on FP32 do so in a way, in the graph that the plan was carried out on.
    Convolutions and their gradients are emulated wherever FP32 sums are asked for.

    Who reads such a result low reads its sums rounded, as before; results that nobody reads in FP32 stay as they are.
    Returns what became of each product.
    """
    handed: list[HandedOn] = []
    for name, call, results in _handing_on(planned, low):
        offered = _offered(call, way, is_emulated=controls.accumulate == "fp32")
        if offered not in (Way.ROUNDED, Way.LEFT):
            for result in results:
                with call.graph.inserting_before(result):
                    wide = _written(Builder(call.graph, call), call, result, offered)
                _read_wide(result, wide, low)
            if call.target is _GRADIENTS:
                _compute_rest(call)
        handed.append(HandedOn(planned.plan, name, offered))
    return tuple(handed)


def _handing_on(planned: Planned, low: torch.dtype) -> Iterator[tuple[str, fx.Node, Sequence[fx.Node]]]:
    """The products that run low and are planned in FP32 for those who read them, by their names, with those of their
    results that are read so.
    """
    for node, call in planned.calls():
        if node.precision.output is not HIGH or node.precision.compute is HIGH or not is_product(call):
            continue
        results = [one for one in _results(call) if one.meta["val"].dtype is low and _is_read_wide(one)]
        if results:
            yield node.name, call, results


def _results(call: fx.Node) -> list[fx.Node]:
    """The tensors that a call makes: itself, or what is picked of several."""
    several = isinstance(call.meta.get("val"), tuple | list)
    nodes = [user for user in call.users if is_getitem(user)] if several else [call]
    return [one for one in nodes if isinstance(one.meta.get("val"), torch.Tensor)]


def _offered(call: fx.Node, way: Way, *, is_emulated: bool) -> Way:
    """The way that there is for a call, where products go theirs."""
    packet = getattr(call.target, "overloadpacket", None)
    if packet in _CONVOLUTIONS:
        return Way.CONVOLVED if is_emulated else Way.ROUNDED
    return way if packet in _NATIVE or packet in _OF_SUM else Way.LEFT


def _written(build: Builder, call: fx.Node, result: fx.Node, way: Way) -> fx.Node:
    """A product's sums in FP32: those of one of its results."""
    packet = getattr(call.target, "overloadpacket", None)
    if call.target is _GRADIENTS:
        return _gradient(build, call, result)
    if way is Way.CONVOLVED:
        return build.call(CONVOLUTION, *call.args, is_laid_out_last(call.meta["val"]))
    if packet in _NATIVE:
        return _product(build, packet, call.args, way)
    summand, *operands = call.args
    sums = _scaled(build, _product(build, _OF_SUM[packet], operands, way), call.kwargs.get("alpha", 1))
    beta = call.kwargs.get("beta", 1)
    if beta == 0:  # then nobody looks at the summand, be it infinite
        return sums
    return build.call(_ATEN.add.Tensor, sums, _scaled(build, build.call(CAST, summand, torch.float32), beta))


def _gradient(build: Builder, call: fx.Node, result: fx.Node) -> fx.Node:
    """The gradient of a convolution's input, weight or bias in FP32, by the place at which it is picked."""
    gradient, x, weight, _, *sizes, _ = call.args
    assert isinstance(gradient, fx.Node), "it is a tensor"
    if result.args[1] == _BIAS:
        axes = [0, *range(2, gradient.meta["val"].dim())]
        return build.call(_ATEN.sum.dim_IntList, gradient, axes, dtype=torch.float32)
    target = CONVOLUTION_INPUT if result.args[1] == 0 else CONVOLUTION_WEIGHT
    return build.call(target, gradient, x, weight, *sizes, is_laid_out_last(result.meta["val"]))


def _compute_rest(call: fx.Node) -> None:
    """Let a convolution's backward compute those of its gradients alone that somebody reads of it still."""
    for user in [user for user in call.users if not user.users]:
        call.graph.erase_node(user)
    if not call.users:
        call.graph.erase_node(call)
        return
    asked = {user.args[1] for user in call.users}
    call.args = (*call.args[:-1], [place in asked for place in range(_BIAS + 1)])
    call.meta["val"] = tuple(one if place in asked else None for place, one in enumerate(call.meta["val"]))


def _scaled(build: Builder, held: fx.Node, scale: Any) -> fx.Node:
    return held if scale == 1 else build.call(_ATEN.mul.Tensor, held, scale)


def _product(build: Builder, packet: Any, operands: Sequence[Any], way: Way) -> fx.Node:
    if way is Way.NATIVE:
        return build.call(_NATIVE[packet], *operands, torch.float32)
    return build.call(PRODUCT, *operands)


def _is_read_wide(low: fx.Node) -> bool:
    """Whether somebody reads a low value in FP32, as it is or through views of it."""
    return any(is_cast(user, torch.float32) for user in readers(low, is_view))


def _read_wide(call: fx.Node, wide: fx.Node, low: torch.dtype) -> None:
    """Let the readers of a product read its sums, rounded where they read it low."""
    _widen_readers(call, wide)
    if call.users:
        with call.graph.inserting_before(call):
            rounded = Builder(call.graph, call).call(CAST, wide, low)
        call.replace_all_uses_with(rounded)
    call.graph.erase_node(call)


def _widen_readers(held: fx.Node, wide: fx.Node) -> None:
    """Let casts to FP32 of a low value read its wide form, and those of views, which make no numbers, the same view."""
    for user in list(held.users):
        if is_cast(user, torch.float32):
            user.replace_all_uses_with(wide)
            user.graph.erase_node(user)
        elif is_view(user) and user.args[0] is held and _is_read_wide(user):
            with user.graph.inserting_before(user):
                view = Builder(user.graph, user).call(user.target, wide, *user.args[1:], **user.kwargs)
            _widen_readers(user, view)
            if not user.users:
                user.graph.erase_node(user)
