"""Holds the answers of a compiled model against the model's own, in FP32 and in FP64."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mezzo.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError:
    """One output over all batches: ||y - ref|| / ||ref||, the reference in FP64. `eager` is what FP32 itself errs."""

    name: str
    error: float
    eager: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Compared:
    """Errors of every output of floats, the worst first, over a number of batches."""

    outputs: tuple[OutputError, ...]
    batches: int

    def __repr__(self) -> str:
        lines = [f"{one.name}  error {one.error:.2e}  (FP32's own {one.eager:.1e})" for one in self.outputs]
        return "\n".join([*lines, f"relative L2 error against FP64 over {self.batches} batches, as it ran"])


def compare(model: torch.nn.Module, compiled: Callable[..., Any], data: Iterable[object]) -> Compared:
    """Say how far the answers of a compiled model are from its model's in FP64, as it runs on this machine.

    Layer by layer, and in true rounding whatever the machine has, `mezzo.compare` says the same of exported programs.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one tensor.

    Raises InputError: there is no batch, or no output holds floats.
    """
    exact = copy.deepcopy(model).double()
    squares: dict[str, list[float]] = {}
    batches = 0
    with torch.no_grad():
        for batch in data:
            batches += 1
            right = _floats(_call(exact, pytree.tree_map(_widened, batch)))
            for name, got, eager in _matched(right, _floats(_call(compiled, batch)), _floats(_call(model, batch))):
                sums = squares.setdefault(name, [0.0, 0.0, 0.0])
                reference = right[name]
                for place, one in enumerate((got.double() - reference, eager.double() - reference, reference)):
                    sums[place] += float(one.square().sum())
    if not batches:
        raise InputError("data holds no batch; give one at least")
    if not squares:
        raise InputError("no output of the model holds floats; there is nothing to compare")
    errors = [
        OutputError(name=name, error=_ratio(own, size), eager=_ratio(eager, size))
        for name, (own, eager, size) in squares.items()
    ]
    errors.sort(key=lambda one: (-one.error if one.error == one.error else float("-inf"), one.name))
    return Compared(outputs=tuple(errors), batches=batches)


def _ratio(error: float, size: float) -> float:
    return (error / size) ** 0.5 if size else 0.0 if not error else float("inf")


def _call(model: Callable[..., Any], batch: object) -> object:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _widened(held: object) -> object:
    is_float = isinstance(held, torch.Tensor) and held.is_floating_point()
    return held.double() if is_float and isinstance(held, torch.Tensor) else held


def _floats(answer: object) -> dict[str, torch.Tensor]:
    """The tensors of floats in an answer, by their place in it."""
    plain: Any = answer.to_tuple() if hasattr(answer, "to_tuple") else answer
    found = pytree.tree_leaves_with_path(plain)
    return {
        pytree.keystr(path).strip(".[]'") or "output": held
        for path, held in found
        if isinstance(held, torch.Tensor) and held.is_floating_point()
    }


def _matched(
    right: Mapping[str, torch.Tensor], got: Mapping[str, torch.Tensor], eager: Mapping[str, torch.Tensor]
) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    if not right.keys() == got.keys() == eager.keys():
        raise InputError(
            f"the compiled model answers {', '.join(got) or 'nothing'}, and the model {', '.join(right) or 'nothing'}; "
            "compare a model with what was compiled of it"
        )
    return [(name, got[name], eager[name]) for name in right]
