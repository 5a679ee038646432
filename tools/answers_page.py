"""Writes docs/reference/answers.md: what people type or hand over, and what mezzo answers, from the tests' transcripts.

python tools/answers_page.py           # writes the page
python tools/answers_page.py --check   # ends with 1 if the page differs from the transcripts
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from generated import keep

_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs" / "reference" / "answers.md"
TRANSCRIPTS = _ROOT / "tests" / "answers" / "golden"
_TITLES = {
    "dtypes": "Formats",
    "names": "Names",
    "usage": "Commands, options and places",
    "foreign": "Files and folders",
    "data": "Data",
    "explain": "What `explain` takes",
}
HEAD = """\
# What mezzo answers

<!-- Written by tools/answers_page.py from tests/answers/golden: change those, then run the script. -->

What people type or hand over, and each answer as it is printed; the tests hold every line. `$` is a command line, and
`[2]` its exit code where that is not 0; `>>>` is Python, `torch.float16` there as torch has it. Nothing printed: it was
understood, and done. `model.onnx` is a small normalization over an input `x`, `bert.onnx` two blocks that look up
`input_ids`.
"""


def spell_page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name, title in _TITLES.items():
        parts += [f"## {title}\n", *_sections((TRANSCRIPTS / f"{name}.txt").read_text(encoding="utf-8"))]
    return "\n".join(parts)


def _sections(text: str) -> Iterator[str]:
    """The parts of a transcript: a comment is a line of its own, what is below it a block."""
    block: list[str] = []
    for line in [*text.splitlines(), "#"]:
        if not line.startswith("#"):
            block.append(line)
            continue
        if any(block):
            yield "```text\n" + "\n".join(block).strip("\n") + "\n```\n"
        block = []
        if comment := line.removeprefix("#").strip():
            yield f"{comment}{'' if comment.endswith('.') else ':'}\n"


if __name__ == "__main__":
    sys.exit(keep({PAGE: spell_page()}, "the transcripts", __doc__))
