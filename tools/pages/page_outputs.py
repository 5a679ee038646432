"""Compares outputs that stand in pages with what commands print, and puts the right ones in their place.

Two outputs are alike if their lines are, word for word, up to what no two runs or machines have in common:

    time       `4.8 s`, `12 ms`: any other
    version    `1.31.1`: any other
    size       `208 KB`: within a tenth
    measured   a number with a fraction or an exponent: within a tenth

Whole numbers, names and all words are exact: counts of nodes and casts, verdicts, reasons, commands.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from page_blocks import Block

LEFT_OUT = "..."
_TOLERANCE = 0.1
_CUT = re.compile(r"^(.+) \((\d+) lines\)$")
_TIME = re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:us|ms|s|min)\b")
_VERSION = re.compile(r"(?<![\w.])\d+\.\d+\.\d+(?![\w.])")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) (B|KB|MB|GB)\b")
_MEASURED = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")


class NoSuchPart(ValueError):
    """An output has no paragraph that begins as a page says."""


def parts_of(printed: str, parts: Sequence[str]) -> str:
    """An output as a page shows it: whole, or only those paragraphs that begin with one of `parts`.

    Raises:
        NoSuchPart: no paragraph begins with one of them.
    """
    whole = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    if not parts:
        return whole
    paragraphs = whole.split("\n\n")
    shown: list[str] = []
    left = False
    for paragraph in paragraphs:
        wanted = next((part for part in parts if paragraph.startswith(_begin(part))), None)
        if wanted is None:
            left = True
            continue
        shown += [LEFT_OUT] if left else []
        shown += _cut(paragraph.splitlines(), wanted)
        shown.append("")
        left = False
    for part in parts:
        if not any(paragraph.startswith(_begin(part)) for paragraph in paragraphs):
            raise NoSuchPart(f"no paragraph of the output begins with {_begin(part)!r}; it is\n{whole}")
    return "\n".join([*shown[:-1], *([LEFT_OUT] if left and shown[-2] != LEFT_OUT else [])])


def _begin(part: str) -> str:
    found = _CUT.match(part)
    return found[1] if found else part


def _cut(lines: list[str], part: str) -> list[str]:
    found = _CUT.match(part)
    if found is None or int(found[2]) >= len(lines):
        return lines
    return [*lines[: int(found[2])], LEFT_OUT]


def is_alike(shown: str, printed: str) -> bool:
    """Whether a page's output is what was printed, up to the rules above."""
    before, after = shown.splitlines(), printed.splitlines()
    return len(before) == len(after) and all(map(_is_line_alike, before, after))


def _is_line_alike(shown: str, printed: str) -> bool:
    numbers: list[list[tuple[float, str]]] = [[], []]
    texts = []
    for line, found in zip((shown, printed), numbers, strict=True):
        texts.append(_without_measured(" ".join(line.split()), found))
    return texts[0] == texts[1] and all(
        unit == other and abs(before - after) <= _TOLERANCE * max(abs(before), abs(after))
        for (before, unit), (after, other) in zip(*numbers, strict=True)
    )


def _without_measured(line: str, found: list[tuple[float, str]]) -> str:
    """The line with signs in the place of what may differ; the numbers that may differ only a little go to `found`."""

    def keep_size(match: re.Match[str]) -> str:
        found.append((float(match[1]), match[2]))
        return "<size>"

    def keep_measured(match: re.Match[str]) -> str:
        if not re.search(r"[.e]", match[0]):
            return match[0]
        found.append((float(match[0]), ""))
        return "<measured>"

    line = _TIME.sub("<time>", line)
    line = _VERSION.sub("<version>", line)
    line = _SIZE.sub(keep_size, line)
    return _MEASURED.sub(keep_measured, line)


def put(page: Path, texts: Mapping[Block, str]) -> None:
    """Write the texts of blocks into their page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for block, text in sorted(texts.items(), key=lambda item: -item[0].line):
        spelled = [f"{block.indent}{line}".rstrip() for line in text.splitlines()]
        first = block.line - 1
        lines[first : first + block.text.count("\n") + bool(block.text)] = spelled
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
