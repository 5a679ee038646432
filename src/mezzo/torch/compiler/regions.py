"""Regions: parts of a PyTorch program whose precision its author decides, and no plan.

A region is a mode of PyTorch's functions. While a program is traced it puts its word on every node that is made under
it (`mezzo.aten.marks` reads them); where nothing is traced it changes nothing.
"""

import functools
import inspect
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch._C import (
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.utils import _disable_side_effect_safety_checks_for_current_subtracer
from torch._ops import HigherOrderOperator
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.traceback import annotate, preserve_node_meta
from torch.overrides import TorchFunctionMode

from mezzo.aten.marks import FORCED, KEEP, KEY, spell_around
from mezzo.common.errors import InputError
from mezzo.formats.format_words import FormatLike, read_format

_T = TypeVar("_T")
# What takes a format, for errors.
_WHAT = "precision"


class Region(TorchFunctionMode):
    """One kind of region: `with region:`, or around a function, a method, a module or a class of modules.

    It holds nothing, so one object serves all threads and may be entered again inside itself. Entering and leaving are
    PyTorch's own, as Dynamo carries only such modes across a graph break; each word has a class of its own, as its
    guards look at classes alone.
    """

    word: ClassVar[str]

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Iterable[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.compiler.is_dynamo_compiling() or get_proxy_mode() is not None:
            return _call_marked(self.word, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def __call__(self, target: _T) -> _T:
        """The same function, or the same module or class with its `forward`, in the region whenever it is called.

        Raises InputError: it is none of these.
        """
        made: Any = target
        if isinstance(made, torch.nn.Module):
            vars(made)["forward"] = _Forward(self, made, vars(made).get("forward"))
        elif isinstance(made, type) and issubclass(made, torch.nn.Module):
            owner: Any = made
            owner.forward = _wrapped(self, owner.forward)
        elif isinstance(made, staticmethod | classmethod):
            return type(made)(_wrapped(self, made.__func__))  # type: ignore[return-value]  # called as before
        elif callable(made) and not isinstance(made, type) and not inspect.isasyncgenfunction(made):
            return _wrapped(self, made)  # type: ignore[return-value]  # called as the function that it wraps
        else:
            raise InputError(
                f"{self!r} is put around {made!r}, which is no function, method, module or class of modules; write "
                f"'with {self!r}:' inside it, around what it computes"
            )
        return target

    def __repr__(self) -> str:
        return "keep()" if self.word == KEEP else f'precision("{self.word}")'

    def __reduce__(self) -> tuple[Callable[[str], "Region"], tuple[str]]:
        return _region_of, (self.word,)


_KINDS: Mapping[str, type[Region]] = MappingProxyType(
    {word: type(f"Region_{word}", (Region,), {"word": word}) for word in (KEEP, *FORCED)}
)


def keep(*given: object) -> Region:
    """A region whose operators stay as they are written: nothing in it is converted, casts of its author's included.

    What is made outside and read inside arrives in the type that the program gives it.

    Raises InputError: something was given, as by a decorator without parentheses.
    """
    if given:
        raise InputError(f"keep takes nothing, and was given {given[0]!r}; write keep(), as a decorator too: @keep()")
    return _ready(_KINDS[KEEP]())


def precision(dtype: FormatLike) -> Region:
    """A region whose operators run in a format, whatever a policy says: "bf16", "fp16" or "fp32", or a dtype.

    Operators that have no such kernel stay in FP32. Outside of what mezzo compiles or exports it changes nothing.

    Raises InputError: it is no format, or none to run in.
    """
    word = dtype if isinstance(dtype, str) and dtype in FORCED else _word_of(dtype)
    return _ready(_KINDS[word]())


def marking() -> AbstractContextManager[None]:
    """What `torch.export.export(..., strict=False)` and `make_fx` run under, so that their graphs hold the marks."""
    under: AbstractContextManager[None] = preserve_node_meta()
    return under


def _word_of(dtype: FormatLike) -> str:
    if not torch.compiler.is_dynamo_compiling():
        return read_format(dtype, _WHAT, formats=FORCED)
    word, fault = _traced_word_of(dtype), _traced_fault_of(dtype)
    if fault:
        raise InputError(fault)
    return word


@torch.compiler.assume_constant_result
def _traced_word_of(dtype: FormatLike) -> str:
    try:
        return read_format(dtype, _WHAT, formats=FORCED)
    except InputError:
        return ""


@torch.compiler.assume_constant_result
def _traced_fault_of(dtype: FormatLike) -> str:
    try:
        read_format(dtype, _WHAT, formats=FORCED)
    except InputError as fault:
        return str(fault)
    return ""


def _ready(region: Region) -> Region:
    """The region, able to be entered. Dynamo lets a body of control flow enter a mode only where the program around it
    has entered one: so each is entered and left once before, with that check off.
    """
    if torch.compiler.is_dynamo_compiling():
        _disable_side_effect_safety_checks_for_current_subtracer(_enter_and_leave, region)
    return region


def _enter_and_leave(region: Region) -> None:
    _push_on_torch_function_stack(region)
    _pop_torch_function_stack()


def _call_marked(word: str, func: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function with the word on all that it makes, and with no other region around it: those were entered
    before, so they are further out, and would write over it. Modes of others keep their order.
    """
    if isinstance(func, HigherOrderOperator):
        word = spell_around(word, _depth() if torch.compiler.is_dynamo_compiling() else "0")
    outer = [_get_function_stack_at(at) for at in range(_len_torch_function_stack())]
    others = [mode for mode in outer if not isinstance(mode, Region)]
    if len(others) == len(outer):
        with annotate({KEY: word}):
            return func(*args, **kwargs)
    _replace_modes(outer, others)
    try:
        with annotate({KEY: word}):
            return func(*args, **kwargs)
    finally:
        _replace_modes(others, outer)


@torch.compiler.assume_constant_result
def _depth() -> str:
    """In how many bodies, one in the other, Dynamo is as this is traced."""
    tracer, depth = InstructionTranslator.current_tx().output.current_tracer, 0
    while tracer.parent is not None:
        tracer, depth = tracer.parent, depth + 1
    return str(depth)


def _replace_modes(old: Sequence[TorchFunctionMode], new: Sequence[TorchFunctionMode]) -> None:
    for _ in old:
        _pop_torch_function_stack()
    for mode in new:
        _push_on_torch_function_stack(mode)


def _wrapped(region: Region, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in the region, and so does each part of one that stops on its way."""

    @functools.wraps(function)
    def marked(*args: Any, **kwargs: Any) -> Any:
        with _ready(region):
            return function(*args, **kwargs)

    @functools.wraps(function)
    def generating(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _resumed(region, function(*args, **kwargs)))

    @functools.wraps(function)
    async def awaiting(*args: Any, **kwargs: Any) -> Any:
        return await _awaited(region, function(*args, **kwargs))

    if inspect.isgeneratorfunction(function):
        return generating
    return awaiting if inspect.iscoroutinefunction(function) else marked


@types.coroutine
def _awaited(region: Region, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return (yield from _resumed(region, coroutine))


def _resumed(region: Region, stepping: Generator[Any, Any, Any] | Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run a generator or a coroutine in a region that nobody else is in while it waits."""
    sent: Any = None
    step = stepping.send
    while True:
        try:
            with _ready(region):
                waiting = step(sent)
        except StopIteration as end:
            return end.value
        try:
            sent, step = (yield waiting), stepping.send
        except GeneratorExit:
            with _ready(region):
                stepping.close()
            raise
        except BaseException as error:  # noqa: BLE001  # whatever is thrown in is the generator's to catch
            sent, step = error, stepping.throw


class _Forward:
    """A module's `forward` in a region: found on the module, and copied, pickled and saved with it."""

    __slots__ = ("_inner", "_module", "_region")
    __name__ = "forward"

    def __init__(self, region: Region, module: torch.nn.Module, inner: Callable[..., Any] | None) -> None:
        self._region, self._module, self._inner = region, module, inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _ready(self._region):
            if self._inner is not None:
                return self._inner(*args, **kwargs)
            return type(self._module).forward(self._module, *args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """What `inspect.signature` reads, and with it whoever names inputs by it."""
        return types.MethodType(type(self._module).forward, self._module) if self._inner is None else self._inner

    @property
    def __code__(self) -> types.CodeType:
        return self.__wrapped__.__code__  # where the module is written, for `torch.export`

    @property
    def __func__(self) -> Callable[..., Any]:
        """By whose code `nested_compile_region` knows graphs that may be one: not those of different regions."""
        code = _Forward.__call__.__code__.replace(co_name=f"forward in {self._region!r}")
        return types.FunctionType(code, globals())


def _region_of(word: str) -> Region:
    return _KINDS[word]()
