"""What a caller asks for: the options of a conversion, one field each. Whatever else speaks of options is derived from
these fields: the settings of plans, what goes without saying in reports and metadata, what decides a model anew.
"""

import enum
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from mezzo.core.policy import NodeFunction, Policy
from mezzo.core.target import Target
from mezzo.dtypes import LOW_DTYPES
from mezzo.errors import InputError

# Names of inputs and outputs to a dtype's option, or one word for all of them.
IO = str | Mapping[str, str]
# A preset's name, the path of a policy file, a policy, or a function of each node.
PolicyLike = str | os.PathLike[str] | Policy | NodeFunction
# A target's name, the path of a target file, a target, or the usual one of the low format.
TargetLike = str | os.PathLike[str] | Target | None


class Scope(enum.Enum):
    """What an option decides about. A model that tells how it was decided is decided anew where one about every node
    is another than then; one about single nodes comes on top; of the others a model need not be held to account.
    """

    EVERY_NODE = "every node"
    SINGLE_NODES = "single nodes"
    OTHER = "other"


_SCOPE, _IS_SAID, _IS_SETTING = "scope", "is_said", "is_setting"


def about(scope: Scope, *, is_said: bool = False, is_setting: bool = True) -> dict[str, object]:
    """What holds for an option: `is_said` in reports even at its default; `is_setting` of the plan."""
    return {_SCOPE: scope, _IS_SAID: is_said, _IS_SETTING: is_setting}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller asks for, in the words of `mezzo.convert`, which tells what they mean."""

    to: str | Sequence[str] = field(default="fp16", metadata=about(Scope.OTHER, is_said=True))
    policy: PolicyLike = field(default="balanced", metadata=about(Scope.EVERY_NODE, is_said=True))
    strategy: str = field(default="mincut", metadata=about(Scope.EVERY_NODE, is_said=True))
    target: TargetLike = field(default=None, metadata=about(Scope.EVERY_NODE, is_said=True))
    include: Sequence[str] = field(default=(), metadata=about(Scope.SINGLE_NODES))
    exclude: Sequence[str] = field(default=(), metadata=about(Scope.SINGLE_NODES))
    keep_region: Sequence[str] = field(default=(), metadata=about(Scope.SINGLE_NODES))
    fix_region: Mapping[str, str] = field(default_factory=dict, metadata=about(Scope.SINGLE_NODES))
    io: IO = field(default="keep", metadata=about(Scope.SINGLE_NODES))
    out_of_range: str = field(default="protect", metadata=about(Scope.EVERY_NODE))
    opset: str = field(default="auto", metadata=about(Scope.OTHER))
    assume: Mapping[str, str] = field(default_factory=dict, metadata=about(Scope.EVERY_NODE))
    provenance: bool = field(default=True, metadata=about(Scope.OTHER, is_setting=False))


def read_formats(to: str | Sequence[str]) -> tuple[str, ...]:
    """The formats asked for: one word, several with commas between them, or a sequence of words.

    Raises InputError: one of them is no format, or is said twice, or there is none.
    """
    words, choices = tuple(to.split(",") if isinstance(to, str) else to), ", ".join(LOW_DTYPES)
    strange = [word for word in words if word not in LOW_DTYPES]
    if len(words) > 1 and strange:
        raise InputError(f"to is {to!r}, of which {strange[0]!r} is no format; choose of {choices}")
    if strange or not words:
        raise InputError(f"to is {to!r}; choose one of {choices}")
    if len(set(words)) < len(words):
        raise InputError(f"to is {to!r}, which says a format twice; say each once")
    return words


def one_format(to: str | Sequence[str]) -> str:
    """The one format asked for: a model takes no two beside FP32 yet.

    Raises InputError: none is asked for, or several, or what is no format.
    """
    words = read_formats(to)
    if len(words) > 1:
        raise InputError(
            f"to is {to!r}, two floats beside FP32, and neither holds the other's numbers: one has the range, the "
            f"other the digits; choose one of {', '.join(words)}"
        )
    return words[0]


def _settings(kind: type[Request]) -> tuple[Field[Any], ...]:
    return tuple(option for option in fields(kind) if option.metadata[_IS_SETTING])


def settings_of(request: Request, **read: str) -> tuple[tuple[str, str], ...]:
    """A request as the settings of a plan. `read`: how options are spelled that were read from a name or a file."""
    options = _settings(type(request))
    return tuple((option.name, read.get(option.name) or _spell(getattr(request, option.name))) for option in options)


def _spell(value: object) -> str:
    match value:
        case str():
            return value
        case Mapping():
            return json.dumps(dict(value))
        case Sequence():
            return json.dumps(list(value))
        case _:
            return str(value)


def usual_settings(kind: type[Request] = Request) -> dict[str, str | None]:
    """The settings of a plan at their defaults, which go without saying; None for one that is always said."""
    usual = dict(settings_of(kind()))
    return {option.name: None if option.metadata[_IS_SAID] else usual[option.name] for option in _settings(kind)}


def options_about(scope: Scope, kind: type[Request] = Request) -> tuple[str, ...]:
    """The names of the options that decide about this."""
    return tuple(option.name for option in fields(kind) if option.metadata[_SCOPE] is scope)
