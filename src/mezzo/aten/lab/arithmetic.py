"""How the calls of a graph are computed: as they are typed, or with all floats held in one wide type."""

import re
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import fx

from mezzo.aten.lab.rounding import LOW_TYPES
from mezzo.aten.lab.tiles import tiled
from mezzo.aten.program import TORCH_DTYPES, packet_of
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType

# Runs a body of a control flow operator on what it is given.
RunBody = Callable[[fx.GraphModule, "Arithmetic", tuple[object, ...]], object]
# Operators that draw only where they drop numbers out, which inference does not.
_ONLY_DROPS = re.compile("attention|lstm|gru|rnn")
_NARROW = frozenset({*LOW_TYPES, torch.float32})


class Arithmetic(Protocol):
    """What computes a call. `hold` brings a tensor of the program's type into the form in which it is computed with."""

    def hold(self, tensor: torch.Tensor) -> torch.Tensor: ...
    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object: ...


class AsTyped:
    """Every call by PyTorch's own kernel of its types."""

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        target: Any = node.target
        return target(*args, **kwargs)


class Wide:
    """Every call in FP32 or FP64, whatever it is typed. In FP32 results are rounded to the types that they have.

    What draws random numbers, reads bits, or is not known how it computes runs as it is typed.
    """

    def __init__(self, wide: torch.dtype, run_body: RunBody, accumulation: Accumulation | None = None) -> None:
        self._wide, self._run_body, self._accumulation = wide, run_body, accumulation
        self._is_rounding = wide is torch.float32

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._held(tensor.dtype))

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        sums = self._accumulation if self._accumulation is not None and _reads_low(node) else None
        return self.compute(node, args, kwargs, sums)

    def compute(
        self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], sums: Accumulation | None
    ) -> object:
        """The same, with sums in tiles where they are asked for."""
        target: Any = node.target
        if _runs_as_typed(node):
            made = target(*self._narrowed(node.args, args), **self._narrowed(node.kwargs, kwargs))
        else:
            args, kwargs = _mapped(args, self._widen), _mapped(kwargs, self._widen)
            found = None if sums is None else tiled(target, args, kwargs, sums)
            made = target(*args, **kwargs) if found is None else found
        return self._settled(made, node.meta.get("val"))

    def _held(self, dtype: torch.dtype) -> torch.dtype:
        if dtype in _NARROW:
            return self._wide
        return torch.complex128 if dtype is torch.complex64 and not self._is_rounding else dtype

    def _widen(self, one: object) -> object:
        """What stands among a call's arguments: types are those in which it computes, bodies compute likewise."""
        if isinstance(one, torch.dtype):
            return self._held(one)
        if isinstance(one, fx.GraphModule):
            return _Body(one, self, self._run_body)
        return one

    def _narrowed(self, written: Any, given: Any) -> Any:
        """Arguments in the types that the program has; `written` are the nodes that stand for them."""
        if isinstance(written, fx.Node):
            return _as_typed(given, written.meta.get("val"))
        if isinstance(written, dict):
            return {key: self._narrowed(one, given[key]) for key, one in written.items()}
        if isinstance(written, tuple | list):
            several = [self._narrowed(one, other) for one, other in zip(written, given, strict=True)]
            return type(given)(several) if type(given) in (tuple, list) else several
        return given

    def _settled(self, made: object, typed: object) -> object:
        """Results as they are held, rounded to the types that they have in the program."""
        if isinstance(made, torch.Tensor):
            kind = typed.dtype if isinstance(typed, torch.Tensor) else made.dtype
            rounded = made.to(kind) if self._is_rounding and kind in LOW_TYPES else made
            held = self._held(kind)
            return rounded if rounded.dtype is held else rounded.to(held)
        if isinstance(made, tuple | list):
            kinds = typed if isinstance(typed, tuple | list) and len(typed) == len(made) else [None] * len(made)
            return tuple(self._settled(one, kind) for one, kind in zip(made, kinds, strict=True))
        return made


class _Body(torch.nn.Module):
    """A body that computes as the graph around it does."""

    def __init__(self, body: fx.GraphModule, arithmetic: Wide, run: RunBody) -> None:
        super().__init__()
        self._body, self._arithmetic, self._run = body, arithmetic, run

    def forward(self, *operands: object) -> object:
        return self._run(self._body, self._arithmetic, operands)


def _runs_as_typed(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return not any(one.op == "get_attr" and not isinstance(one.meta.get("val"), torch.Tensor)
                       for one in node.all_input_nodes)  # fmt: skip
    if not isinstance(target, torch._ops.OpOverload):
        return False  # arithmetic on sizes
    is_known = target.namespace in ("aten", "prims")
    is_drawn = torch.Tag.nondeterministic_seeded in target.tags and not _ONLY_DROPS.search(packet_of(target))
    return not is_known or is_drawn or target is torch.ops.aten.view.dtype


def _reads_low(node: fx.Node) -> bool:
    held = [one.meta.get("val") for one in node.all_input_nodes]
    return any(isinstance(one, torch.Tensor) and one.dtype in LOW_TYPES for one in held)


def _as_typed(given: object, typed: object) -> object:
    if isinstance(given, torch.Tensor) and isinstance(typed, torch.Tensor):
        return given.to(typed.dtype)
    return given


def _mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    return fx.node.map_aggregate(given, change)


def formats_of(made: object) -> frozenset[DType]:
    """The float formats of all that a node makes."""
    several = made if isinstance(made, tuple | list) else (made,)
    kinds = {one.dtype for one in several if isinstance(one, torch.Tensor) and one.dtype.is_floating_point}
    return frozenset(TORCH_DTYPES[kind] for kind in kinds if kind in TORCH_DTYPES)
