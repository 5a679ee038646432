"""The Dynamo backend: compiles graphs with Inductor, a planning pass and cached low weights."""

import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import fx

from mezzo.aten.blocks import size_of
from mezzo.aten.encoder_layers import call_parts
from mezzo.aten.marks import mark_disabled_autocast
from mezzo.aten.program import float_type
from mezzo.common.errors import InputError
from mezzo.planner.options import Options
from mezzo.torch.compiler.as_written import decompositions_for
from mezzo.torch.compiler.fitting import names_nodes
from mezzo.torch.compiler.passes import Before, Copy, PlanningPass
from mezzo.torch.compiler.scales import scales_sums
from mezzo.torch.compiler.settings import CompilerSettings, read_settings
from mezzo.torch.compiler.unused_inputs import with_empty_unused_inputs
from mezzo.torch.inspect.accounts import Account, GraphAccount
from mezzo.torch.onednn.kernels import packs
from mezzo.torch.torch_internals import (
    GuardBuilder,
    InstructionTranslator,
    compile_fx,
    compile_fx_inner,
    functorch_config,
    inductor_config,
    innermost_backend,
    install_guard,
    register_backend,
)
from mezzo.torch.train.gradient_reduction import check_wrapper, hold_format
from mezzo.torch.train.hidden_gradients import HidingGradients
from mezzo.torch.train.optimizer.updates import check_masters
from mezzo.torch.weights.int8_layouts import Int8Filter, Int8Integers, Int8Matrix, Int8Scales
from mezzo.torch.weights.weight_inputs import (
    Edited,
    device_of,
    is_in_module,
    with_candidates,
    without_candidates,
)
from mezzo.torch.weights.weight_layouts import Int4Grids, Int4Matrix, Int8wMatrix, Int8wScales
from mezzo.torch.weights.weights import Feed

Compiled = Callable[..., Any]
# Attribute of torch.compile's backend wrapper that holds the account.
ACCOUNT = "mezzo_account"
_PASS = "joint_custom_pre_pass"


