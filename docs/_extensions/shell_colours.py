"""Colours shell blocks: programs, options, strings, and of a session the commands apart from what they print."""

import re
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Generic, Keyword, Name, Operator, String, Text
from sphinx.application import Sphinx

_COMMAND = [
    (r"(\\\n)", Text),
    (r"\n", Text, "#pop"),
    (r"  +#[^\n]*", Comment),
    (r"'[^'\n]*'|\"[^\"\n]*\"", String),
    (r"&&|[|<>]", Operator),
    (r"(?<!\S)--?[A-Za-z][\w-]*", Name.Attribute),
    (r"[^\S\n]+|[^\s'\"|<>&]+|.", Text),
]
_PROGRAM = r"(?:mezzo|make|pip|python3?|trtexec|cp|cat|grep)(?=\s|$)"


class ShellLexer(RegexLexer):
    """Commands, one a line."""

    name = "mezzo shell"
    flags = re.MULTILINE
    tokens: ClassVar = {
        "root": [(r"#[^\n]*\n", Comment), (_PROGRAM, Keyword, "command"), (r"", Text, "command")],
        "command": _COMMAND,
    }


class SessionLexer(RegexLexer):
    """Commands behind a prompt, and what they print."""

    name = "mezzo session"
    flags = re.MULTILINE
    tokens: ClassVar = {
        "root": [
            (rf"^(\$ )({_PROGRAM})", bygroups(Generic.Prompt, Keyword), "command"),
            (r"^\$ ", Generic.Prompt, "command"),
            (r"[^\n]*\n", Generic.Output),
        ],
        "command": _COMMAND,
    }


def setup(app: Sphinx) -> dict[str, bool]:
    """Sphinx's way in."""
    app.add_lexer("sh", ShellLexer)
    app.add_lexer("console", SessionLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
