"""Compiles modules and functions, and tells of what was compiled."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import torch
from torch._dynamo.eval_frame import OptimizedModule, innermost_backend, optimize

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.torch.compiler.backend import ACCOUNT, Backend
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.inspect.accounts import Account
from mezzo.torch.train.gradient_reduction import reduce_as_before, reduce_in
from mezzo.torch.weights.weights import SHADOWS

_Model = TypeVar("_Model", bound=Callable[..., Any])
_LEFT_OUT = object()  # None is what somebody gave by mistake


class CompiledModule(OptimizedModule):
    """A module that runs compiled; all else of it is the module's own, as with torch.compile."""

    @property
    def plans(self) -> tuple[Plan | None, ...]:
        """The plan of each graph that was compiled so far; None for those left as the user wrote them."""
        return account(self).plans

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        """Copies and pickles are compiled with the same options. PyTorch's own go through what stands around calls,
        which no pickle holds.
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
    **planning: object,
) -> Any:
    """Compile a module or function with Inductor, its linear operators in low precision, its weights cast once.

    Without a model it gives what compiles one, with these options: `@mezzo.torch.compile(to="fp16")`.

    Args:
        dynamic, fullgraph, mode: as torch.compile has them.
        options: of Inductor.
        freeze: whether weights become constants: later changes of them are not seen.
        memory: of training, what bytes that are kept between forward and backward weigh beside time and error, from 0
            to 1; None: Inductor decides.
        accumulate, tile: the precision of products' sums, "fp32" or that of `to`, over tiles of so many terms, 1 unless
            given, each of which is summed in FP32. What the machine does not do is emulated, slowly.
        weight_grad_reduce: the precision in which gradients of weights are summed, "fp32", "bf16" or "fp16": over the
            workers of DistributedDataParallel, else over steps of accumulation, in `weight.grad`.
        weight_update: "fp32": low copies of weights are made once a step, and written by what `compile_update` makes of
            the optimizer; None: weights are cast wherever a call reads them.
        planning: options of `mezzo.convert`: `to` ("bf16" unless given), `policy`, `target`, `keep_region` and others.

    Raises InputError: there is no such option, or it has no such value; the model cannot be called.
    """
    controls = {
        "memory": memory,
        "accumulate": accumulate,
        "tile": tile,
        "weight_grad_reduce": weight_grad_reduce,
        "weight_update": weight_update,
    }
    if options is not None and not isinstance(options, Mapping):
        raise InputError(f"options are {options!r}; give a mapping of Inductor's options; names are those of 'mode'")
    if dynamic not in (None, True, False):
        raise InputError(f"option 'dynamic' is {dynamic!r}; give True, False, or None to let torch.compile see")
    settings = read_settings({**(options or {}), **planning, **controls, "freeze": freeze}, mode, dynamic)

    def compile_one(model: object) -> Any:
        if not callable(model):
            raise InputError(f"{type(model).__name__} is no module or function; give what is called")
        word = settings.controls.weight_grad_reduce
        backend = Backend(settings, model=None if word is None else reduce_in(model, word))
        return wrap(model, backend, dynamic=dynamic, fullgraph=fullgraph)

    return compile_one if model is _LEFT_OUT else compile_one(model)


def wrap(model: Callable[..., Any], backend: Backend, *, dynamic: bool | None = None, fullgraph: bool = False) -> Any:
    """Compile a module or function with a backend of mezzo's."""
    made = optimize(backend=backend, nopython=fullgraph, dynamic=dynamic)(model)
    if type(made) is OptimizedModule:
        made.__class__ = CompiledModule
    if backend.settings.controls.weight_grad_reduce is not None and isinstance(model, torch.nn.Module):
        reduce_as_before(made, model)
    return made


def _wrap_again(model: torch.nn.Module, backend: Backend, dynamic: bool | None, fullgraph: bool) -> Any:
    return wrap(model, backend, dynamic=dynamic, fullgraph=fullgraph)


def account(compiled: Any) -> Account:
    """What was decided for each graph of a compiled module or function.

    Raises InputError: it was not compiled by `mezzo.torch.compile`, nor by `torch.compile` with mezzo as its backend;
    or in place, and is made of modules of PyTorch's alone, which Dynamo leaves as they are without a word.
    """
    backend = _backend_of(compiled)
    _check_in_place(compiled)
    if isinstance(backend, Backend):
        return backend.account
    if getattr(backend, "compiler_name", None) == "mezzo":  # made by torch.compile for a name
        made: Account = vars(backend).setdefault(ACCOUNT, Account())
        return made
    raise InputError(
        f"{type(compiled).__name__} was not compiled by mezzo; compile it with mezzo.torch.compile, or with "
        'torch.compile(backend="mezzo")'
    )


def _check_in_place(compiled: Any) -> None:
    """Dynamo traces no forward of torch.nn itself; where all are, nothing that is compiled in place ever reaches it."""
    if not isinstance(compiled, torch.nn.Module) or compiled._compiled_call_impl is None:
        return
    if all(type(one).forward.__module__.startswith("torch.nn.") for one in compiled.modules()):
        raise InputError(
            f"{type(compiled).__name__} was compiled in place, where Dynamo leaves modules of torch.nn as they are; "
            "use what mezzo.torch.compile or torch.compile returns"
        )


def _backend_of(compiled: Any) -> object:
    """What Dynamo hands the graphs of a compiled module or function to; None of what is not compiled."""
    if isinstance(compiled, torch.nn.Module):
        context = compiled.__dict__.get("dynamo_ctx")
        if context is None:  # compiled in place, or its class was
            return _backend_of(compiled._compiled_call_impl or type(compiled).__call__)
    else:
        function = compiled.__call__ if isinstance(compiled, type) else compiled
        code = getattr(function, "__code__", None)
        held = dict(zip(code.co_freevars, function.__closure__ or (), strict=True)) if code is not None else {}
        context = held["self"].cell_contents if "self" in held else None
    callback = getattr(context, "callback", None)
    return innermost_backend(callback) if callable(callback) else None


def refresh(*compiled: Any) -> None:
    """Cast weights again at the next call, where nobody saw them change: in-place writes to `.data`, and by numpy.

    Of these modules, compiled or not; of all where none or a function is given.
    """
    if not compiled or not all(isinstance(one, torch.nn.Module) for one in compiled):
        SHADOWS.refresh()
        return
    SHADOWS.refresh(weight for one in compiled for weight in one.parameters())


def backend_of(compiled: Any) -> Backend | None:
    """What compiles the graphs of what `mezzo.torch.compile` has made; None of all else."""
    is_known = isinstance(compiled, torch.nn.Module) or callable(compiled)
    backend = _backend_of(compiled) if is_known else None
    return backend if isinstance(backend, Backend) else None
