"""The Dynamo backend: hands each graph to Inductor with a pass that plans it, and feeds it low weights."""

import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
import torch._functorch.config
import torch._inductor.config
import torch._inductor.lowering  # before anybody asks for its decompositions
from torch import fx
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from mezzo.aten.marks import mark_disabled_autocast
from mezzo.aten.program import FROM_DTYPE
from mezzo.common.errors import InputError
from mezzo.planner.options import Options
from mezzo.torch.compiler.as_written import decompositions_for
from mezzo.torch.compiler.fitting import names_nodes
from mezzo.torch.compiler.passes import Before, Copy, PlanningPass
from mezzo.torch.compiler.settings import Settings, read_settings
from mezzo.torch.inspect.accounts import Account, GraphAccount
from mezzo.torch.onednn.kernels import packs
from mezzo.torch.train.gradient_reduction import check_wrapper, hold_format
from mezzo.torch.train.hidden_gradients import HidingGradients
from mezzo.torch.train.optimizer.updates import check_masters
from mezzo.torch.weights.weight_inputs import Edited, device_of, with_candidates, without_candidates
from mezzo.torch.weights.weights import Feed

Compiled = Callable[..., Any]
# Where a compiler that torch.compile has made for the name of a backend keeps the account.
ACCOUNT = "mezzo_account"
_PASS = "joint_custom_pre_pass"


class Backend:
    """What Dynamo calls with each graph. Copies and pickles have the same settings and an account of their own.

    Of `model`, which it does not keep alive, the gradients of weights are held to the format that they are summed in.
    """

    __name__ = "mezzo"

    def __init__(
        self,
        settings: Settings,
        inner_compile: Callable[..., Any] = compile_fx_inner,
        model: torch.nn.Module | None = None,
    ) -> None:
        self.settings, self.inner_compile = settings, inner_compile
        self._model = None if model is None else weakref.ref(model)
        self.account = Account()
        reduce = settings.controls.weight_grad_reduce
        if settings.is_frozen or reduce is not None or names_nodes(settings.planning().planning):
            self.backend_ctx_ctor: Callable[[], AbstractContextManager[None]] = self._around_a_call
        else:  # of weights that another compiled module has
            self.backend_ctx_ctor = HidingGradients

    def __reduce__(self) -> tuple[type["Backend"], tuple[Settings, Callable[..., Any], torch.nn.Module | None]]:
        return type(self), (self.settings, self.inner_compile, self.model)

    @property
    def model(self) -> torch.nn.Module | None:
        """The module whose gradients have a format of their own, as long as it lives; None where there is none."""
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
        if sys.exc_info()[0] is None:  # a pattern may match in any graph of the call: now all of them are there
            self.account.check()

    def __call__(self, module: fx.GraphModule, inputs: Sequence[object], **ignored: object) -> Compiled:
        mark_disabled_autocast(module)
        inductor = dict(self.settings.inductor)
        options = self.settings.planning(device_of(inputs))
        low = FROM_DTYPE[options.planning.low]
        is_trained = torch.is_grad_enabled() and any(
            isinstance(one, torch.Tensor) and one.requires_grad for one in inputs
        )
        if is_trained and self.settings.controls.weight_update is None:
            edited = without_candidates(module, inputs)
        else:
            edited = with_candidates(module, inputs, low, packs=not is_trained and self._packs(low))
        if is_trained and self.settings.controls.weight_update is not None:
            try:
                check_masters(inputs, edited.names)
            except InputError as error:
                return refusing(error)
        theirs = _as_passes(inductor.get(_PASS, getattr(torch._inductor.config, _PASS)))
        planning = self.make_pass(edited, options, theirs)
        inductor[_PASS] = planning
        # A hit of this cache would never run the pass, so nobody would know the plan; Inductor's own cache is asked
        # after it, and is where the time goes.
        with torch._functorch.config.patch(enable_autograd_cache=False):
            run = compile_fx(
                edited.module,
                cast("Any", edited.inputs),
                inner_compile=self.inner_compile,
                config_patches=inductor,
                decompositions=decompositions_for(edited.module),
            )
        self.account.graphs.append(
            GraphAccount(
                plan=planning.plan,
                casts=planning.casts,
                shadows=tuple(copy.of.name for copy in planning.copies),
                shadow_bytes=sum(_size(edited.inputs[copy.of.low]) for copy in planning.copies),
                packed=tuple(copy.of.name for copy in planning.copies if copy.place == copy.of.slot),
                note=planning.note,
                idle=None if planning.idle is None else planning.idle.because,
                unmatched=planning.unmatched,
                bodies={"/".join(one.path): one.planned.plan for one in planning.bodies if one.planned is not None},
                notes={"/".join(one.path): one.note for one in planning.bodies if one.note is not None},
                has_backward=planning.is_joint,
                kept_bytes=None if planning.kept is None else planning.kept.kept_bytes,
                native_sums=planning.native_sums,
                handed_on=planning.handed_on,
                as_products=planning.as_products,
                sketch=planning.sketch,
            )
        )
        if planning.idle is not None and planning.idle.is_unmeant:
            warnings.warn(planning.idle.because, stacklevel=2)
        if planning.fault is not None:
            return refusing(planning.fault)
        added = len(edited.inputs) - len(inputs)
        compiled = cast("Compiled", run)
        return _feeding(compiled, planning.copies, added, low) if added else compiled

    def _packs(self, low: torch.dtype) -> bool:
        """Whether weights may come in packed: Inductor's C++ wrapper takes tensors with strides alone."""
        is_wrapped = self.settings.inductor.get("cpp_wrapper", torch._inductor.config.cpp_wrapper)
        return not is_wrapped and torch.backends.mkldnn.enabled and packs(low)

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        """What Inductor runs on the functional graph."""
        return PlanningPass(edited, options, self.settings.digest, theirs, self.settings.controls)


