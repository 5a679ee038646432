"""`mezzo.torch.compile`, and access to the plans of compiled modules and functions."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MethodType
from typing import Any, TypeVar, overload

import torch

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import write_file
from mezzo.contracts.plans import Plan
from mezzo.torch.budgets import plans_within
from mezzo.torch.compiler.backend import ACCOUNT, Backend
from mezzo.torch.compiler.settings import check_data, read_settings
from mezzo.torch.generation.compiled_methods import CompiledForward
from mezzo.torch.inspect.accounts import NOTHING, Account
from mezzo.torch.plans_from_data import plans_from_data
from mezzo.torch.saved_plans import load_plans, spell_plans
from mezzo.torch.torch_internals import OptimizedModule, innermost_backend, optimize
from mezzo.torch.train.gradient_reduction import reduce_as_before, reduce_in
from mezzo.torch.weights.weights import SHADOWS

_Model = TypeVar("_Model", bound=Callable[..., Any])
_FORWARD = "mezzo_forward"
_LEFT_OUT = object()  # not None, which a caller may pass by mistake


class CompiledModule(OptimizedModule):
    """A compiled module with the original's attributes, as torch.compile returns it. Methods, such
    as `generate`, call the compiled forward.
    """

    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        module = self._modules["_orig_mod"]
        is_method = isinstance(attribute, MethodType) and attribute.__self__ is module
        if not is_method or torch.compiler.is_compiling():
            return attribute
        state = self.__dict__
        if _FORWARD not in state:
            state[_FORWARD] = CompiledForward(module, self.dynamo_ctx)
        return state[_FORWARD].method(attribute)

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """The plan of each compiled graph so far; None for graphs that were left unchanged."""
        return account(self).plans

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        """Copies and pickles are compiled again with the same options. PyTorch's own method would
        pickle context managers, which fails.
        """
        context = self.dynamo_ctx
        return _wrap_again, (self._orig_mod, backend_of(self), context._dynamic, context.fullgraph)


@overload
def compile(
    model: Callable[..., Any],
    *,
    dynamic: bool | None = ...,
    fullgraph: bool = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    freeze: bool = ...,
    memory: float | None = ...,
    accumulate: object = ...,
    tile: int | None = ...,
    weight_grad_reduce: object = ...,
    weight_update: object = ...,
    data: Iterable[object] | None = ...,
    max_error: float | None = ...,
    plan: str | os.PathLike[str] | None = ...,
    **planning: object,
) -> Any: ...


@overload
def compile(
    *,
    dynamic: bool | None = ...,
    fullgraph: bool = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    freeze: bool = ...,
    memory: float | None = ...,
    accumulate: object = ...,
    tile: int | None = ...,
    weight_grad_reduce: object = ...,
    weight_update: object = ...,
    data: Iterable[object] | None = ...,
    max_error: float | None = ...,
    plan: str | os.PathLike[str] | None = ...,
    **planning: object,
) -> Callable[[_Model], _Model]: ...


def compile(
    model: object = _LEFT_OUT,
    *,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    freeze: bool = False,
    memory: float | None = None,
    accumulate: object = None,
    tile: int | None = None,
    weight_grad_reduce: object = None,
    weight_update: object = None,
    data: Iterable[object] | None = None,
    max_error: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    **planning: object,
) -> Any:
    """Compile a module or function with Inductor in mixed precision, and in inference
    cast its weights once.

    Without a model, returns a decorator with these options: `@mezzo.torch.compile(to="fp16")`.

    Args:
        dynamic, fullgraph, mode: as in torch.compile.
        options: Inductor's options.
        freeze: treat weights as constants; later changes of them have no effect.
        memory: in training, how much fewer saved bytes count against time and error, from 0 to 1;
            None lets Inductor choose what is saved for the backward.
        accumulate, tile: the accumulator's precision in matmuls and convolutions, "fp32" or that of
            `to`, and how many products (default 1) are summed in FP32 before each addition to it.
            Emulated, slowly, where the hardware lacks it.
        weight_grad_reduce: precision for summing weight gradients, "fp32", "bf16" or "fp16": across
            the workers of DistributedDataParallel, otherwise across accumulation steps in
            `weight.grad`.
        weight_update: "fp32" keeps master weights, whose low-precision copies the optimizer of
            `compile_update` writes at each step; None casts weights at every use in training.
        data: batches, as in `mezzo.torch.compare`, that scales are from with "int8" in `to`, or
            that `max_error` is held on; the model runs on them now. With `calibrator="none"` INT8
            needs none, as ranges are found at run time.
        max_error: with data, the largest relative L2 error of an output, as of `mezzo.tune`: the
            plan is the cheapest that holds it.
        plan: a file of `save_plan`, whose plans are replayed: with "int8" in place of data. A graph
            that it has no plan of is planned, and has no INT8.
        planning: options of `mezzo.convert`: `to` (default "bf16"), `policy`, `target`,
            `keep_region` and others. `correct`, what INT8 corrects on data, is of frozen weights.

    Raises InputError: an option is unknown or has an invalid value; the model cannot be called.
    """
    controls = {
        "memory": memory,
        "accumulate": accumulate,
        "tile": tile,
        "weight_grad_reduce": weight_grad_reduce,
        "weight_update": weight_update,
    }
    if options is not None and not isinstance(options, Mapping):
        raise InputError(
            f"options are {options!r}; give a mapping of Inductor's options; names are those of"
            " 'mode'"
        )
    if dynamic not in (None, True, False):
        raise InputError(
            f"option 'dynamic' is {dynamic!r}; give True, False, or None to let torch.compile see"
        )
    settings = read_settings(
        {**(options or {}), **planning, **controls, "freeze": freeze},
        mode,
        dynamic,
        None if plan is None else load_plans(plan),
    )

    check_data(settings, data, max_error)

    def compile_one(model: object) -> Any:
        nonlocal settings
        if not callable(model):
            raise InputError(
                f"{type(model).__name__} is no module or function; give what is called"
            )
        if data is not None and max_error is not None:
            settings = replace(settings, saved=plans_within(model, settings, data, max_error))
        elif data is not None:
            settings = replace(settings, saved=plans_from_data(model, settings, data))
        grad_format = settings.controls.weight_grad_reduce
        backend = Backend(
            settings, model=None if grad_format is None else reduce_in(model, grad_format)
        )
        return wrap(model, backend, dynamic=dynamic, fullgraph=fullgraph)

    return compile_one if model is _LEFT_OUT else compile_one(model)


def wrap(
    model: Callable[..., Any],
    backend: Backend,
    *,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Any:
    """Compile a module or function with one of mezzo's backends."""
    compiled = optimize(backend=backend, nopython=fullgraph, dynamic=dynamic)(model)
    if type(compiled) is OptimizedModule:
        compiled.__class__ = CompiledModule
    if backend.settings.controls.weight_grad_reduce is not None and isinstance(
        model, torch.nn.Module
    ):
        reduce_as_before(compiled, model)
    return compiled


