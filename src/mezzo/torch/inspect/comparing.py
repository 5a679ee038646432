"""Holds a compiled model against itself in FP32 and in FP64: its answers as it runs, its layers as they are planned."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mezzo.common.errors import InputError
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.numerics.metrics.layer_errors import LayerErrors, OutputError
from mezzo.torch.compiler.arguments import batches_of, check_callable, check_module
from mezzo.torch.compiler.compiled import backend_of
from mezzo.torch.inspect.layers import LayerWatch, Sums, add_errors

LAYERS = ("modules", "operators", "none")
_NOT_OURS = "layers were not looked at: what was compared was not made by mezzo.torch.compile"


def compare(
    model: torch.nn.Module, compiled: Callable[..., Any], data: Iterable[object], *, layers: str = "modules"
) -> LayerErrors:
    """Say how far a compiled model is from its model in FP64 and in FP32, and at which layer the error begins.

    Outputs are those of the compiled model as it runs on this machine. Layers are **emulated**: the graphs are planned
    again and computed call by call, with every value rounded as the plan types it, so generated code may err by less.
    The model, its buffers among it, stays as it is; parameters are shared.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one tensor.
        layers: "modules", what each module hands on; "operators", each operator of the plan; "none", outputs alone.

    Raises InputError: the model is no module; there is no batch, or no output holds floats.
    """
    check_module(model)
    check_callable(compiled, "compiled")
    if layers not in LAYERS:
        raise InputError(f"layers is {layers!r}; choose one of {', '.join(LAYERS)}")
    backend = backend_of(compiled) if layers != "none" else None
    watch = None if backend is None else LayerWatch(model, backend, is_by_operator=layers == "operators")
    outputs = _Outputs(model, compiled)
    batches = 0
    with torch.no_grad():
        for batch in batches_of(data):
            batches += 1
            outputs.add(batch)
            if watch is not None:
                watch.add(lambda twin, batch=batch: call_with(twin, batch))  # type: ignore[misc]  # bound now
    if not batches:
        raise InputError("data holds no batch; give one at least")
    return LayerErrors(
        outputs=outputs.results(),
        layers=() if watch is None else watch.results(),
        batches=batches,
        is_by_operator=layers == "operators",
        notes=watch.notes() if watch is not None else (_NOT_OURS,) if layers != "none" else (),
    )


class _Outputs:
    """Errors of outputs over batches."""

    def __init__(self, model: torch.nn.Module, compiled: Callable[..., Any]) -> None:
        self._model, self._compiled, self._exact = model, compiled, copy.deepcopy(model).double()
        self._sums: dict[str, Sums] = {}

    def add(self, batch: object) -> None:
        right = _floats(call_with(self._exact, pytree.tree_map(widened, batch)))
        got, eager = (_floats(call_with(one, batch)) for one in (self._compiled, self._model))
        _check_alike(right, got, eager)
        for name, reference in right.items():
            sums = self._sums.setdefault(name, (ErrorSum(), ErrorSum(), ErrorSum()))
            add_errors(sums, reference, eager[name], got[name])

    def results(self) -> tuple[OutputError, ...]:
        if not self._sums:
            raise InputError("no output of the model holds floats; there is nothing to compare")
        errors = [
            OutputError(name=name, error=own.error, eager=eager.error, beside_fp32=beside.error)
            for name, (own, eager, beside) in self._sums.items()
        ]
        return tuple(sorted(errors, key=lambda one: (-one.error, one.name)))


def call_with(model: Callable[..., Any], batch: object) -> object:
    """Call a model with what a batch holds."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def widened(held: object) -> object:
    """A tensor of floats in FP64; all else as it is."""
    return held.double() if isinstance(held, torch.Tensor) and held.is_floating_point() else held


def tensors_of(answer: object) -> list[tuple[int, torch.Tensor]]:
    """The tensors of floats in an answer, with their number among all that it holds."""
    return [(number, held) for number, (_, held) in enumerate(_leaves(answer)) if _is_float(held)]


def _floats(answer: object) -> dict[str, torch.Tensor]:
    """The tensors of floats in an answer, by their place in it."""
    return {pytree.keystr(path).strip(".[]'") or "output": held for path, held in _leaves(answer) if _is_float(held)}


def _leaves(answer: object) -> Sequence[tuple[Any, Any]]:
    plain: Any = answer.to_tuple() if hasattr(answer, "to_tuple") else answer
    return pytree.tree_leaves_with_path(plain)


def _is_float(held: object) -> bool:
    return isinstance(held, torch.Tensor) and held.is_floating_point()


def _check_alike(
    right: Mapping[str, torch.Tensor], got: Mapping[str, torch.Tensor], eager: Mapping[str, torch.Tensor]
) -> None:
    if not right.keys() == got.keys() == eager.keys():
        raise InputError(
            f"the compiled model answers {', '.join(got) or 'nothing'}, and the model {', '.join(right) or 'nothing'}; "
            "compare a model with what was compiled of it"
        )
