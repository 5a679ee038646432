"""Hooks on gradients of module outputs and of PyTorch functions called in modules."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from mezzo.aten.read.read import facts_of
from mezzo.tables.facts import Cost
from mezzo.torch.inspect.comparing import tensors_of

# Operators whose gradient only moves or repeats values.
_MOVES = frozenset({Cost.MOVEMENT, Cost.GENERATOR})
_CONVERTS = frozenset({"bfloat16", "double", "float", "half", "to", "type", "type_as"})
_SPELLED = {"floordiv": "floor_divide", "truediv": "div"}  # Python's operator names


class ValueOrigin(NamedTuple):
    """A value's origin: a module's path, and a function called in it ("": the module's output)."""

    module: str
    op: str = ""


@dataclass(slots=True)
class _Looked:
    """A value with a hook, and its version at that time."""

    version: int
    place: ValueOrigin


Look = Callable[[ValueOrigin, torch.Tensor], None]


@contextmanager
def looking_at_gradients(model: torch.nn.Module, look: Look) -> Iterator[None]:
    """Call `look` on each gradient of a model's values, once per value.

    An output shared by nested modules belongs to the innermost, any other value to the function
    that produces it; a value modified in place counts as new. Data movement, conversions, a loss
    outside the model, and operations inside functions are excluded.
    """
    values = _Values(look)
    on_modules: list[Any] = []
    for path, module in model.named_modules():
        on_modules += [
            module.register_forward_pre_hook(
                lambda module, args, path=path: values.path.append(path)
            ),
            module.register_forward_hook(
                lambda module, args, output, path=path: values.leave(path, output), always_call=True
            ),
        ]
    try:
        with _Calls(values):
            yield
    finally:
        for handle in (*on_modules, *values.hooks):
            handle.remove()


class _Values:
    """The values with hooks, and the stack of running modules, by path."""

    def __init__(self, look: Look) -> None:
        self.path: list[str] = []
        self.hooks: list[Any] = []
        self._look = look
        self._seen: Any = WeakTensorKeyDictionary()

    def leave(self, path: str, output: object) -> None:
        self.path.pop()
        self.see(ValueOrigin(path), output)

    def see(self, place: ValueOrigin, output: object) -> None:
        for _, tensor in tensors_of(output):
            record: _Looked | None = self._seen.get(tensor)
            if record is not None and record.version == tensor._version:
                if record.place.op and not place.op:
                    record.place = place
            elif tensor.requires_grad and not tensor.is_leaf:
                self._seen[tensor] = new_record = _Looked(tensor._version, place)
                self.hooks.append(
                    tensor.register_hook(
                        lambda gradient, new_record=new_record: self._look(
                            new_record.place, gradient
                        )
                    )
                )


class _Calls(TorchFunctionMode):
    """Intercepts PyTorch functions that modules call."""

    def __init__(self, values: _Values) -> None:
        super().__init__()
        self._values = values

    def __torch_function__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        op = _spell(func) if self._values.path else ""
        if op:
            self._values.see(ValueOrigin(self._values.path[-1], op), result)
        return result


def _spell(func: Any) -> str:
    """A function's operator name; "" for data movement, conversions and accessors."""
    name = getattr(func, "__name__", "").strip("_")
    name = _SPELLED.get(name, name)
    if (
        facts_of("aten", name) is None
        and name[:1] in ("i", "r")
        and facts_of("aten", _SPELLED.get(name[1:], name[1:]))
    ):
        name = _SPELLED.get(name[1:], name[1:])  # in-place or reflected
    row = facts_of("aten", name)
    is_ignored = (
        name.startswith(("get", "set"))
        or name in _CONVERTS
        or (row is not None and row.cost in _MOVES)
    )
    return "" if is_ignored else name
