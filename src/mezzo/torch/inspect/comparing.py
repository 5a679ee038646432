"""`mezzo.torch.compare`: errors of a compiled model's outputs and layers against FP32 and FP64."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from mezzo.common.errors import InputError
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.numerics.metrics.layer_errors import LayerErrors, OutputError
from mezzo.torch.compiler.arguments import batches_of, call_with, check_callable, check_module
from mezzo.torch.compiler.compiled import backend_of
from mezzo.torch.inspect.layers import LayerWatch, Sums, add_errors
from mezzo.torch.torch_internals import pytree

LAYERS = ("modules", "operators", "none")
_NOT_OURS = "layers were not looked at: what was compared was not made by mezzo.torch.compile"


def compare(
    model: torch.nn.Module,
    compiled: Callable[..., Any],
    data: Iterable[object],
    *,
    layers: str = "modules",
) -> LayerErrors:
    """Measure a compiled model's error against its model in FP64 and FP32, and find the layers
    where it arises.

    Output errors are those of the compiled model on this machine. Layer errors are **emulated**:
    the graphs are planned again and evaluated call by call, with every value rounded to its planned
    type, so generated code may have smaller errors. The model and its buffers are not modified;
    parameters are shared.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one
            tensor.
        layers: "modules", the output of each module; "operators", each operator of the plan;
            "none", model outputs only.

    Raises InputError: the model is not a module, there is no batch, or no output is a float tensor.
    """
    check_module(model)
    check_callable(compiled, "compiled")
    if layers not in LAYERS:
        raise InputError(f"layers is {layers!r}; choose one of {', '.join(LAYERS)}")
    backend = backend_of(compiled) if layers != "none" else None
    watch = (
        None
        if backend is None
        else LayerWatch(model, backend, is_by_operator=layers == "operators")
    )
    outputs = _Outputs(model, compiled)
    batches = 0
    with torch.no_grad():
        for batch in batches_of(data):
            batches += 1
            outputs.add(batch)
            if watch is not None:
                watch.add(lambda model_copy, batch=batch: call_with(model_copy, batch))  # type: ignore[misc]  # bound now
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
    """Output errors, accumulated over batches."""

    def __init__(self, model: torch.nn.Module, compiled: Callable[..., Any]) -> None:
        self._model, self._compiled, self._exact = model, compiled, copy.deepcopy(model).double()
        self._sums: dict[str, Sums] = {}

    def add(self, batch: object) -> None:
        # PyTorch 2.13 is wrong by a fifth with FP64 operands, an FP32 mask and AVX2 alone, in its
        # flash attention.
        with sdpa_kernel(SDPBackend.MATH):
            exact = _floats(call_with(self._exact, pytree.tree_map(widened, batch)))
        compiled, eager = (
            _floats(call_with(model, batch)) for model in (self._compiled, self._model)
        )
        _check_alike(exact, compiled, eager)
        for name, reference in exact.items():
            sums = self._sums.setdefault(name, (ErrorSum(), ErrorSum(), ErrorSum()))
            add_errors(sums, reference, eager[name], compiled[name])

    def results(self) -> tuple[OutputError, ...]:
        if not self._sums:
            raise InputError("no output of the model holds floats; there is nothing to compare")
        errors = [
            OutputError(name=name, error=total.error, eager=eager.error, beside_fp32=to_fp32.error)
            for name, (total, eager, to_fp32) in self._sums.items()
        ]
        return tuple(sorted(errors, key=lambda output: (-output.error, output.name)))


def widened(held: object) -> object:
    """Float tensors in FP64; other values unchanged."""
    return held.double() if isinstance(held, torch.Tensor) and held.is_floating_point() else held


def tensors_of(answer: object) -> list[tuple[int, torch.Tensor]]:
    """The float tensors of a model's output, with their index among all leaves."""
    return [(index, leaf) for index, (_, leaf) in enumerate(_leaves(answer)) if _is_float(leaf)]


def _floats(output: object) -> dict[str, torch.Tensor]:
    """The float tensors of a model's output, by their path."""
    return {
        pytree.keystr(path).strip(".[]'") or "output": leaf
        for path, leaf in _leaves(output)
        if _is_float(leaf)
    }


def _leaves(output: object) -> Sequence[tuple[Any, Any]]:
    container: Any = output.to_tuple() if hasattr(output, "to_tuple") else output
    return pytree.tree_leaves_with_path(container)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _check_alike(
    exact: Mapping[str, torch.Tensor],
    got: Mapping[str, torch.Tensor],
    eager: Mapping[str, torch.Tensor],
) -> None:
    if not exact.keys() == got.keys() == eager.keys():
        raise InputError(
            f"the compiled model answers {', '.join(got) or 'nothing'}, and the model"
            f" {', '.join(exact) or 'nothing'}; compare a model with what was compiled of it"
        )
