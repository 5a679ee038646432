"""Reads the pages of docs/: their code blocks, and what a comment above a block says of it.

A block is run unless the comment says what it needs. These comments are known, each on a line of its own:

    <!-- needs: torch, a GPU -->    runs only where all of that is there, else is compiled only
    <!-- gives: 1 -->               the last command of the block ends with this exit code
    <!-- output -->                 every line of the block stands in the output of the block before
"""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_COMMENT = re.compile(r"^<!-- (needs|gives|output)(?:: (.+?))? -->$")
_FENCE = re.compile(r"^( *)```(\S*)\s*$")
# What a page may ask for, and the package or program that tells whether it is there; None: never, where tests run.
_NEEDS = {
    "a GPU": None,
    "a browser": None,
    "a transformer": None,  # a model of some size, which nobody commits
    "TensorRT": "tensorrt",
    "trtexec": "trtexec",
    "ModelOpt": "modelopt",
}


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its first line, counted from 1."""

    page: Path
    line: int
    language: str
    text: str
    needs: tuple[str, ...] = ()
    gives: int = 0
    is_output: bool = False

    @property
    def missing(self) -> list[str]:
        """What it needs and is not here."""
        return [need for need in self.needs if not _is_there(need)]

    def __str__(self) -> str:
        return f"{self.page.stem}-{self.line}"


def _is_there(need: str) -> bool:
    if need == "CUDA":
        import onnxruntime

        return "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    name = _NEEDS.get(need, need)
    return name is not None and (shutil.which(name) is not None or importlib.util.find_spec(name) is not None)


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    said: dict[str, str] = {}
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if comment := _COMMENT.match(line.strip()):
            said[comment[1]] = comment[2] or ""
        elif fence := _FENCE.match(line):
            first = number
            while lines[number].strip() != "```":
                number += 1
            text = "\n".join(part.removeprefix(fence[1]) for part in lines[first:number])
            number += 1
            needs = tuple(word.strip() for word in said["needs"].split(",")) if "needs" in said else ()
            yield Block(page, first + 1, fence[2], text, needs, int(said.get("gives", 0)), "output" in said)
            said = {}
        elif line.strip():
            assert not said, f"{page.name}, line {number}: a comment about a block stands above {line!r}"


def commands_of(block: Block) -> list[str]:
    """The commands of a shell block, one a line; a line that ends in a backslash goes on."""
    text = block.text.replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
