"""What holds of an option: what it decides about, how it is written in words, its help, and who takes it. A field of a
request carries one of these; the command line, keywords, folders, plans and reports read it there.
"""

import enum
from collections.abc import Mapping
from dataclasses import KW_ONLY, Field, dataclass
from typing import Any


class Scope(enum.Enum):
    """What an option decides about. A model that tells how it was decided is decided anew where one about every node
    is another than then; one about single nodes comes on top; of the others a model need not be held to account.
    """

    EVERY_NODE = "every node"
    SINGLE_NODES = "single nodes"
    OTHER = "other"


class Form(enum.Enum):
    """How an option is written in words. The last six may be repeated, one part each time, but for the flag."""

    FORMATS = "a low format, or several with commas"
    CHOICE = "one of its choices"
    WORDS = "some of its choices, with commas"
    NAME = "the name of a plug-in, or the path of a file that holds one"
    PATTERNS = "globs on nodes, or op: and one on operators"
    PATHS = "paths of scopes or modules"
    PATH_DTYPES = "such a path, = and a dtype"
    PORT_DTYPES = "one of its choices for all inputs and outputs, or a name, = and a dtype"
    PORT_ENDS = "a name, =, and two numbers with .. between them"
    FLAG = "there, or not; what is true unless said otherwise is written --no-NAME"


class Panel(enum.Enum):
    """Where the help of a command lists an option."""

    WHAT = "What to decide"
    WHERE = "Exceptions"
    FILES = "Files and output"


# Forms whose parts name nodes of a model, where an option that names none is an error.
NAMING_NODES = frozenset({Form.PATTERNS, Form.PATHS, Form.PATH_DTYPES})
_KEY = "about"


@dataclass(frozen=True, slots=True)
class About:
    """What holds of an option beside its name, type and default.

    `choices` of those forms that have some; `also` are the names that other tools have for it, which it asks back for.
    `plug_in` is the kind that discovery finds, `is_file` says that a path does as well. `usual` tells the default in
    words where its value does not. `is_said`: in reports even at its default; `is_setting`: of the plan;
    `is_of_result`: about the file that is written, so only verbs that write one take it.
    """

    help: str
    form: Form
    scope: Scope
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

    def as_metadata(self) -> Mapping[str, "About"]:
        """What a field of a request carries."""
        return {_KEY: self}


def about(option: Field[Any]) -> About:
    """What holds of an option."""
    said = option.metadata[_KEY]
    assert isinstance(said, About), f"{option.name} says what it is about"
    return said


def spell_option(name: str, form: Form, default: object = None) -> str:
    """An option as it is written on a command line."""
    word = name.replace("_", "-")
    return f"--no-{word}" if form is Form.FLAG and default is True else f"--{word}"


def asked_so(rule: str, pattern: str) -> str:
    """The evidence where a user asked for what a node runs in; the rule is called as the option is."""
    return f"the user asked so with --{rule} {pattern!r}"
