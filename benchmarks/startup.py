"""Measures what a user waits for before mezzo does anything: an import, a help text, a version.

    python benchmarks/startup.py
    python benchmarks/startup.py --runs 30 --json out/startup.json

Every measurement is a process of its own; the commands take turns, so that whatever else the machine does hits them
alike. "python" starts the interpreter and nothing else; "mezzo plan" plans the demo model. Modules are compiled once,
as where mezzo is installed, even if PYTHONDONTWRITEBYTECODE is set. CPU time is that of the whole process, and says
more than the clock where other things run; the goals are of CPU time. With --modules the slowest imports of `mezzo
--help` are listed, by Python's own count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_DEMO = Path(__file__).resolve().parents[1] / "examples/digits/digits.onnx"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "python": ("-c", "pass"),
    "import mezzo": ("-c", "import mezzo"),
    "mezzo --help": ("-m", "mezzo", "--help"),
    "mezzo convert --help": ("-m", "mezzo", "convert", "--help"),
    "mezzo --version": ("-m", "mezzo", "--version"),
    "a wrong command": ("-m", "mezzo", "convrt", "model.onnx", "out.onnx"),
    "a wrong option": ("-m", "mezzo", "convert", "model.onnx", "out.onnx", "--fp16"),
    "from mezzo import convert": ("-c", "from mezzo import convert"),
    "mezzo plan": ("-m", "mezzo", "plan", str(_DEMO), "--to", "fp16"),
    "mezzo doctor": ("-m", "mezzo", "doctor"),
}
REFUSED = {"a wrong command": 2, "a wrong option": 2}  # their exit codes
GOALS_S = {"mezzo --help": 0.12, "a wrong command": 0.15, "a wrong option": 0.15, "mezzo plan": 0.4}  # of CPU time
SLOW = {"mezzo doctor": 3}  # fewer runs: it starts children of its own
WARM_UPS = 1  # the first run may compile modules and reads them from disk
HEADINGS = ("command", "least s", "median s", "CPU s", "goal s", "runs")


@dataclass(frozen=True, slots=True)
class Row:
    """One command: seconds of the clock, least and median, and median seconds of the CPU."""

    command: str
    least_s: float
    median_s: float
    cpu_s: float
    runs: int


def main() -> None:
    """Measure, print, and write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), metavar="COMMAND")
    parser.add_argument("--modules", type=int, default=0, metavar="N", help="list the N slowest imports of the help")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.commands, options.runs)
    print_rows(rows)
    if options.modules:
        print(*slowest_imports(options.modules), sep="\n")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")


def measure(commands: Sequence[str], runs: int) -> list[Row]:
    """Run the commands in turns."""
    taken: dict[str, list[tuple[float, float]]] = {command: [] for command in commands}
    for turn in range(-WARM_UPS, runs):
        for command in commands:
            if turn < min(runs, SLOW.get(command, runs)):
                found = run_once(COMMANDS[command], code=REFUSED.get(command, 0))
                if turn >= 0:
                    taken[command].append(found)
    return [
        Row(
            command,
            min(wall for wall, _ in times),
            statistics.median(wall for wall, _ in times),
            statistics.median(cpu for _, cpu in times),
            len(times),
        )
        for command, times in taken.items()
    ]


def run_once(words: Sequence[str], source: Path | None = None, code: int = 0) -> tuple[float, float]:
    """Seconds of the clock and of the CPU that a fresh interpreter takes. A POSIX system counts the latter. `source`: a
    folder whose packages come before those that are installed; `code`: the exit code.
    """
    began = time.perf_counter()
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own |= {} if source is None else {"PYTHONPATH": str(source)}
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=own)
    assert process.stderr is not None, "it was asked for"
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode != code:
        raise SystemExit(f"{' '.join(words)} failed: {said.decode(errors='replace')}")
    return wall, usage.ru_utime + usage.ru_stime


def slowest_imports(count: int) -> list[str]:
    """What `mezzo --help` imports, the slowest first: own time, time with what it imports in turn, name."""
    words = [sys.executable, "-X", "importtime", *COMMANDS["mezzo --help"]]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    rows = []
    for line in text.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdecimal():
            rows.append((int(parts[0]), int(parts[1]), parts[2].strip()))
    return [f"{own / 1e3:8.1f} ms {whole / 1e3:8.1f} ms  {name}" for own, whole, name in sorted(rows)[::-1][:count]]


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table."""
    width = max(len(row.command) for row in rows)
    print(HEADINGS[0].ljust(width), *(heading.rjust(9) for heading in HEADINGS[1:]))
    for row in rows:
        goal = f"{GOALS_S[row.command]:.2f}" if row.command in GOALS_S else ""
        numbers = (f"{row.least_s:.3f}", f"{row.median_s:.3f}", f"{row.cpu_s:.3f}", goal, str(row.runs))
        print(row.command.ljust(width), *(number.rjust(9) for number in numbers))


if __name__ == "__main__":
    main()
