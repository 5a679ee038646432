"""Reads the pages of README.md and docs/: their code blocks, and what a comment above a block says of it.

A block is run unless a comment above it says otherwise. These comments are known, each on a line of its own:

    <!-- needs: torch, a GPU -->           runs only where all of that is there, else Python is compiled only
    <!-- not run: it installs packages --> never runs; what it names (commands, options, files, targets) exists
    <!-- gives: 1 -->                      the last command of the block ends with this exit code
    <!-- output -->                        the block is what the block before it prints
    <!-- shows: the check; notes -->       of an output only the paragraphs that begin so; `notes (3 lines)` cuts one
"""

import importlib.util
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mezzo.common.machine import find_machine

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
# Pages whose blocks list commands with every option, on file names that say what they are; the commands have tests.
LISTS = ("cli",)
PROMPT = "$ "
# A shell block without outputs, and one that is a session: commands behind a prompt, and what they print.
SHELL, SESSION = "sh", "console"
# Asked of the machine itself, as pages see the CPU of a server.
_HAS_AVX512 = bool(find_machine().has("avx512f"))
_COMMENT = re.compile(r"^<!-- (needs|not run|gives|output|shows)(?:: (.+?))? -->$")
_FENCE = re.compile(r"^( *)```(\S*)(?: [^`]*)?$")  # of a directive with its argument, as {include} FILE
# What a page may ask for, and the package or program that tells whether it is there; None: never, where tests run.
_NEEDS = {
    "a GPU": None,
    "a browser": None,
    "a transformer": None,  # a model of some size, which nobody commits
    "TensorRT": "tensorrt",
    "trtexec": "trtexec",
    "ModelOpt": "modelopt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block. `line` is that of its first line, counted from 1; `indent` stands before each of its lines."""

    page: Path
    line: int
    language: str
    text: str
    indent: str = ""
    needs: tuple[str, ...] = ()
    unrun: str | None = None
    gives: int = 0
    is_output: bool = False
    parts: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """What it needs and is not here."""
        return [need for need in self.needs if not _is_there(need)]

    @property
    def is_followed(self) -> bool:
        """Whether it can be done here."""
        return self.unrun is None and not self.missing

    def __str__(self) -> str:
        return f"{name_of(self.page)}, line {self.line}"


def name_of(page: Path) -> str:
    """The page as people name it: its path in the checkout without the ending."""
    return page.relative_to(ROOT).as_posix().removesuffix(".md") if page.is_relative_to(ROOT) else page.stem


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
            yield _block(page, first + 1, fence, text, said)
            said = {}
        elif line.strip():
            assert not said, f"{page.name}, line {number}: a comment about a block stands above {line!r}"


def _block(page: Path, line: int, fence: re.Match[str], text: str, said: Mapping[str, str]) -> Block:
    return Block(
        page=page,
        line=line,
        language=fence[2],
        text=text,
        indent=fence[1],
        needs=_words(said.get("needs", ""), ","),
        unrun=said.get("not run"),
        gives=int(said.get("gives", 0)),
        is_output="output" in said,
        parts=_words(said.get("shows", ""), ";"),
    )


def _words(text: str, sign: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(sign) if word.strip())


def commands_of(block: Block) -> list[str]:
    """The commands of a shell block as they stand, without prompts; a line that ends in a backslash goes on."""
    commands, is_open = [], False
    for line in block.text.splitlines():
        if is_open:
            commands[-1] += f"\n{line}"
        elif block.language == SESSION and not line.startswith(PROMPT):
            continue
        elif line.strip() and not line.startswith("#"):
            commands.append(line.removeprefix(PROMPT) if block.language == SESSION else line)
        else:
            continue
        is_open = line.endswith("\\")
    return commands


def spelled(command: str) -> str:
    """A command on one line, without what is said of it behind two spaces and a #."""
    return command.replace("\\\n", " ").partition("  # ")[0].strip()


def _is_there(need: str) -> bool:
    if need == "CUDA":
        import onnxruntime

        return "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if need == "AVX512":
        return _HAS_AVX512
    name = _NEEDS.get(need, need)
    return name is not None and (shutil.which(name) is not None or importlib.util.find_spec(name) is not None)
