"""Python keywords of a request's options: validation of `**options`, and signatures and docstrings
for `help` and editors. Type checkers read `mezzo.contracts.options.keyword_types`.
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from mezzo.common.name_matching import ask_for, matching_names, nearest
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.option import Form, about, spell_option
from mezzo.contracts.options.request import Request

_Verb = TypeVar("_Verb", bound=Callable[..., object])
_ARGUMENTS, _ERRORS = "    Args:\n", "    Raises:\n"
# The names before the colon of a docstring's entry; lines that go on are indented further.
_ENTRY = re.compile(r"^ {8}(\w[\w,\s]*):", re.MULTILINE)


def named_options(given: Mapping[str, object]) -> dict[str, Any]:
    """The options that a caller has set; None counts as not set.

    Raises TypeError: no option has such a name.
    """
    other_names = {option.name: about(option).also for option in fields(Request)}
    for name in given:
        if name not in other_names:
            asked = ask_for(matching_names(name, other_names) or nearest(name, other_names, 1))
            hint = f"; {asked}" if asked else ""
            raise TypeError(f"got an unexpected keyword argument {name!r}{hint}")
    return {name: value for name, value in given.items() if value is not None}


def named_settings(given: Mapping[str, object]) -> dict[str, Any]:
    """The set options that are settings of plans. Errors as in `named_options`."""
    named = named_options(given)
    return {
        option.name: named[option.name]
        for option in fields(Request)
        if option.name in named and about(option).is_setting
    }


def spell_keyword(flag: str, value: str) -> str:
    """An option as it is written on the command line, as a Python keyword: "--include", "/mm" is
    "include=['/mm']".
    """
    option = next(o for o in fields(Request) if spell_option(o.name, about(o).form) == flag)
    match about(option).form:
        case Form.PATTERNS | Form.PATHS | Form.PORT_PAIRS:
            return f"{option.name}={[value]!r}"
        case Form.PATH_DTYPES | Form.PORT_DTYPES if "=" in value:
            name, _, dtype = value.rpartition("=")
            return f"{option.name}={ {name: dtype}!r}"
        case _:
            return f"{option.name}={value!r}"


def request_of(given: Mapping[str, object]) -> Request:
    """The request of a verb that writes a model. Errors as in `named_options`."""
    return Request(**named_options(given))


def planning_request_of(given: Mapping[str, object]) -> Request:
    """The request of a verb that only plans. Raises TypeError: no such option, or it concerns a
    written file.
    """
    for option in fields(Request):
        if option.name in given and about(option).is_of_result:
            raise TypeError(
                f"got an unexpected keyword argument {option.name!r}, which is about a result"
            )
    return request_of(given)


def documents_options(verb: _Verb) -> _Verb:
    """Decorator for a verb with `**options`: adds each option to the signature, with its default,
    and to the docstring if missing there.
    """
    return _with_options(verb, {})


def documents_options_with(**usual: object) -> Callable[[_Verb], _Verb]:
    """The same, for a verb in which some options have other defaults."""
    return lambda verb: _with_options(verb, usual)


def _with_options(verb: _Verb, usual: Mapping[str, object]) -> _Verb:
    signature = inspect.signature(verb)
    last = list(signature.parameters.values())[-1]
    assert last.kind is last.VAR_KEYWORD, "the options come last"
    is_planning = last.annotation.__args__ == (PlanOptions,)  # of Unpack
    listed = [
        option for option in fields(Request) if not (is_planning and about(option).is_of_result)
    ]
    own = [parameter for parameter in signature.parameters.values() if parameter is not last]
    placed = [parameter for parameter in own if parameter.kind is not parameter.KEYWORD_ONLY]
    keywords = [parameter for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
    options = [
        inspect.Parameter(
            o.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=usual.get(o.name, _default(o)),
            annotation=o.type,
        )
        for o in listed
    ]
    full_signature = signature.replace(parameters=[*placed, *options, *keywords])
    verb.__signature__ = full_signature  # type: ignore[attr-defined]  # what `inspect` reads
    verb.__doc__ = _document(verb.__doc__ or "", listed)
    return verb


def _default(option: Field[Any]) -> object:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _document(doc: str, options: list[Field[Any]]) -> str:
    """A docstring whose `Args` have an entry for each option."""
    if _ARGUMENTS not in doc:
        text, title, errors = doc.partition(_ERRORS)
        doc = f"{text.rstrip()}\n\n{_ARGUMENTS}\n{title}{errors}"
    text, title, entries = doc.partition(_ARGUMENTS)
    documented = set(re.findall(r"\w+", " ".join(_ENTRY.findall(entries))))
    missing = [option for option in options if option.name not in documented]
    return text + title + "".join(map(_spell_entry, missing)) + entries


def _spell_entry(option: Field[Any]) -> str:
    help_text = about(option).help
    text = f"{option.name}: {help_text[0].lower()}{help_text[1:]}"
    indent = " " * 8
    lines = textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=f"{indent}    ")
    return "".join(f"{line}\n" for line in lines)
