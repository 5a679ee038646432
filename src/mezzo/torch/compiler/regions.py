"""Precision regions: `keep()` and `precision()`, which override the planner for parts of a program.

A region is a TorchFunctionMode. During tracing it marks every node created under it
(`mezzo.aten.marks` reads the marks); outside of tracing it has no effect.
"""

import functools
import inspect
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.traceback import annotate, preserve_node_meta
from torch.overrides import TorchFunctionMode

from mezzo.aten.encoder_layers import FUNCTIONS
from mezzo.aten.marks import FORCED, KEEP, KEY, spell_around
from mezzo.aten.torch_internals import HigherOrderOperator
from mezzo.common.errors import InputError
from mezzo.formats.format_words import FormatLike, read_format
from mezzo.torch.torch_internals import (
    InstructionTranslator,
    count_function_modes,
    function_mode_at,
    get_overridable_functions,
    pop_function_mode,
    push_function_mode,
    without_side_effect_checks,
)

_T = TypeVar("_T")
# The option name in error messages.
_WHAT = "precision"


class Region(TorchFunctionMode):
    """A precision region: `with region:`, or a decorator of functions, methods and modules.

    It has no state: one object serves all threads and may be nested in itself. It inherits
    `__enter__` and `__exit__`, because Dynamo carries only such modes across a graph break. Each
    word has its own class, because Dynamo's guards check only classes.
    """

    word: ClassVar[str]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.compiler.is_dynamo_compiling() or get_proxy_mode() is not None:
            return _call_marked(self.word, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def __call__(self, target: _T) -> _T:
        """The function, module or class with its `forward`, running in the region at every call.

        Raises InputError: it is none of these.
        """
        wrapped: Any = target
        if isinstance(wrapped, torch.nn.Module):
            vars(wrapped)["forward"] = _Forward(self, wrapped, vars(wrapped).get("forward"))
        elif isinstance(wrapped, type) and issubclass(wrapped, torch.nn.Module):
            module_class: Any = wrapped
            module_class.forward = _wrapped(self, module_class.forward)
        elif isinstance(wrapped, staticmethod | classmethod):
            return type(wrapped)(_wrapped(self, wrapped.__func__))  # type: ignore[return-value]  # called as before
        elif (
            callable(wrapped)
            and not isinstance(wrapped, type)
            and not inspect.isasyncgenfunction(wrapped)
        ):
            return _wrapped(self, wrapped)  # type: ignore[return-value]  # called as the function that it wraps
        else:
            raise InputError(
                f"{self!r} is put around {wrapped!r}, which is no function, method, module or class"
                f" of modules; write 'with {self!r}:' inside it, around what it computes"
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
    """A region whose operators stay as written: nothing is converted, and its own casts remain.

    Values that enter the region have the type that the program gives them.

    Raises InputError: an argument is given, as by a decorator without parentheses.
    """
    if given:
        raise InputError(
            f"keep takes nothing, and was given {given[0]!r}; write keep(), as a decorator too:"
            " @keep()"
        )
    return _ready(_KINDS[KEEP]())


def precision(dtype: FormatLike) -> Region:
    """A region whose operators run in "bf16", "fp16" or "fp32", or a dtype, under any policy.

    Operators without such a kernel stay in FP32. It has no effect outside of what mezzo compiles or
    exports.

    Raises InputError: the format is unknown, or operators cannot run in it.
    """
    word = dtype if isinstance(dtype, str) and dtype in FORCED else _word_of(dtype)
    return _ready(_KINDS[word]())


def marking() -> AbstractContextManager[None]:
    """Context for non-strict `torch.export.export` and `make_fx` that preserves marks."""
    context: AbstractContextManager[None] = preserve_node_meta()
    return context


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
    """The region, prepared for entering. Dynamo lets a control flow subgraph enter a mode only if
    the surrounding program has entered one, so each is entered and left once before, with that
    check disabled.
    """
    if torch.compiler.is_dynamo_compiling():
        _see_fused_layers()
        without_side_effect_checks(_enter_and_leave, region)
    return region


@torch.compiler.assume_constant_result
def _see_fused_layers() -> bool:
    """Make Dynamo tell function modes of PyTorch's fused encoder layers, which it leaves out."""
    get_overridable_functions().update(FUNCTIONS)
    return True


def _enter_and_leave(region: Region) -> None:
    push_function_mode(region)
    pop_function_mode()


def _call_marked(
    word: str, func: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function with the mark on all nodes that it creates. Other regions are removed during
    the call, since `annotate` lets the outermost mark win. Other modes keep their order.
    """
    if isinstance(func, HigherOrderOperator):
        word = spell_around(word, _depth() if torch.compiler.is_dynamo_compiling() else "0")
    outer = [function_mode_at(position) for position in range(count_function_modes())]
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
    """The number of nested subgraphs at the current point of Dynamo's tracing."""
    tracer, depth = InstructionTranslator.current_tx().output.current_tracer, 0
    while tracer.parent is not None:
        tracer, depth = tracer.parent, depth + 1
    return str(depth)


def _replace_modes(old: Sequence[TorchFunctionMode], new: Sequence[TorchFunctionMode]) -> None:
    for _ in old:
        pop_function_mode()
    for mode in new:
        push_function_mode(mode)


def _wrapped(region: Region, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in the region; of generators and coroutines, every step does."""

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


def _resumed(
    region: Region, generator: Generator[Any, Any, Any] | Coroutine[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """Run a generator or coroutine in a region that is left while it is suspended."""
    sent: Any = None
    advance = generator.send
    while True:
        try:
            with _ready(region):
                yielded = advance(sent)
        except StopIteration as end:
            return end.value
        try:
            sent, advance = (yield yielded), generator.send
        except GeneratorExit:
            with _ready(region):
                generator.close()
            raise
        except BaseException as error:  # noqa: BLE001  # the generator may catch any exception
            sent, advance = error, generator.throw


class _Forward:
    """A module's `forward` in a region, copied and pickled with the module."""

    __slots__ = ("_inner", "_module", "_region")
    __name__ = "forward"

    def __init__(
        self, region: Region, module: torch.nn.Module, inner: Callable[..., Any] | None
    ) -> None:
        self._region, self._module, self._inner = region, module, inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _ready(self._region):
            if self._inner is not None:
                return self._inner(*args, **kwargs)
            return type(self._module).forward(self._module, *args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The original function, for `inspect.signature`."""
        return (
            types.MethodType(type(self._module).forward, self._module)
            if self._inner is None
            else self._inner
        )

    @property
    def __code__(self) -> types.CodeType:
        return self.__wrapped__.__code__  # the source location that torch.export records

    @property
    def __func__(self) -> Callable[..., Any]:
        """A code object per region: `nested_compile_region` shares graphs by equal code."""
        code = _Forward.__call__.__code__.replace(co_name=f"forward in {self._region!r}")
        return types.FunctionType(code, globals())


def _region_of(word: str) -> Region:
    return _KINDS[word]()
