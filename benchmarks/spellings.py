"""Equivalent spellings of functions that low formats get wrong: how many does a conversion without data get right?

    python benchmarks/spellings.py                                   # both formats, every policy but aggressive and off
    python benchmarks/spellings.py --policy balanced --to fp16 --class norms --failures
    python benchmarks/spellings.py --set heldout --policy balanced conservative
    python benchmarks/spellings.py --set heldout3 --policy balanced --failures
    python benchmarks/spellings.py --measure-naive                   # which cases hurt; kept in tests/spellings

The cases are those of tests/spellings. A case hurts in a format if making everything low is wrong; it is right if
every output of the conversion, run in the true precision, is within 8 eps (relative L2) of FP32's and finite where
that is. Controls hurt nowhere; there the heavy operators (MatMul, Conv, ...) that a policy keeps in FP32 are counted.
"""

import argparse
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from conformance import describe_environment
from judging import OutOfTime, time_limit
from rich.console import Console
from rich.markup import escape
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from spellings.cases import Case
from spellings.catalogue import FORMATS, Kind, cases, hurting, record
from spellings.controls import HEAVY
from spellings.heldout3_harmless import HARMLESS
from spellings.judging import Answers, heavy_in_fp32, judge, naively_converted, reference

import mezzo
from mezzo.common.errors import ContractError

POLICIES = ("balanced", "conservative", "graphamp-balanced", "graphamp-conservative", "graphamp-aggressive", "mxnet",
            "paddle", "tensorflow", "tvm")  # fmt: skip
NAIVE = "naive"
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """One case in one format under one policy. `is_right` None: no engine runs what comes out."""

    klass: str
    case: str
    spelling: str
    to: str
    policy: str
    is_right: bool | None
    error: float
    why: str
    heavy: int
    heavy_high: int


def measure(case: Case, formats: Sequence[str], policies: Sequence[str]) -> list[Row]:
    """Judge one case under every policy; its answers in FP32 are computed once."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    with time_limit(LIMIT_S):
        expected = reference(case)
    return [_measure(case, expected, to, policy) for to in formats for policy in policies]


def _measure(case: Case, expected: Answers, to: str, policy: str) -> Row:
    heavy = heavy_high = 0
    try:
        with time_limit(LIMIT_S):
            if policy == NAIVE:
                model = naively_converted(case, to)
            else:
                made = mezzo.convert(case.model, to=to, policy=policy)
                model = made.model
                heavy, heavy_high = heavy_in_fp32(made.plan, HEAVY)
            judgement = judge(case, expected, model, to)
            is_right, error, why = judgement.is_right, judgement.error, judgement.why
    except ContractError as failure:
        is_right, error, why = None, float("nan"), str(failure)
    except OutOfTime:
        is_right, error, why = False, float("nan"), f"took more than {LIMIT_S:g} s"
    return Row(case.idiom.klass, case.name, case.spelling, to, policy, is_right, error, why, heavy, heavy_high)


def print_table(rows: Sequence[Row], kind: Kind, console: Console) -> None:
    """One line per format and policy: of the cases of a class that hurt, how many are right."""
    table = Table(title="right of those that a naive conversion gets wrong (wrong of the harmless ones)")
    classes = [*dict.fromkeys(row.klass for row in rows), "all"]
    for name in ("format", "policy", *classes):
        table.add_column(name)
    for to, policy in dict.fromkeys((row.to, row.policy) for row in rows):
        own = [row for row in rows if (row.to, row.policy) == (to, policy)]
        cells = [_share([row for row in own if klass in (row.klass, "all")], kind) for klass in classes]
        table.add_row(to, policy, *cells)
    console.print(table)


def _share(rows: Sequence[Row], kind: Kind) -> str:
    judged = [row for row in rows if row.is_right is not None]
    hurt = [row for row in judged if (row.case, row.to) in hurting(kind)]
    right = sum(bool(row.is_right) for row in hurt)
    missed = sum(not row.is_right for row in judged) - (len(hurt) - right)
    share = f" {right / len(hurt):.0%}" if hurt else ""
    return f"{right} of {len(hurt)}{share}" + (f" ({missed} wrong)" if missed else "")


def print_controls(rows: Sequence[Row], console: Console) -> None:
    """Heavy operators kept in FP32 where nothing asks for it."""
    table = Table(title="controls: heavy operators kept in FP32, models with any, models wrong")
    for name in ("format", "policy", "kept", "models", "wrong"):
        table.add_column(name)
    for to, policy in dict.fromkeys((row.to, row.policy) for row in rows):
        own = [row for row in rows if (row.to, row.policy) == (to, policy)]
        kept = f"{sum(row.heavy_high for row in own)} of {sum(row.heavy for row in own)}"
        models = f"{sum(bool(row.heavy_high) for row in own)} of {len(own)}"
        table.add_row(to, policy, kept, models, str(sum(row.is_right is False for row in own)))
    console.print(table)


def print_failures(rows: Iterable[Row], console: Console) -> None:
    for row in rows:
        if row.is_right is False or (row.heavy_high and row.klass in (Kind.CONTROLS.value, HARMLESS)):
            why = row.why or f"keeps {row.heavy_high} of {row.heavy} heavy operators in FP32"
            console.print(escape(f"{row.to} {row.policy}: {row.case}: {why} [{row.spelling}]"))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=[kind.value for kind in Kind], default=Kind.SPELLINGS.value)
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--policy", nargs="+", default=list(POLICIES))
    parser.add_argument("--class", dest="klass", nargs="+", default=[], help="classes; all if left out")
    parser.add_argument("--only", nargs="+", default=[], help="parts of the names of cases; all if left out")
    parser.add_argument("--limit", type=int, help="at most so many cases, evenly spread")
    parser.add_argument("--failures", action="store_true", help="list every case that is wrong, with its spelling")
    parser.add_argument("--measure-naive", action="store_true", help="measure and keep which cases hurt")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("out/spellings.json"))
    return parser.parse_args()


def choose(options: argparse.Namespace) -> list[Case]:
    chosen = [
        case
        for case in cases(Kind(options.set))
        if (not options.klass or case.idiom.klass in options.klass)
        and (not options.only or any(part in case.name for part in options.only))
    ]
    if options.limit and len(chosen) > options.limit:
        return [chosen[number * len(chosen) // options.limit] for number in range(options.limit)]
    return chosen


def main() -> int:
    options = read_options()
    kind = Kind(options.set)
    console = Console() if sys.stdout.isatty() else Console(width=230)
    chosen = choose(options)
    policies = [NAIVE] if options.measure_naive else options.policy
    formats = list(FORMATS) if options.measure_naive else options.to
    begin = time.perf_counter()
    work = partial(measure, formats=formats, policies=policies)
    if options.workers > 1:
        with ProcessPoolExecutor(options.workers) as pool:
            rows = [row for found in pool.map(work, chosen, chunksize=8) for row in found]
    else:
        rows = [row for case in chosen for row in work(case)]
    if options.measure_naive:
        hurt = frozenset((row.case, row.to) for row in rows if row.is_right is False)
        record(kind, hurt, [case.name for case in chosen])
    if kind is Kind.CONTROLS:
        print_controls(rows, console)
    else:
        print_table(rows, kind, console)
        if harmless := [row for row in rows if row.klass == HARMLESS and (row.case, row.to) not in hurting(kind)]:
            print_controls(harmless, console)
    if options.failures:
        print_failures(rows, console)
    nobody = sum(row.is_right is None for row in rows)
    console.print(f"{len(chosen)} cases in {time.perf_counter() - begin:.0f} s; {nobody} results that no engine runs")
    report = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
