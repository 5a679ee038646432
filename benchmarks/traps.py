"""Models that a careless conversion to FP16 ruins: is it condemned, and do conversion on data and tuning do better?

    python benchmarks/traps.py
    python benchmarks/traps.py --only norm mask --to fp16

The models are those of tests/support/trap_cases.py. A naive conversion makes everything low that has a low type:
mezzo.compare has to condemn it, except where nothing breaks. The conversion on data, and the tuned one, see three
batches and are compared on three others: the same within 1 % relative L2 for FP16, 5 % for BF16. Ends with 1 on a
failure.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from conformance import describe_environment
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import mezzo
from mezzo.numerics.measures import Comparison

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from trap_cases import TRAPS
from trap_models import Trap, blindly_converted

BUDGETS = {"fp16": 1e-2, "bf16": 5e-2}
SEEN, UNSEEN = 1, 2
FAULTS = ("NaN", "infinities", "all zero", "constant")


@dataclass(frozen=True, slots=True)
class Judged:
    """What mezzo.compare says of one conversion, or how making it failed."""

    is_same: bool
    error: float
    fault: str | None
    low_nodes: int | None = None
    float_nodes: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One trap under every conversion."""

    trap: str
    to: str
    breaks: str
    is_harmless: bool
    naive: Judged
    forced: Judged
    default: Judged
    on_data: Judged
    tuned: Judged
    time_s: float

    @property
    def misses(self) -> str:
        faults = []
        if self.naive.is_same and not self.is_harmless and self.to == "fp16":
            faults.append("the naive conversion passes")
        if not self.naive.is_same and self.is_harmless:
            faults.append("the naive conversion is condemned")
        for name, judged in (("on data", self.on_data), ("tuned", self.tuned)):
            if not judged.is_same:
                faults.append(f"{name} is wrong")
        return ", ".join(faults)


def judge(trap: Trap, model: onnx.ModelProto, made: mezzo.Converted | onnx.ModelProto, budget: float) -> Judged:
    """Compare on data that no conversion saw."""
    result = made if isinstance(made, onnx.ModelProto) else made.model
    found: Comparison = mezzo.compare(model, result, trap.make_batches(UNSEEN), max_error=budget)
    fault = next((output.fault for output in found.outputs if output.fault), None)
    counts = (None, None)
    if not isinstance(made, onnx.ModelProto):
        counts = (made.summary.low_nodes, made.summary.low_nodes + made.summary.high_nodes)
    return Judged(found.verdict.is_same, found.verdict.error.estimate, fault, *counts)


def attempt(trap: Trap, model: onnx.ModelProto, kind: str, to: str) -> Judged:
    """Make one conversion and judge it."""
    options: dict[str, Any] = {"to": to}
    seen = trap.make_batches(SEEN)
    try:
        match kind:
            case "naive":
                return judge(trap, model, blindly_converted(model, to), BUDGETS[to])
            case "forced":
                made = mezzo.convert(model, policy="aggressive", include=["*"], **options)
            case "default":
                made = mezzo.convert(model, **options)
            case "on_data":
                made = mezzo.convert(model, data=seen, **options)
            case _:
                made = mezzo.tune(model, data=seen, max_error=BUDGETS[to], **options)
        return judge(trap, model, made, BUDGETS[to])
    except Exception as error:  # noqa: BLE001  whatever a conversion raises is its failure
        text = str(error)
        return Judged(
            False, float("nan"), None, failure=f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
        )


def measure(trap: Trap, to: str) -> Row:
    model = trap.make_model()
    onnx.checker.check_model(model, full_check=True)
    begin = time.perf_counter()
    judged = {kind: attempt(trap, model, kind, to) for kind in ("naive", "forced", "default", "on_data", "tuned")}
    return Row(trap.name, to, trap.breaks, trap.is_harmless, **judged, time_s=time.perf_counter() - begin)


def spell(judged: Judged) -> str:
    if judged.failure:
        return judged.failure[:60]
    count = "" if judged.low_nodes is None else f" {judged.low_nodes}/{judged.float_nodes}"
    fault = next((word for word in FAULTS if judged.fault and word in judged.fault), judged.fault)
    return f"{'same' if judged.is_same else 'WRONG'} {fault or format(judged.error, '.0e')}{count}"


def print_rows(rows: Sequence[Row], console: Console, to: str) -> None:
    table = Table(title=f"traps, {to}: verdict, error or fault, low nodes; on data that no conversion saw")
    for name in ("trap", "naive", "all forced low", "default", "on data", "tuned", "misses"):
        table.add_column(name)
    for row in rows:
        judged = (row.naive, row.forced, row.default, row.on_data, row.tuned)
        table.add_row(escape(row.trap), *map(spell, judged), row.misses)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of traps; all if left out")
    parser.add_argument("--to", nargs="+", choices=tuple(BUDGETS), default=["fp16"])
    parser.add_argument("--json", type=Path, default=Path("out/traps.json"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    console = Console() if sys.stdout.isatty() else Console(width=190)
    chosen = [trap for trap in TRAPS if not options.only or any(part in trap.name for part in options.only)]
    report: dict[str, Any] = {"environment": describe_environment("mezzo")}
    failures = 0
    for to in options.to:
        rows = [measure(trap, to) for trap in chosen]
        print_rows(rows, console, to)
        report[to] = [_plain(row) for row in rows]
        failures += sum(bool(row.misses) for row in rows)
    console.print(f"{failures} of {len(chosen) * len(options.to)} traps fail")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    return 1 if failures else 0


def _plain(row: Row) -> Mapping[str, Any]:
    return asdict(row) | {"misses": row.misses}


if __name__ == "__main__":
    sys.exit(main())
