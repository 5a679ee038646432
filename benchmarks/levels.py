"""Min-cut against every assignment, on random problems of two, three and four levels.

    python benchmarks/levels.py
    python benchmarks/levels.py --problems 2000 --json out/levels.json

The problems are those of tests/support/random_problems.py: values shared by many readers, links at single thresholds,
uses that are capped to some levels, levels that a node may not have, penalties past every gain. A problem that
nothing satisfies (its links contradict what is given) is counted and left out. A cost above the least of all
assignments is a mismatch.

The cut prices a conversion between two levels next to FP32 as two, through FP32, and one Cast does it. The last table
prices that Cast, and shows how far the cut is then from the least of all assignments.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from conformance import describe_environment
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from random_problems import legal_assignments, random_problem

from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import casts_of, conversions, cost
from mezzo.formats.dtypes import size_bits
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


@dataclass(frozen=True, slots=True)
class DirectRow:
    """Problems of three levels, FP32 in the middle, with casts across it priced as one. `above`: the cost of the cut
    over the least of all assignments, less 1, in the mean and at worst.
    """

    problems: int
    least: int
    above: float
    worst: float


def measure_direct(count: int) -> DirectRow:
    mincut = strategies()["mincut"]
    above = list[float]()
    seeds = itertools.count()
    while len(above) < count:
        problem = random_problem(next(seeds), 3, _SIZES[3], is_measured=False)
        if problem.line.base != 1:
            continue
        costs = [direct_cost(problem, assignment) for assignment in legal_assignments(problem)]
        if costs:
            least = min(costs)
            above.append((direct_cost(problem, mincut.assign(problem)) - least) / max(least, 1))
    return DirectRow(count, sum(each == 0 for each in above), statistics.fmean(above), max(above))


def direct_cost(problem: Problem, levels: Sequence[int]) -> int:
    """The cost of an assignment, with one cast from one level next to FP32 to the other where no use reads FP32."""
    total, columns, line = cost(problem, levels), problem.graph.columns, problem.line
    made = Counter(value for value, _ in casts_of(problem, levels))
    across = [
        value for value, count in Counter(v for v, *_ in conversions(problem, levels)).items() if count > made[value]
    ]
    bits = sum(map(size_bits, line.other_dtypes))
    for value in across:
        direct = problem.prices.cast_launch + bits * int(columns.value_elements[value]) // 8
        total += direct * int(columns.value_repeats[value]) - int(problem.shared_prices[:, value].sum())
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=700, help="of each number of levels")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    table = Table("levels", "problems", "unsatisfiable", "assignments tried", "mismatches", "ms a cut")
    rows = [measure(levels, args.problems) for levels in _SIZES]
    for row in rows:
        table.add_row(*(f"{cell:.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in asdict(row).values()))
    direct = measure_direct(args.problems)
    across = Table("problems with FP32 in the middle", "least of all", "above the least, mean", "worst")
    across.add_row(f"{direct.problems:,}", f"{direct.least:,}", f"{direct.above:.2%}", f"{direct.worst:.1%}")
    Console().print(table, across)
    if args.json:
        rows_of = {"rows": [asdict(row) for row in rows], "direct": asdict(direct)}
        document = {"environment": describe_environment("mezzo"), **rows_of}
        args.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row.mismatches for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
