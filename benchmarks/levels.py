"""Min-cut against every assignment, on random problems of two, three and four levels.

    python benchmarks/levels.py
    python benchmarks/levels.py --problems 2000 --json out/levels.json

The problems are those of tests/support/random_problems.py: values shared by many readers, links at single thresholds,
uses that are capped to some levels, levels that a node may not have, penalties past every gain. A problem that
nothing satisfies (its links contradict what is given) is counted and left out. A cost above the least of all
assignments is a mismatch.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from conformance import describe_environment
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from random_problems import legal_assignments, random_problem

from mezzo.contracts.strategy import cost
from mezzo.plugins.discovery import strategies

# Nodes per problem, so that all assignments can be tried.
_SIZES = {2: 11, 3: 8, 4: 7}


@dataclass(frozen=True, slots=True)
class Row:
    """Problems of one number of levels. `assignments` were tried in all; `cut_ms` is the mean time of one cut."""

    levels: int
    problems: int
    unsatisfiable: int
    assignments: int
    mismatches: int
    cut_ms: float


def measure(levels: int, count: int) -> Row:
    """Solve problems until `count` were satisfiable."""
    mincut = strategies()["mincut"]
    done = unsatisfiable = tried = mismatches = seed = 0
    seconds = 0.0
    while done < count:
        problem = random_problem(seed, levels, _SIZES[levels])
        seed += 1
        costs = [cost(problem, assignment) for assignment in legal_assignments(problem)]
        if not costs:
            unsatisfiable += 1
            continue
        begun = time.process_time()
        found = mincut.assign(problem)
        seconds += time.process_time() - begun
        done, tried = done + 1, tried + len(costs)
        mismatches += cost(problem, found) != min(costs)
    return Row(levels, done, unsatisfiable, tried, mismatches, 1000 * seconds / max(done, 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=700, help="of each number of levels")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    table = Table("levels", "problems", "unsatisfiable", "assignments tried", "mismatches", "ms a cut")
    rows = [measure(levels, args.problems) for levels in _SIZES]
    for row in rows:
        table.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in asdict(row).values()))
    Console().print(table)
    if args.json:
        document = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row.mismatches for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
