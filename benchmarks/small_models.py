"""Measures what verbs take on a small model, start-up included, in this checkout beside another one.

    python benchmarks/small_models.py --against ../before
    python benchmarks/small_models.py --against ../before --jobs ranges tune --runs 5 --json out/small_models.json

Every run is a process of its own, with the same interpreter and the same installed packages; only what `import mezzo`
finds differs. Both checkouts take turns, now one first and now the other, so that whatever else the machine does hits
them alike. The ratio is of this checkout's time over the other's in the same turn: its median over all turns, and the
quarters of them that lie lowest and highest left out. Modules are compiled by a run that is not counted.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from startup import run_once

from mezzo.common.machine import find_load, find_machine

HERE = Path(__file__).resolve().parents[1]
DEMO = HERE / "examples" / "digits"
JOBS = ("ranges", "compare", "tune", "convert", "convert on data", "int8")
Seconds = tuple[float, float]  # of the clock, of the CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One verb: median seconds of the clock and of the CPU here and there, and this over that, turn by turn."""

    job: str
    here_s: float
    there_s: float
    ratio: float
    ratio_from: float
    ratio_to: float
    cpu_here_s: float
    cpu_there_s: float
    cpu_ratio: float
    turns: int


def main() -> None:
    """Measure, print, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, required=True, metavar="PATH", help="the root of the other checkout")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--runs", type=int, default=15, help="turns, of one run for each checkout")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sources = HERE / "src", options.against.resolve() / "src"
    for source in sources:
        check_source(source)
    with tempfile.TemporaryDirectory(prefix="mezzo-") as name:
        jobs = commands(Path(name))
        run_once(jobs["convert"], sources[0])  # what is compared, and timed by nobody
        rows = [measure(job, jobs[job], sources, options.runs) for job in options.jobs]
    load = find_load()
    print_rows(rows)
    if options.json is not None:
        document = {
            "machine": asdict(find_machine()), "python": platform.python_version(), "load": load,
            "here": revision(HERE), "there": revision(options.against), "rows": [asdict(row) for row in rows],
        }  # fmt: skip
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")


def commands(folder: Path) -> Mapping[str, Sequence[str]]:
    """What is run, by name, with results in a folder."""
    model, low = str(DEMO / "digits.onnx"), str(folder / "low.onnx")
    data = ("--data", str(DEMO / "heldout.npz"), "--labels", "label", "--batch", "64")
    words = {
        "ranges": ("ranges", model, *data),
        "compare": ("compare", model, low, *data),
        "tune": ("tune", model, str(folder / "tuned.onnx"), "--max-error", "1e-3", *data),
        "convert": ("convert", model, low),
        "convert on data": ("convert", model, str(folder / "checked.onnx"), *data),
        "int8": ("convert", model, str(folder / "int8.onnx"), "--to", "int8", *data),
    }
    return {name: ("-m", "mezzo", *each) for name, each in words.items()}


def check_source(source: Path) -> None:
    """Exit where `import mezzo` would find another."""
    code = "import mezzo; print(mezzo.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False
    )
    found = done.stdout.strip()
    if done.returncode or not Path(found).resolve().is_relative_to(source):
        raise SystemExit(f"{source}: import mezzo gives {found or done.stderr.strip()!r}; name the root of a checkout")


def measure(job: str, words: Sequence[str], sources: Sequence[Path], runs: int) -> Row:
    """Run one command in turns; a first turn is not counted."""
    turns: list[tuple[Seconds, Seconds]] = []
    for turn in range(-1, runs):
        order = sources if turn % 2 else sources[::-1]
        taken = {source: run_once(words, source) for source in order}
        if turn >= 0:
            turns.append((taken[sources[0]], taken[sources[1]]))
    ratios = [sorted(here[of] / there[of] for here, there in turns) for of in (0, 1)]
    quarter = len(turns) // 4

    def middle(side: int, of: int) -> float:
        return statistics.median(turn[side][of] for turn in turns)

    return Row(
        job=job,
        here_s=middle(0, 0),
        there_s=middle(1, 0),
        ratio=statistics.median(ratios[0]),
        ratio_from=ratios[0][quarter],
        ratio_to=ratios[0][-1 - quarter],
        cpu_here_s=middle(0, 1),
        cpu_there_s=middle(1, 1),
        cpu_ratio=statistics.median(ratios[1]),
        turns=len(turns),
    )


def revision(checkout: Path) -> str:
    """The commit of a checkout, with a + where its files differ; "unknown" where git does not tell."""
    told = [
        subprocess.run(["git", "-C", str(checkout), *words], capture_output=True, text=True, check=False)
        for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
    ]
    if any(each.returncode for each in told):
        return "unknown"
    return told[0].stdout.strip() + ("+" if told[1].stdout.strip() else "")


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table in Markdown."""
    print("| verb | here s | there s | here / there | half of the turns | CPU s | CPU s there | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.job} | {row.here_s:.2f} | {row.there_s:.2f} | {row.ratio:.3f} | {row.ratio_from:.3f} to "
            f"{row.ratio_to:.3f} | {row.cpu_here_s:.2f} | {row.cpu_there_s:.2f} | {row.cpu_ratio:.3f} |"
        )


if __name__ == "__main__":
    main()