class Backend:
    """The callable that Dynamo calls with each graph.

    Copies and pickles have the same settings and an empty account. `model`, held by a weak
    reference, gets the format in which its weight gradients are summed.
    """

    __name__ = "mezzo"

    def __init__(
        self,
        settings: CompilerSettings,
        inner_compile: Callable[..., Any] = compile_fx_inner,
        model: torch.nn.Module | None = None,
    ) -> None:
        self.settings, self.inner_compile = settings, inner_compile
        self._model = None if model is None else weakref.ref(model)
        self.account = Account()
        reduce = settings.controls.weight_grad_reduce
        if settings.is_frozen or reduce is not None or names_nodes(settings.planning().planning):
            self.backend_ctx_ctor: Callable[[], AbstractContextManager[None]] = self._around_a_call
        else:  # hide gradients of weights shared with another compiled module
            self.backend_ctx_ctor = HidingGradients

    def __reduce__(
        self,
    ) -> tuple[
        type["Backend"], tuple[CompilerSettings, Callable[..., Any], torch.nn.Module | None]
    ]:
        return type(self), (self.settings, self.inner_compile, self.model)

    @property
    def model(self) -> torch.nn.Module | None:
        """The module with its own gradient format, while it is alive; None if there is none."""
        return None if self._model is None else self._model()

    @contextmanager
    def _around_a_call(self) -> Iterator[None]:
        word, model = self.settings.controls.weight_grad_reduce, self.model
        if word is not None:
            check_wrapper(word)
            if model is not None and torch.is_grad_enabled():
                hold_format(model, word)
        with freezing() if self.settings.is_frozen else nullcontext(), HidingGradients():
            yield
        if sys.exc_info()[0] is None:  # a pattern may match in any of the call's graphs
            self.account.check()

    def __call__(
        self, module: fx.GraphModule, inputs: Sequence[object], **ignored: object
    ) -> Compiled:
        mark_disabled_autocast(module)
        inductor = dict(self.settings.inductor)
        try:
            call_parts(module)
            options = self.settings.planning(device_of(inputs))
            if self.settings.is_frozen:
                _guard_frozen(module)
        except InputError as error:  # the usual target of another device than the CPU
            return refusing(error)
        low = float_type(options.planning.low)
        is_trained = torch.is_grad_enabled() and any(
            isinstance(input_tensor, torch.Tensor) and input_tensor.requires_grad
            for input_tensor in inputs
        )
        if is_trained and self.settings.controls.weight_update is None:
            edited = without_candidates(module, inputs)
        else:
            are_scaled = scales_sums(options.planning.target)
            packs_floats = not (is_trained or are_scaled) and self._packs() and packs(low)
            is_quantized = options.planning.line.quantized is not None
            edited = with_candidates(
                module,
                inputs,
                low,
                packs=packs_floats,
                has_integers=(packs_floats and bool(options.planning.weight_bits))
                or (not is_trained and self._packs() and is_quantized),
            )
        if is_trained and self.settings.controls.weight_update is not None:
            try:
                check_masters(inputs, edited.names)
            except InputError as error:
                return refusing(error)
        user_passes = _as_passes(inductor.get(_PASS, getattr(inductor_config, _PASS)))
        planning = self.make_pass(edited, options, user_passes)
        inductor[_PASS] = planning
        # A hit in AOTAutograd's cache would skip the pass, and no plan would be recorded.
        # Inductor's own cache is consulted after the pass and saves most of the time.
        with functorch_config.patch(enable_autograd_cache=False):
            run = compile_fx(
                edited.module,
                cast("Any", edited.inputs),
                inner_compile=with_empty_unused_inputs(self.inner_compile, len(inputs)),
                config_patches=inductor,
                decompositions=decompositions_for(edited.module),
            )
        reason = planning.no_conversion_reason
        self.account.graphs.append(
            GraphAccount(
                plan=planning.plan,
                casts=planning.casts,
                shadows=tuple(dict.fromkeys(copy.of.name for copy in planning.copies)),
                shadow_bytes=sum(
                    _size(copy, edited.inputs[copy.of.low]) for copy in planning.copies
                ),
                packed=tuple(
                    copy.of.name for copy in planning.copies if copy.place == copy.of.slot
                ),
                int4_products=planning.int4_products,
                int8_products=planning.int8_products,
                note=planning.note,
                no_conversion_reason=None if reason is None else reason.because,
                unmatched=planning.unmatched,
                bodies={
                    "/".join(subgraph.path): subgraph.planned.plan
                    for subgraph in planning.bodies
                    if subgraph.planned is not None
                },
                notes={
                    "/".join(subgraph.path): subgraph.note
                    for subgraph in planning.bodies
                    if subgraph.note is not None
                },
                has_backward=planning.is_joint,
                kept_bytes=None if planning.kept is None else planning.kept.kept_bytes,
                native_sums=planning.native_sums,
                fp32_outputs=planning.fp32_outputs,
                as_products=planning.as_products,
                as_loops=planning.as_loops,
                snapshot=planning.snapshot,
            )
        )
        if reason is not None and reason.is_unmeant:
            warnings.warn(reason.because, stacklevel=2)
        if planning.emulated is not None:
            tell_once(planning.emulated)
        if planning.fault is not None:
            return refusing(planning.fault)
        added = len(edited.inputs) - len(inputs)
        compiled = cast("Compiled", run)
        return _feeding(compiled, planning.copies, added, low) if added else compiled

    def _packs(self) -> bool:
        """Whether oneDNN may pack weights, which Inductor's C++ wrapper does not support."""
        is_wrapped = self.settings.inductor.get("cpp_wrapper", inductor_config.cpp_wrapper)
        return not is_wrapped and torch.backends.mkldnn.enabled

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        """The pass that Inductor runs on the functional graph."""
        settings = self.settings
        return PlanningPass(
            edited,
            options,
            settings.digest,
            theirs,
            settings.controls,
            settings.options_of(options),
        )