def freezing() -> AbstractContextManager[Any]:
    """Let Dynamo trace weights as constants. It looks when it traces, so this stands around every call."""
    return cast("AbstractContextManager[Any]", torch._inductor.config.patch(freezing=True))


def refusing(error: InputError) -> Compiled:
    """A call that raises. What is raised while Dynamo compiles comes wrapped in errors of its own."""

    def call(*given: Any) -> Any:
        raise InputError(str(error))

    return call


def _as_passes(given: Any) -> Before:
    """What Inductor's option holds: no pass, one, or several."""
    return () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)


def _size(held: object) -> int:
    assert isinstance(held, torch.Tensor), "a candidate is a tensor"
    return held.numel() * held.element_size()


def _feeding(run: Compiled, copies: Sequence[Copy], added: int, dtype: torch.dtype) -> Compiled:
    """A call that hands the copies of weights on, behind what it is given."""
    behind = Feed([(copy.of.weight, copy.place, copy.recipe) for copy in copies], added, dtype).behind

    def call(*given: Any) -> Any:
        return run(*behind(given))

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
        if settings.is_frozen:  # Dynamo has traced already, with weights as inputs
            raise InputError(
                "option 'freeze' comes too late for a backend; use mezzo.torch.compile(model, freeze=True)"
            )
        if settings.controls.weight_grad_reduce is not None:  # a graph knows neither its module nor what is around it
            word = settings.controls.weight_grad_reduce
            raise InputError(
                "option 'weight_grad_reduce' is of a module, and a backend is given graphs; use "
                f"mezzo.torch.compile(model, weight_grad_reduce={word!r})"
            )
    except InputError as error:
        return refusing(error)
    backend = Backend(settings)
    backend.account = account_of_caller()
    made = backend(module, inputs)
    for said in backend.account.graphs[-1].unmatched.values():
        warnings.warn(f"in a graph that mezzo was given, {said}", stacklevel=2)
    return made


def account_of_caller() -> Account:
    """The account of what Dynamo compiles now for a call of `torch.compile`: it stands at what that has made."""
    current = InstructionTranslator.current_tx()
    asked = current.output.compiler_fn
    return Account() if asked is None else vars(innermost_backend(asked)).setdefault(ACCOUNT, Account())


def register() -> None:
    """Let `torch.compile` know the backend where mezzo's metadata is not installed."""
    if "mezzo" not in list_backends(exclude_tags=()):
        register_backend(mezzo, name="mezzo")
