"""Holds the numbers that a page takes from the pages of docs/figures/ to those that stand there.

A paragraph, an item of a list or a row of a table that leads to sections of the figures cites them; so does a table
behind such a paragraph that ends with a colon. Every number in it that is worth citing (three digits, or a fraction)
stands in one of those sections too, so a table that is measured again takes the pages along that speak of it.
"""

import re
from collections.abc import Iterator
from functools import cache

from page_blocks import ROOT

_LINK = re.compile(r"figures/([\w-]+\.md#[\w-]+)\)")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w.]*\w)")


def uncited_numbers(text: str) -> list[str]:
    """The numbers of a page that the sections of the figures which they are from do not have."""
    faults = []
    for sections, passage in _citations(text):
        there = {number for section in sections for number in _numbers(_section(section))}
        cited = " or ".join(f"figures/{section}" for section in sections)
        faults += [f"{cited} has no {number}" for number in _numbers(passage) if number not in there]
    return faults


def _citations(text: str) -> Iterator[tuple[list[str], str]]:
    """Sections of the figures, `casts-and-strategies.md#casts`, with the passage that cites them."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    passages = [part.strip() for part in re.split(r"\n\s*\n|\n(?=- )", prose) if part.strip()]
    for passage, after in zip(passages, [*passages[1:], ""], strict=True):
        for part in passage.splitlines() if passage.startswith("|") else [passage]:
            if sections := _LINK.findall(part):
                yield sections, part
        if passage.endswith(":") and after.startswith("|") and (sections := _LINK.findall(passage)):
            yield sections, after


def _numbers(passage: str) -> Iterator[str]:
    """The numbers worth citing, without commas, quotes and links left out."""
    plain = re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", passage)
    for match in _NUMBER.finditer(plain):
        number = match[0].rstrip(",").replace(",", "")
        if "." in number or len(number) >= 3:
            yield number


@cache
def _section(link: str) -> str:
    """The text below a heading of the figures, deeper headings included; of an anchor that is none, nothing."""
    page, _, anchor = link.partition("#")
    text = (ROOT / "docs" / "figures" / page).read_text(encoding="utf-8")
    parts = re.split(r"^(#+) (.+)$", text, flags=re.MULTILINE)
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
