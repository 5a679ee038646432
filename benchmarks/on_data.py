"""Convert and tune every exported architecture on data, and judge the results in the true precision.

    python benchmarks/architectures.py --cache out/architectures       # needs torch and transformers
    python benchmarks/on_data.py --cache out/architectures

Each model has one batch of inputs. *Right*: every output within the check's own budget, 8 eps of the format, or the
tuning's. *Sure*: the check itself says so, and neither "undecided" for want of samples nor "cannot tell". Writes
out/on_data.json.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.common.errors import MezzoError
from mezzo.numerics.measures import Deviation, Ruling

TUNED = 2e-3


@dataclass(frozen=True, slots=True)
class Row:
    """One way of conversion over all models. `wrong` and `unsure` are (model, what the check says)."""

    to: str
    way: str
    models: int
    right: int
    low_share: float
    worst_error: float
    time_s: float
    wrong: tuple[tuple[str, str], ...]
    unsure: tuple[tuple[str, str], ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"))
    parser.add_argument("--json", type=Path, default=Path("out/on_data.json"))
    given = parser.parse_args()
    rows = [measure(given.cache, to, way) for to in ("fp16", "bf16") for way in ("balanced", "aggressive", "tune")]
    table = Table(title=f"converted on data; tune: within {TUNED:g} (fp16) or {8 * TUNED:g} (bf16)")
    for heading in ("to", "way", "right", "sure", "low nodes", "worst error", "s"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row.to, row.way, f"{row.right} of {row.models}", str(row.right - len(row.unsure)), f"{row.low_share:.1%}",
            f"{row.worst_error:.2g}", f"{row.time_s:.0f}",
        )  # fmt: skip
    console = Console()
    console.print(table)
    for row in rows:
        for name, why in (*row.wrong, *row.unsure):
            console.print(f"{row.to} {row.way} | {name}: {why}", markup=False)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps({"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}, indent=1)
    )
    return 0 if rows and all(row.right == row.models > 0 for row in rows) else 1


def measure(cache: Path, to: str, way: str) -> Row:
    """Convert all models one way."""
    begin, right, low, high, worst = time.perf_counter(), 0, 0, 0, 0.0
    wrong: list[tuple[str, str]] = []
    unsure: list[tuple[str, str]] = []
    models = list(_models(cache))
    for path, feeds in models:
        try:
            if way == "tune":
                budget = TUNED if to == "fp16" else 8 * TUNED
                found = mezzo.tune(path, data=[feeds], max_error=budget, to=to)
            else:
                found = mezzo.convert(path, data=[feeds], to=to, policy=way)
        except MezzoError as error:
            wrong.append((path.stem, str(error)))
            continue
        assert found.measured is not None and found.measured.comparison is not None, "data was given"
        comparison = found.measured.comparison
        error = max((output.relative_l2.estimate for output in comparison.outputs), default=0.0)
        ruling, because = comparison.verdict.ruling, comparison.verdict.because
        if ruling is Ruling.DIFFERENT or not all(map(_is_within_budget, comparison.outputs)):
            wrong.append((path.stem, because))
            continue
        if ruling is not Ruling.SAME:
            unsure.append((path.stem, because))
        right, worst = right + 1, max(worst, error)
        low, high = low + found.summary.low_nodes, high + found.summary.high_nodes
    share = low / (low + high) if low + high else 0.0
    return Row(to, way, len(models), right, share, worst, time.perf_counter() - begin, tuple(wrong), tuple(unsure))


def _is_within_budget(output: Deviation) -> bool:
    return not output.fault and output.budget is not None and output.relative_l2.estimate <= output.budget


def _models(cache: Path) -> Iterator[tuple[Path, dict[str, np.ndarray]]]:
    for path in sorted(cache.glob("*.onnx")):
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
            yield path, {name[3:]: array for name, array in stored.items() if name.startswith("in:")}


if __name__ == "__main__":
    raise SystemExit(main())