def _guard_frozen(module: fx.GraphModule) -> None:
    """Compile again when a weight, or a tensor that a module holds, is replaced by another: Dynamo
    guards those that a compilation without freezing has seen before by shape and dtype alone.

    Raises InputError: a graph holds a tensor of the caller's that another call may replace, unseen.
    """
    sources: Mapping[str, Any] = getattr(module, "_param_name_to_source", {})
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if getattr(tensor, "_dynamo_static_input_type", None) != "unguarded":
            continue
        source = sources.get(name)
        is_weight = isinstance(tensor, torch.nn.Parameter)
        if not is_weight and (source is None or not is_in_module(source)):
            raise InputError(
                f"freeze=True cannot be used with a static cache ({name}): torch.compile would use"
                " the first one in every call; compile without 'freeze', or generate with a"
                " dynamic cache"
            )
        if source is not None:
            install_guard(source.make_guard(GuardBuilder.ID_MATCH))


def freezing() -> AbstractContextManager[Any]:
    """Make Dynamo trace weights as constants. Wraps every call, as Dynamo traces inside it."""
    context: AbstractContextManager[Any] = inductor_config.patch(freezing=True)
    return context


def refusing(error: InputError) -> Compiled:
    """A compiled call that raises `error`; Dynamo would wrap an error raised during compilation."""

    def call(*args: Any) -> Any:
        raise InputError(str(error))

    return call


def _as_passes(option: Any) -> Before:
    """An Inductor pass option (None, one pass or several) as a tuple."""
    return (
        () if option is None else tuple(option) if isinstance(option, list | tuple) else (option,)
    )


def _size(copy: Copy, low: object) -> int:
    """Bytes of a copy. `low`: an example of the low-precision copy."""
    assert isinstance(low, torch.Tensor), "a candidate is a tensor"
    match copy.layout:
        case Int4Matrix(storage=storage) | Int8wMatrix(storage=storage):
            return size_of(low.shape, storage)
        case Int4Grids() | Int8Scales() | Int8wScales():
            return 0  # counted with the matrix
        case Int8Matrix() | Int8Filter() | Int8Integers():
            return low.numel()
    return low.numel() * low.element_size()


def _feeding(run: Compiled, copies: Sequence[Copy], added: int, dtype: torch.dtype) -> Compiled:
    """A call that appends the low-precision weights to its arguments."""
    behind = Feed(
        [(copy.of.weight, copy.place, copy.layout) for copy in copies], added, dtype
    ).behind

    def call(*args: Any) -> Any:
        return run(*behind(args))

    return call


def mezzo(
    module: fx.GraphModule,
    inputs: Sequence[object],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """The backend of `torch.compile(model, backend="mezzo", options={...})`."""
    try:
        settings = read_settings(options or {}, mode)
        if settings.is_frozen:  # Dynamo has already traced weights as inputs
            raise InputError(
                "option 'freeze' comes too late for a backend; use mezzo.torch.compile(model,"
                " freeze=True)"
            )
        planning = settings.planning().planning
        if planning.line.quantized is not None and not planning.is_dynamic:
            raise InputError(
                "to has int8, whose scales come from data, and a backend is given none; use"
                " mezzo.torch.compile(model, data=[batch, ...]), or let ranges be found at run"
                " time, with calibrator='none'"
            )
        if settings.controls.weight_grad_reduce is not None:  # a graph does not know its module
            grad_format = settings.controls.weight_grad_reduce
            raise InputError(
                "option 'weight_grad_reduce' is of a module, and a backend is given graphs; use "
                f"mezzo.torch.compile(model, weight_grad_reduce={grad_format!r})"
            )
    except InputError as error:
        return refusing(error)
    backend = Backend(settings)
    backend.account = account_of_caller()
    compiled = backend(module, inputs)
    for message in backend.account.graphs[-1].unmatched.values():
        warnings.warn(f"in a graph that mezzo was given, {message}", stacklevel=2)
    return compiled


def account_of_caller() -> Account:
    """The account of the torch.compile call that Dynamo currently compiles for."""
    current = InstructionTranslator.current_tx()
    compiler = current.output.compiler_fn
    return (
        Account()
        if compiler is None
        else vars(innermost_backend(compiler)).setdefault(ACCOUNT, Account())
    )


def register() -> None:
    """Register the backend with `torch.compile` if mezzo's package metadata is not installed."""
    if "mezzo" not in torch.compiler.list_backends(exclude_tags=()):
        register_backend(mezzo, name="mezzo")


@functools.cache
def tell_once(message: str) -> None:
    """Warn once in a process: Dynamo makes Python forget what it has warned of."""
    warnings.warn(message, stacklevel=3)
