"""Goes the way of a new user with a clock: a fresh clone and environment, README, the tutorial, a network from PyTorch.

    python benchmarks/walk.py FOLDER                            # new or empty; needs git and a package index
    python benchmarks/walk.py FOLDER --torch torch==2.13.0      # another build than that of the page

Every block is typed as it stands on the page, each command in a process of its own, in the order of the pages. Prints a
table in Markdown: seconds of each command, and what stopped it: an exit code other than the page's, or an error on
stderr. Beside a page's seconds stands what a reader needs: its words outside blocks at 230 a minute, and 5 seconds for
each command that is copied and each output that is looked at.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools" / "pages"))
from page_blocks import ROOT, SESSION, SHELL, Block, blocks_of, commands_of, spelled

PAGES = ("README.md", "docs/tutorial.md", "docs/how-to/from-pytorch.md")
# What README names for those who work on mezzo, not for those who use it.
_SKIPPED = "they make environments of their own"
_WORDS_A_MINUTE = 230
_SECONDS_A_STEP = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One command or script of a page. `stop` is what a reader would stop at; empty where nothing was."""

    page: str
    command: str
    time_s: float
    stop: str


def walk(clone: Path, torch: str) -> Iterator[Step]:
    """Clone, then all pages."""
    yield _run("", f"git clone --quiet {ROOT} {clone}", clone.parent, {})
    environment = {"PATH": f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": ""}
    for page in PAGES:
        for block in blocks_of(clone / page):
            if block.unrun != _SKIPPED:
                yield from _steps_of(page, block, clone, environment, torch)


def _steps_of(page: str, block: Block, clone: Path, environment: Mapping[str, str], torch: str) -> Iterator[Step]:
    if block.language in {SHELL, SESSION}:
        for command in commands_of(block):
            typed = re.sub(r"^(pip install.*) torch ", rf"\1 {torch} ", spelled(command))
            yield _run(page, typed, clone, environment, block.gives if block.language == SESSION else 0)
    elif block.language == "python":
        named = re.match(r"# (\S+\.py)\n", block.text)
        script = clone / (named[1] if named else f"line_{block.line}.py")
        script.write_text(block.text + "\n", encoding="utf-8")
        if not named or "torch" in block.text:
            yield _run(page, f"python {script.name}", clone, environment)


def _run(page: str, command: str, folder: Path, environment: Mapping[str, str], wanted: int = 0) -> Step:
    begin = time.perf_counter()
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    took = time.perf_counter() - begin
    stop = ""
    if ran.returncode != wanted:
        lines = (ran.stderr.strip() or ran.stdout.strip() or "nothing was said").splitlines()
        stop = f"exit code {ran.returncode}: {lines[-1]}"
    print(f"{took:7.1f} s  {command}  {stop}", file=sys.stderr)
    return Step(page, command, took, stop)


def reading_time_s(page: Path, steps: int) -> float:
    """What a reader needs beside the commands."""
    prose = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return len(prose.split()) / _WORDS_A_MINUTE * 60 + steps * _SECONDS_A_STEP


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", default="torch", help="what pip is asked for in the place of torch")
    words = parser.parse_args()
    folder = words.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    steps = list(walk(folder / "mezzo", words.torch))
    print("| page | command | s | what stopped |\n|---|---|---|---|")
    for step in steps:
        print(f"| {step.page} | `{step.command.replace('|', chr(92) + '|')}` | {step.time_s:.1f} | {step.stop} |")
    for page in PAGES:
        own = [step for step in steps if step.page == page]
        commands = sum(step.time_s for step in own)
        reading = reading_time_s(ROOT / page, len(own))
        print(f"\n{page}: {len(own)} steps, {commands:.0f} s of commands, {reading:.0f} s for a reader", end="")
    print(f"\nall: {sum(step.time_s for step in steps):.0f} s of commands, stops: {sum(bool(s.stop) for s in steps)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
