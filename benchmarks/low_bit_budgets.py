"""Budgets of `mezzo tune` for weights in 4 and 8 bits: whether each is held, and how well it was predicted.

    python benchmarks/low_bit_budgets.py --only bytes minilm
    python benchmarks/low_bit_budgets.py --only bytes --of bytes --budgets 20
    python benchmarks/low_bit_budgets.py --only smollm2-off-grid --budgets 3 --json out/low_bit/budgets-smollm2.json

The models are those of low_bit.py. Budgets of error lie evenly, as ratios, between a tenth of the error of the fewest
bytes and that error; budgets of bytes evenly between the fewest bytes and those of 8 bits throughout. All searches of a
model share its runs of single weights (--resume). "predicted": the error of the chosen plan that the search predicted
from these, "measured": on the data of the search, "squares": measured over predicted, squared. "fresh": the error on
tokens that neither the search nor its own held-out check saw; a budget of error is held if it is within. "bytes": the
files. A verdict other than right, or a refusal, is a budget that is not held.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

import low_bit_judging as judging
import numpy as np
from conformance import describe_environment
from low_bit_models import MODELS, Model, Sources, make_model
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.common.errors import MezzoError

TO = "int4,int8w"
KINDS = ("error", "bytes")
LEAST_SHARE = 0.1  # of the error in the fewest bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One search. Errors are relative L2 of the worst output; `note` says why there is no result."""

    model: str
    max_error: float | None
    max_bytes: int | None
    bytes: int | None = None
    predicted: float | None = None
    measured: float | None = None
    held_out: float | None = None
    fresh: float | None = None
    seconds: float | None = None
    verdict: str = ""
    note: str = ""

    @property
    def squares(self) -> float | None:
        if not self.predicted or self.measured is None:
            return None
        return (self.measured / self.predicted) ** 2

    @property
    def is_held(self) -> bool:
        if self.max_bytes is not None:
            return self.bytes is not None and self.bytes <= self.max_bytes
        return self.fresh is not None and self.max_error is not None and self.fresh <= self.max_error


class Searches:
    """Searches of one model, whose runs of single weights are done once."""

    def __init__(self, model: Model, folder: Path, target: str) -> None:
        self._model, self._folder, self._target = model, folder, target
        self._data, self._fresh = folder / "calibration.npz", folder / "fresh.npz"
        np.savez(self._data, **model.calibration)
        np.savez(self._fresh, **model.held_out)

    def run(self, max_error: float | None = None, max_bytes: int | None = None, to: str = TO) -> Budget:
        """Search, and judge the file on fresh tokens."""
        name, out = self._model.row.name, self._folder / "out.onnx"
        begin = time.perf_counter()
        try:
            tuned = mezzo.tune(
                self._model.path, out, data=self._data, to=to, target=self._target, max_error=max_error,
                max_bytes=max_bytes, resume=self._folder / f"{to}.json", overwrite=True, check=False,
            )  # fmt: skip
        except MezzoError as error:
            return Budget(model=name, max_error=max_error, max_bytes=max_bytes, note=str(error))
        seconds = time.perf_counter() - begin
        measured = tuned.measured
        assert measured is not None, "a search measures"
        chosen = next((point for point in measured.frontier if point.is_chosen), None)
        fresh = mezzo.compare(self._model.path, out, self._fresh, layers=False)
        return Budget(
            model=name,
            max_error=max_error,
            max_bytes=max_bytes,
            bytes=judging.file_bytes(out),
            predicted=None if chosen is None else chosen.predicted_error,
            measured=None if chosen is None else chosen.error,
            held_out=measured.search.held_out_error,
            fresh=max(output.relative_l2.estimate for output in fresh.outputs),
            seconds=seconds,
            verdict=measured.comparison.verdict.ruling.value,
        )


