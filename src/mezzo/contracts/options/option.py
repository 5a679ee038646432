"""Metadata of an option: scope, written form, help and aliases. The command line, keywords,
folders, plans and reports read it from the fields of `Request`.
"""

import enum
from collections.abc import Mapping
from dataclasses import KW_ONLY, Field, dataclass
from typing import Any


class OptionScope(enum.Enum):
    """What an option decides about. When a converted model is converted again, a changed EVERY_NODE
    option discards its recorded decisions; SINGLE_NODES options are applied on top of them; OTHER
    options have no effect on them.
    """

    EVERY_NODE = "every node"
    SINGLE_NODES = "single nodes"
    OTHER = "other"


class Form(enum.Enum):
    """How an option is written as text. The last seven, except the flag, may be repeated, one part
    each time.
    """

    FORMATS = "a low format, or several with commas"
    CHOICE = "one of its choices"
    WORDS = "some of its choices, with commas"
    NAME = "the name of a plug-in, or the path of a file that holds one"
    SHARE = "a number from 0 to 1"
    PATTERNS = "globs on nodes, or op: and one on operators"
    PATHS = "paths of scopes or modules"
    PATH_DTYPES = "such a path, = and a dtype"
    PORT_DTYPES = "one of its choices for all inputs and outputs, or a name, = and a dtype"
    PORT_ENDS = "a name, =, and two numbers with .. between them"
    PORT_PAIRS = "the name of an output, = and that of an input, or guess"
    FLAG = "there, or not; what is true unless said otherwise is written --no-NAME"


class Panel(enum.Enum):
    """The group that lists an option in the help of a command, in the order of the help. `--help`
    shows COMMON, and names the options of the other groups.
    """

    COMMON = "Common options"
    WHAT = "Formats and policy"
    TARGET = "Target"
    WHERE = "Single nodes and inputs"
    DATA = "Data"
    VERDICT = "Verdict"
    CLUSTER = "Cluster"
    FILES = "Files and output"


# Forms that name nodes of a model: an option that matches no node is an error.
NAMING_NODES = frozenset({Form.PATTERNS, Form.PATHS, Form.PATH_DTYPES})
_KEY = "about"


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """Metadata of an option, in addition to its name, type and default.

    `choices`: for forms that have some; `also`: names in other tools, suggested in errors.
    `plug_in`: the kind of plug-in that it names; `is_file`: a path is accepted as well. `usual`:
    the default in words, if it is computed. `is_said`: shown in reports even at its default;
    `is_setting`: recorded in the plan; `is_of_result`: about the file that is written, so only
    verbs that write one accept it.
    """

    help: str
    form: Form
    scope: OptionScope
    panel: Panel
    _: KW_ONLY
    choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    plug_in: str | None = None
    is_file: bool = False
    usual: str | None = None
    is_said: bool = False
    is_setting: bool = True
    is_of_result: bool = False

    def as_metadata(self) -> Mapping[str, "OptionInfo"]:
        """Metadata for a dataclass field."""
        return {_KEY: self}


def about(option: Field[Any]) -> OptionInfo:
    """The metadata of an option's field."""
    metadata = option.metadata[_KEY]
    assert isinstance(metadata, OptionInfo), f"{option.name} says what it is about"
    return metadata


def spell_option(name: str, form: Form, default: object = None) -> str:
    """An option's flag on the command line."""
    word = name.replace("_", "-")
    return f"--no-{word}" if form is Form.FLAG and default is True else f"--{word}"


def because_requested(rule: str, pattern: str) -> str:
    """The reason text for a precision that the user requested; `rule` is the option's name."""
    return f"the user asked so with --{rule} {pattern!r}"
