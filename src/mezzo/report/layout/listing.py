"""Colours the typed text of a model: precisions stand out, casts step back."""

import re

from rich.text import Text

from mezzo.report.layout.layout import dtype_style

_DTYPE = re.compile(r"(?:(?<=: )|(?<=\{to=))(?:b?f\d+\w*)(?=\[|\}|,|\(| =|$)")
_CAST = re.compile(r"^\s*\S[^=]* = Cast(?:Like)?\(")
_WORD = re.compile(r"^\s*(?:input|given|weight|sparse|output|yield|return|function)\b")


def colour(line: str) -> Text:
    """One line of a listing, in colour. The text itself stays as it is."""
    text = Text(line, no_wrap=True, overflow="ignore", end="")
    if _CAST.match(line):
        text.stylize("dim")
    word = _WORD.match(line)
    if word is not None:
        text.stylize("bold", *word.span())
    for found in _DTYPE.finditer(line):
        text.stylize(dtype_style(found.group()), *found.span())
    return text
