"""FP16 with BF16 where its range ends: architectures with hidden outliers, in FP16, BF16 and both; or beside INT8.

    python benchmarks/outlier_architectures.py --cache out/architectures     # makes the models
    python benchmarks/two_floats.py --folder out/outlier-architectures
    python benchmarks/two_floats.py --folder out/outlier-architectures --ways int8,fp16

Each way converts on the same batches, once with nodes past the range protected and once with ranges repaired, and is
judged in the true precision on batches that it did not see. Counted are operators by format and the casts between
floats. Models that keep more in FP32 with both floats than with FP16 alone are named. Ends with 1 where a result in two
formats holds no numbers.
"""

import argparse
import json
import logging
import math
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import onnx
from conformance import describe_environment
from float_nodes import count_casts
from outlier_architectures import load_batches
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.formats.dtypes import DType

WAYS = ("fp16", "fp16,bf16", "bf16")
RANGES = ("protect", "repair")
_FORMATS = (DType.FLOAT16, DType.BFLOAT16, DType.QUANTIZED8, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class Row:
    """One model, converted in one way. `nodes`: operators in FP16, BF16, INT8 and FP32."""

    model: str
    to: str
    out_of_range: str
    nodes: tuple[int, ...]
    casts: int
    error: float
    fault: str | None


def measure(path: Path, ways: Sequence[str], policy: str, target: str) -> Iterator[Row]:
    unseen = load_batches(path.with_suffix(".unseen"))
    for out_of_range in RANGES:
        for to in ways:
            model = onnx.load(path)
            made = mezzo.convert(
                model, to=to, policy=policy, target=target, out_of_range=out_of_range,
                data=load_batches(path.with_suffix(".data")),
            )  # fmt: skip
            counts = Counter(node.precision.compute for node in made.plan.nodes if node.kind == "op")
            found = mezzo.compare(onnx.load(path), made.model, unseen)
            fault = next((output.fault for output in found.outputs if output.fault), None)
            nodes = tuple(counts[dtype] for dtype in _FORMATS)
            casts = count_casts(made.model) - count_casts(onnx.load(path))
            yield Row(path.stem, to, out_of_range, nodes, casts, found.verdict.error.estimate, fault)


def spell(rows: Sequence[Row]) -> Table:
    formats = ("FP16", "BF16", "INT8", "FP32")
    table = Table("ranges", "to", "wholly low", *formats, "casts", "error, median", "worst", "no numbers")
    for out_of_range in RANGES:
        for to in dict.fromkeys(row.to for row in rows):
            own = [row for row in rows if (row.to, row.out_of_range) == (to, out_of_range)]
            right = [row.error for row in own if row.fault is None]
            errors = right or [math.nan]
            totals = [sum(row.nodes[place] for row in own) for place in range(len(formats))]
            whole = sum(row.nodes[-1] == 0 for row in own)
            table.add_row(
                out_of_range, to, f"{whole} of {len(own)}", *(f"{total:,}" for total in totals),
                f"{sum(row.casts for row in own):,}", f"{statistics.median(errors):.1e}", f"{max(errors):.1e}",
                str(len(own) - len(right)),
            )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("out/outlier-architectures"))
    parser.add_argument("--ways", nargs="+", default=WAYS, help="formats, as of --to")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of models; all if left out")
    parser.add_argument("--policy", default="aggressive")
    parser.add_argument("--target", default="tensorrt")
    parser.add_argument("--json", type=Path, default=Path("out/two_floats.json"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows = list[Row]()
    for path in sorted(given.folder.glob("*.onnx")):
        if given.only and not any(part in path.stem for part in given.only):
            continue
        own = [*measure(path, given.ways, given.policy, given.target)]
        rows += own
        print(*(f"{r.to} {r.nodes} {r.error:.1e}" for r in own), path.stem, file=sys.stderr, flush=True)
    console = Console() if sys.stdout.isatty() else Console(width=150)
    console.print(spell(rows))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
    given.json.write_text(json.dumps(report, indent=1))
    high = {(row.model, row.out_of_range, row.to): row.nodes[-1] for row in rows}
    more = [key for key in high if key[2] == WAYS[1] and high[key] > high.get((*key[:2], WAYS[0]), high[key])]
    for key in more:
        console.print("more in FP32 than FP16 alone:", *key)
    return 1 if any(row.fault for row in rows if "," in row.to) else 0


if __name__ == "__main__":
    sys.exit(main())
