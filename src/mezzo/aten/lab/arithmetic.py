"""Evaluation of FX calls: in their own types, or with all floats in FP32 or FP64."""

import re
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx
from torch.fx.node import map_aggregate

from mezzo.aten.lab.rounding import LOW_TYPES
from mezzo.aten.lab.tiles import tiled
from mezzo.aten.program import packet_of, torch_dtype_of
from mezzo.aten.torch_internals import HigherOrderOperator, OpOverload
from mezzo.contracts.plans import Accumulation

# Runs a subgraph of a control flow operator on its operands.
RunBody = Callable[[fx.GraphModule, "Arithmetic", tuple[object, ...]], object]
# Operators that use random numbers only for dropout, which is inactive in inference.
_ONLY_DROPS = re.compile("attention|lstm|gru|rnn")
_NARROW = frozenset({*LOW_TYPES, torch.float32})


class Arithmetic(Protocol):
    """Evaluates calls. `hold` converts a tensor of the program to the type of the computation."""

    def hold(self, tensor: torch.Tensor) -> torch.Tensor: ...
    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object: ...


class AsTyped:
    """Runs every call by PyTorch's own kernel for its types."""

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        target: Any = node.target
        return target(*args, **kwargs)


class Wide:
    """Runs every call in FP32 or FP64. In FP32, results are rounded to their types in the program.

    Random operators, bit-level operators and operators of other libraries run in their own types.
    """

    def __init__(
        self, wide: torch.dtype, run_body: RunBody, accumulation: Accumulation | None = None
    ) -> None:
        self._wide, self._run_body, self._accumulation = wide, run_body, accumulation
        self._is_rounding = wide is torch.float32

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._held(tensor.dtype))

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        sums = self._accumulation if self._accumulation is not None and _reads_low(node) else None
        return self.compute(node, args, kwargs, sums)

    def compute(
        self,
        node: fx.Node,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sums: Accumulation | None,
    ) -> object:
        """Run a call; sums are accumulated in tiles if `sums` is set."""
        target: Any = node.target
        if _runs_as_typed(node):
            result = target(*self._narrowed(node.args, args), **self._narrowed(node.kwargs, kwargs))
        else:
            args, kwargs = map_aggregate(args, self._widen), map_aggregate(kwargs, self._widen)
            tiled_result = None if sums is None else tiled(target, args, kwargs, sums)
            result = target(*args, **kwargs) if tiled_result is None else tiled_result
        return self._settled(result, node.meta.get("val"))

    def _held(self, dtype: torch.dtype) -> torch.dtype:
        if dtype in _NARROW:
            return self._wide
        return torch.complex128 if dtype is torch.complex64 and not self._is_rounding else dtype

    def _widen(self, argument: object) -> object:
        """An argument in the computation's types; subgraphs are wrapped to compute likewise."""
        if isinstance(argument, torch.dtype):
            return self._held(argument)
        if isinstance(argument, fx.GraphModule):
            return _Body(argument, self, self._run_body)
        return argument

    def _narrowed(self, fx_argument: Any, argument: Any) -> Any:
        """Arguments in their types in the program; `written` are the corresponding FX arguments."""
        if isinstance(fx_argument, fx.Node):
            return _as_typed(argument, fx_argument.meta.get("val"))
        if isinstance(fx_argument, dict):
            return {key: self._narrowed(item, argument[key]) for key, item in fx_argument.items()}
        if isinstance(fx_argument, tuple | list):
            items = [
                self._narrowed(item, value)
                for item, value in zip(fx_argument, argument, strict=True)
            ]
            return type(argument)(items) if type(argument) in (tuple, list) else items
        return argument

    def _settled(self, result: object, fake: object) -> object:
        """Results rounded to their types in the program, in the type of the computation."""
        if isinstance(result, torch.Tensor):
            dtype = fake.dtype if isinstance(fake, torch.Tensor) else result.dtype
            rounded = result.to(dtype) if self._is_rounding and dtype in LOW_TYPES else result
            wide_dtype = self._held(dtype)
            return rounded if rounded.dtype is wide_dtype else rounded.to(wide_dtype)
        if isinstance(result, tuple | list):
            fakes = (
                fake
                if isinstance(fake, tuple | list) and len(fake) == len(result)
                else [None] * len(result)
            )
            return tuple(
                self._settled(item, dtype) for item, dtype in zip(result, fakes, strict=True)
            )
        return result


class _Body(torch.nn.Module):
    """A subgraph that computes like the graph around it."""

    def __init__(self, body: fx.GraphModule, arithmetic: Wide, run: RunBody) -> None:
        super().__init__()
        self._body, self._arithmetic, self._run = body, arithmetic, run

    def forward(self, *operands: object) -> object:
        return self._run(self._body, self._arithmetic, operands)


def _runs_as_typed(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return not any(
            operand.op == "get_attr" and not isinstance(operand.meta.get("val"), torch.Tensor)
            for operand in node.all_input_nodes
        )
    if not isinstance(target, OpOverload):
        return False  # shape arithmetic
    is_known = target.namespace in ("aten", "prims")
    is_drawn = torch.Tag.nondeterministic_seeded in target.tags and not _ONLY_DROPS.search(
        packet_of(target)
    )
    return not is_known or is_drawn or target is torch.ops.aten.view.dtype


def _reads_low(node: fx.Node) -> bool:
    return any(torch_dtype_of(operand) in LOW_TYPES for operand in node.all_input_nodes)


def _as_typed(value: object, fake: object) -> object:
    if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
        return value.to(fake.dtype)
    return value
