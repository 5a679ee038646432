"""Colours for a model's typed listing: precisions stand out, casts are dimmed."""

import re

from rich.text import Text

from mezzo.report.layout.parts import dtype_style

_DTYPE = re.compile(r"(?:(?<=: )|(?<=\{to=))(?:b?f\d+\w*)(?=\[|\}|,|\(| =|$)")
_CAST = re.compile(r"^\s*\S[^=]* = Cast(?:Like)?\(")
_WORD = re.compile(r"^\s*(?:input|given|weight|sparse|output|yield|return|function)\b")


def colour(line: str) -> Text:
    """One line of a listing in colour; the text is unchanged."""
    text = Text(line, no_wrap=True, overflow="ignore", end="")
    if _CAST.match(line):
        text.stylize("dim")
    word = _WORD.match(line)
    if word is not None:
        text.stylize("bold", *word.span())
    for match in _DTYPE.finditer(line):
        text.stylize(dtype_style(match.group()), *match.span())
    return text