def measure(options: argparse.Namespace) -> Iterator[Budget]:
    sources = Sources(options.cache / "models", options.minutes)
    for row in MODELS:
        if not any(fnmatch(row.name, glob) for glob in options.only):
            continue
        model = make_model(row, sources)
        with tempfile.TemporaryDirectory(prefix="budgets-") as folder:
            searches = Searches(model, Path(folder), options.target)
            # Any budget of error above it asks for the fewest bytes.
            coarsest = searches.run(max_error=10.0)
            finest = searches.run(max_error=10.0, to="int8w")
            if coarsest.fresh is None or coarsest.bytes is None or finest.bytes is None:
                yield coarsest
                continue
            counts = {kind: options.budgets if kind in options.of else 0 for kind in KINDS}
            for share in np.geomspace(LEAST_SHARE, 1.0, counts["error"]):
                yield searches.run(max_error=float(share * coarsest.fresh))
            # What a plan says in the file takes some bytes more or less.
            for most in np.linspace(1.01 * coarsest.bytes, finest.bytes, counts["bytes"]):
                yield searches.run(max_bytes=math.ceil(most))


def print_tables(rows: Sequence[Budget]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=120)
    table = Table()
    for heading in ("model", "budget"):
        table.add_column(heading)
    for heading in ("MB", "predicted", "measured", "squares", "held out", "fresh", "s", "held"):
        table.add_column(heading, justify="right")
    for row in rows:
        budget = f"error {row.max_error:.4f}" if row.max_bytes is None else f"{row.max_bytes / 1e6:.3f} MB"
        sizes = "" if row.bytes is None else f"{row.bytes / 1e6:.3f}"
        errors = (row.predicted, row.measured, row.squares, row.held_out, row.fresh, row.seconds)
        table.add_row(row.model, budget, sizes, *map(_figure, errors), "yes" if row.is_held else f"no {row.note}")
    console.print(table)
    for name, kept in (
        ("error", [row for row in rows if row.max_bytes is None]),
        ("bytes", [row for row in rows if row.max_bytes is not None]),
    ):
        if not kept:
            continue
        squares = [row.squares for row in kept if row.squares is not None]
        line = f"budgets of {name}: {sum(row.is_held for row in kept)} of {len(kept)} held"
        if squares:
            near = sum(abs(square - 1) <= 0.15 for square in squares)
            line += f"; squares {statistics.median(squares):.2f} ({min(squares):.2f} to {max(squares):.2f}) of those"
            line += f" predicted, {near} of {len(squares)} within 15 %"
        if name == "bytes":
            shares = [row.bytes / row.max_bytes for row in kept if row.bytes is not None and row.max_bytes]
            line += f"; files {min(shares):.4f} to {max(shares):.4f} of the budget"
        console.print(line, highlight=False)


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["bytes", "minilm"], help="models, globs")
    parser.add_argument("--budgets", type=int, default=10, help="of error, and of bytes, of each model")
    parser.add_argument("--of", nargs="+", default=KINDS, choices=KINDS, help="kinds of budgets")
    parser.add_argument("--target", default="onnxruntime-cpu")
    parser.add_argument("--minutes", type=float, default=30, help="that the byte model trains")
    parser.add_argument("--cache", type=Path, default=Path("out/low_bit"), help="folder of models")
    parser.add_argument("--json", type=Path, default=Path("out/low_bit/budgets.json"))
    return parser.parse_args()


def main() -> int:
    options = _parse()
    rows: list[Budget] = []
    environment = describe_environment("mezzo")
    for row in measure(options):
        rows.append(row)
        print(f"{row.model} {row.max_error or row.max_bytes}: {'held' if row.is_held else 'not held'}", file=sys.stderr)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        report = {"environment": environment, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{environment['cpu']}: {' '.join(environment['cpu_features'])}; Python {environment['python']}")
    print("; ".join(f"{name} {text}" for name, text in environment["versions"].items()))
    print_tables(rows)
    return 0 if all(row.is_held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
