"""Options that are tensors while a step is traced, in code that was written for Python's numbers."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Asked of an option and 0: whether there is a momentum, or a decay.
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
# What takes a number to scale the operand by that comes behind the first, and what it calls the number.
_SCALING: Mapping[str, str] = {
    "add": "alpha",
    "sub": "alpha",
    "foreach_add": "alpha",
    "foreach_sub": "alpha",
    "addcmul": "value",
    "addcdiv": "value",
}


class AsNumbers(TorchFunctionMode):
    """Lets options be single tensors where the code of an optimizer compares them with 0, or scales an operand by
    them: a graph has no value to compare, and functions take only numbers as `alpha` and `value`.

    `signs` are what is known of each option, by the identity of its tensor: 1, 0 or -1.
    """

    def __init__(self, signs: Mapping[int, int]) -> None:
        super().__init__()
        self._signs = signs

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name = getattr(func, "__name__", "").strip("_")
        sign = self._signs.get(id(args[0])) if args else None
        if sign is not None:
            compare = _COMPARED.get(name)
            if compare is not None and len(args) == 2 and type(args[1]) in (int, float) and args[1] == 0:
                return compare(sign, 0)
            if name == "bool":
                return sign != 0
        scale = named.get(_SCALING.get(name, ""))
        if isinstance(scale, torch.Tensor) and len(args) > 1:
            del named[_SCALING[name]]
            return func(args[0], _scaled(args[1], scale), *args[2:], **named)
        return func(*args, **named)


def _scaled(operand: Any, scale: torch.Tensor) -> Any:
    """A tensor, or each of several, times a number that is rounded to its format, as kernels round numbers."""
    if isinstance(operand, torch.Tensor):
        return operand * scale.to(operand.dtype)
    return [_scaled(one, scale) for one in operand]
