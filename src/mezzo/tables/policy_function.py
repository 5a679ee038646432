"""Policy functions: a user's function of each node decides its category, as TVM's colouring
function does. Calls are validated.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.selectors import Site
from mezzo.tables.policy import GRANTED, Category, NodeFunction, NodeVerdict, Policy

_CATEGORIES = {category.value: category for category in Category}
_ALIASES = {"float32": HIGH, "float16": DType.FLOAT16, "bfloat16": DType.BFLOAT16}
_WANTED = f"{', '.join(_CATEGORIES)}, a tuple (category, accumulate, output), or None"
_LONGEST_FAULT = 200


def policy_of(function: NodeFunction, base: Policy, name: str | None = None) -> Policy:
    """The policy that calls `function` for each node, and falls back to `base` where it returns
    None.

    Raises InputError: the function accepts neither (site) nor (site, format name).
    """
    called = name_function(function)
    try:
        inspect.signature(function).bind(None, "fp16")
    except TypeError:
        _check_takes_site(function, called)
        function = _without_format(function, called)
    except ValueError:  # functions implemented in C have no signature
        pass
    return replace(
        base, name=name or called, summary=f"what {called} says, on {base.name}", function=function
    )


def _check_takes_site(function: NodeFunction, called: str) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise InputError(
            f"policy function {called!r} cannot be called: {error}; write it of a node, or of a"
            " node and a format"
        ) from error


def _without_format(function: Callable[..., object], called: str) -> NodeFunction:
    def ask_node(site: Site, to: str) -> object:
        return function(site)

    ask_node.__name__ = called
    return ask_node


def name_function(function: Callable[..., object]) -> str:
    """Name of a function, or of its class, for reasons and plans."""
    if isinstance(function, functools.partial):
        return name_function(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def ask(policy: Policy, site: Site, low: DType) -> NodeVerdict | None:
    """The verdict of a policy's function on a node; None leaves the node to the policy's rules.

    Raises InputError: the function fails, or returns no verdict.
    """
    if policy.function is None or low not in policy.formats:
        return None
    to = next(word for word, dtype in LOW_DTYPES.items() if dtype is low)
    called = name_function(policy.function)
    where = f"policy function {called!r}, node {site.name!r} ({site.op})"
    try:
        answer = policy.function(site, to)
    except Exception as error:
        raise InputError(
            f"{where}: it failed, {type(error).__name__}: {str(error)[:_LONGEST_FAULT]}; mend it"
        ) from error
    if answer is None:
        return None
    parts = answer if isinstance(answer, tuple | list) else (answer, None, None)
    if len(parts) != 3:
        raise InputError(f"{where}: it gave {_show(answer)}; return {_WANTED}")
    category = _CATEGORIES.get(parts[0]) if isinstance(parts[0], str) else parts[0]
    if not isinstance(category, Category):
        raise InputError(f"{where}: it gave {_show(answer)}; return {_WANTED}")
    accumulate, output = (
        _read_dtype(where, word, part, low, to)
        for word, part in zip(("accumulate", "output"), parts[1:], strict=True)
    )
    # GRANTED for every category: such a node is not promoted with its region.
    return NodeVerdict(
        category=category,
        rule=called,
        because=f"{called} gives {category.value}",
        cause=None,
        worth=GRANTED,
        accumulate=accumulate,
        output=output,
    )


def _read_dtype(where: str, word: str, part: object, low: DType, to: str) -> DType | None:
    """FP32 or the low format; None means the low format."""
    by_word: dict[object, DType | None] = {None: None, "fp32": HIGH, to: low, HIGH: HIGH, low: low}
    by_word |= {alias: dtype for alias, dtype in _ALIASES.items() if dtype in (HIGH, low)}
    if not isinstance(part, str | DType | None) or part not in by_word:
        raise InputError(f"{where}: {word} is {_show(part)}; return fp32, {to} or None")
    return by_word[part]


def _show(answer: object) -> str:
    return repr(answer)[:_LONGEST_FAULT]
