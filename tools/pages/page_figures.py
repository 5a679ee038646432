"""Holds the numbers that a page takes from docs/figures.md to those that stand there.

A paragraph, or an item of a list, that leads to a section of the figures cites it; so does a table behind such a
paragraph that ends with a colon. Every number in it that is worth citing (three digits, or a fraction) stands in that
section too, so a table that is measured again takes the pages along that speak of it.
"""

import re
from collections.abc import Iterator
from functools import cache

from page_blocks import ROOT

_LINK = re.compile(r"figures\.md#([\w-]+)\)")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)")


def uncited_numbers(text: str) -> list[str]:
    """The numbers of a page that the section of the figures which they are from does not have."""
    faults = []
    for section, passage in _citations(text):
        there = set(_numbers(_section(section)))
        faults += [f"figures.md#{section} has no {number}" for number in _numbers(passage) if number not in there]
    return faults


def _citations(text: str) -> Iterator[tuple[str, str]]:
    """Sections of the figures, each with the passage that cites it."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    passages = [part for part in re.split(r"\n\s*\n|\n(?=- )", prose) if part.strip()]
    for passage, after in zip(passages, [*passages[1:], ""], strict=True):
        for section in _LINK.findall(passage):
            yield section, passage
            if passage.rstrip().endswith(":") and after.startswith("|"):
                yield section, after


def _numbers(passage: str) -> Iterator[str]:
    """The numbers worth citing, without commas, quotes and links left out."""
    plain = re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", passage)
    for match in _NUMBER.finditer(plain):
        number = match[0].rstrip(",").replace(",", "")
        if "." in number or len(number) >= 3:
            yield number


@cache
def _section(anchor: str) -> str:
    """The text below a heading of the figures, deeper headings included; of an anchor that is none, nothing."""
    parts = re.split(r"^(#+) (.+)$", (ROOT / "docs" / "figures.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found, level = "", 0
    for marks, title, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        slug = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        if slug == anchor:
            level = len(marks)
        elif level and len(marks) <= level:
            level = 0
        if level:
            found += body
    return found
