"""Has gradients of values looked at as they come by: of what modules hand on, and of what functions in them make."""

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

# Their gradients hold the numbers of the one before.
_MOVES = frozenset({Cost.MOVEMENT, Cost.GENERATOR})
_CONVERTS = frozenset({"bfloat16", "double", "float", "half", "to", "type", "type_as"})
_SPELLED = {"floordiv": "floor_divide", "truediv": "div"}  # by Python, not by PyTorch


class Place(NamedTuple):
    """Where a value comes from: the path of a module, and a function that it calls; "" of what it hands on itself."""

    module: str
    op: str = ""


@dataclass(slots=True)
class _Looked:
    """A value that is looked at, as it was written last."""

    version: int
    place: Place


Look = Callable[[Place, torch.Tensor], None]


@contextmanager
def looking_at_gradients(model: torch.nn.Module, look: Look) -> Iterator[None]:
    """Have gradients of a model's values looked at, each once: what several modules hand on is of the innermost, what
    none does is of the function that makes it, and what was written since is another value. What moves or converts
    numbers, a loss outside the model, and what functions of PyTorch's call inside are left out.
    """
    values = _Values(look)
    on_modules: list[Any] = []
    for path, module in model.named_modules():
        on_modules += [
            module.register_forward_pre_hook(lambda module, given, path=path: values.path.append(path)),
            module.register_forward_hook(
                lambda module, given, answer, path=path: values.leave(path, answer), always_call=True
            ),
        ]
    try:
        with _Calls(values):
            yield
    finally:
        for handle in (*on_modules, *values.hooks):
            handle.remove()


class _Values:
    """What is looked at, and the modules that run now, by their paths."""

    def __init__(self, look: Look) -> None:
        self.path: list[str] = []
        self.hooks: list[Any] = []
        self._look = look
        self._seen: Any = WeakTensorKeyDictionary()

    def leave(self, path: str, answer: object) -> None:
        self.path.pop()
        self.see(Place(path), answer)

    def see(self, place: Place, answer: object) -> None:
        for _, one in tensors_of(answer):
            looked: _Looked | None = self._seen.get(one)
            if looked is not None and looked.version == one._version:
                if looked.place.op and not place.op:
                    looked.place = place
            elif one.requires_grad and not one.is_leaf:
                self._seen[one] = now = _Looked(one._version, place)
                self.hooks.append(one.register_hook(lambda gradient, now=now: self._look(now.place, gradient)))


class _Calls(TorchFunctionMode):
    """Sees functions of PyTorch's that modules call."""

    def __init__(self, values: _Values) -> None:
        super().__init__()
        self._values = values

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        op = _spell(func) if self._values.path else ""
        if op:
            self._values.see(Place(self._values.path[-1], op), made)
        return made


def _spell(func: Any) -> str:
    """What a function is called; "" of one that makes no numbers of its own."""
    name = getattr(func, "__name__", "").strip("_")
    name = _SPELLED.get(name, name)
    if facts_of("aten", name) is None and name[:1] in ("i", "r") and facts_of("aten", _SPELLED.get(name[1:], name[1:])):
        name = _SPELLED.get(name[1:], name[1:])  # in place, or from the right
    row = facts_of("aten", name)
    is_plain = name.startswith(("get", "set")) or name in _CONVERTS or (row is not None and row.cost in _MOVES)
    return "" if is_plain else name