def _wrap_again(
    model: torch.nn.Module, backend: Backend, dynamic: bool | None, fullgraph: bool
) -> Any:
    return wrap(model, backend, dynamic=dynamic, fullgraph=fullgraph)


def account(compiled: Any) -> Account:
    """The decisions for each graph of a compiled module or function.

    Raises InputError: it was not compiled by `mezzo.torch.compile` or by `torch.compile` with
    backend "mezzo"; or it was compiled in place and contains only torch.nn modules, which Dynamo
    silently skips.
    """
    backend = _backend_of(compiled)
    _check_in_place(compiled)
    if isinstance(backend, Backend):
        return backend.account
    # Torch.compile's wrapper for a backend given by name.
    if getattr(backend, "compiler_name", None) == "mezzo":
        result: Account = vars(backend).setdefault(ACCOUNT, Account())
        return result
    raise InputError(
        f"{type(compiled).__name__} was not compiled by mezzo; compile it with mezzo.torch.compile,"
        ' or with torch.compile(backend="mezzo")'
    )


def save_plan(compiled: Any, path: str | os.PathLike[str]) -> None:
    """Write the plans of a compiled module's graphs to a file, for `compile(plan=path)`: with INT8
    it needs no data then.

    Raises InputError: no graph was planned yet, a plan cannot be saved, or the file not written.
    """
    plans = [plan for plan in account(compiled).plans if plan is not None]
    if not plans:
        raise InputError(f"there is no plan to save: {NOTHING}")
    write_file(path, spell_plans(plans).encode(), "plan")


def _check_in_place(compiled: Any) -> None:
    """Reject in-place compilation of pure torch.nn modules, which Dynamo does not trace."""
    if not isinstance(compiled, torch.nn.Module) or compiled._compiled_call_impl is None:
        return
    if all(
        type(module).forward.__module__.startswith("torch.nn.") for module in compiled.modules()
    ):
        raise InputError(
            f"{type(compiled).__name__} was compiled in place, where Dynamo leaves modules of"
            " torch.nn as they are; use what mezzo.torch.compile or torch.compile returns"
        )


def _backend_of(compiled: Any) -> object:
    """The Dynamo backend of a compiled module or function; None if it is not compiled."""
    if isinstance(compiled, torch.nn.Module):
        context = compiled.__dict__.get("dynamo_ctx")
        if context is None:  # the module or its class was compiled in place
            return _backend_of(compiled._compiled_call_impl or type(compiled).__call__)
    else:
        function = compiled.__call__ if isinstance(compiled, type) else compiled
        code = getattr(function, "__code__", None)
        closure = (
            dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
            if code is not None
            else {}
        )
        context = closure["self"].cell_contents if "self" in closure else None
    callback = getattr(context, "callback", None)
    return innermost_backend(callback) if callable(callback) else None


def refresh(*compiled: Any) -> None:
    """Cast weights again after changes that cannot be detected: writes to `.data` or by numpy.

    Applies to these modules, compiled or not; to all without arguments, or if one is no module.
    """
    if not compiled or not all(isinstance(module, torch.nn.Module) for module in compiled):
        SHADOWS.refresh()
        return
    SHADOWS.refresh(weight for module in compiled for weight in module.parameters())


def backend_of(compiled: Any) -> Backend | None:
    """The backend of a result of `mezzo.torch.compile`; None for any other object."""
    can_be_compiled = isinstance(compiled, torch.nn.Module) or callable(compiled)
    backend = _backend_of(compiled) if can_be_compiled else None
    return backend if isinstance(backend, Backend) else None
