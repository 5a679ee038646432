"""Optimizer options as tensors during tracing, for code written for Python numbers."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Comparisons of an option with 0, such as: is there a momentum, or a decay?
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
# Functions that scale an operand by a number, and the parameter's name.
_SCALING: Mapping[str, str] = {
    "add": "alpha",
    "sub": "alpha",
    "foreach_add": "alpha",
    "foreach_sub": "alpha",
    "addcmul": "value",
    "addcdiv": "value",
}


class AsNumbers(TorchFunctionMode):
    """Lets options be scalar tensors where code compares them with 0 or passes them as a scale.

    A graph has no value to compare, and functions accept only numbers as `alpha` and `value`.
    `signs` are the known signs of options, by the id of the tensor: 1, 0 or -1.
    """

    def __init__(self, signs: Mapping[int, int]) -> None:
        super().__init__()
        self._signs = signs

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "").strip("_")
        sign = self._signs.get(id(args[0])) if args else None
        if sign is not None:
            compare = _COMPARED.get(name)
            if (
                compare is not None
                and len(args) == 2
                and type(args[1]) in (int, float)
                and args[1] == 0
            ):
                return compare(sign, 0)
            if name == "bool":
                return sign != 0
        scale = named.get(_SCALING.get(name, ""))
        if isinstance(scale, torch.Tensor) and len(args) > 1:
            del named[_SCALING[name]]
            return func(args[0], _scaled(args[1], scale), *args[2:], **named)
        return func(*args, **named)


def _scaled(operand: Any, scale: torch.Tensor) -> Any:
    """A tensor, or each of several, times a scalar rounded to its dtype."""
    if isinstance(operand, torch.Tensor):
        return operand * scale.to(operand.dtype)
    return [_scaled(tensor, scale) for tensor in operand]
