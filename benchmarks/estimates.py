"""What estimates without data cost: low nodes given up on models where nothing goes wrong, and time.

    python benchmarks/estimates.py --suite operators
    python benchmarks/estimates.py --suite architectures --cache out/architectures

Each model is planned under `balanced` with the structure rules `may-overflow` and `too-coarse` and without them. Heavy
operators are products, convolutions, attention and recurrent cells. Time is of one walk forward and back, per operator.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from suites import operators

from mezzo.analysis.estimates import estimate
from mezzo.analysis.structure import structure_rules
from mezzo.analysis.structure.estimated import ESTIMATED
from mezzo.contracts.options.request import Request
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import FORMATS, LOW_DTYPES
from mezzo.ir.nodes import Kind
from mezzo.onnx.opening import open_model
from mezzo.planner.options import Options, read_options
from mezzo.planner.planner import Judged, rows_of
from mezzo.tables.facts import HEAVY

# A model that gives up more than this share of its low nodes is named.
MOST_GIVEN_UP = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One model in one format: operators that could run low, those that do without estimates and with them."""

    model: str
    to: str
    nodes: int
    without: int
    low: int
    heavy_without: int
    heavy: int
    time_us: float


def models(suite: str, cache: Path | None) -> Iterator[tuple[str, onnx.ModelProto | Path]]:
    """The models of a suite, by name."""
    if suite == "operators":
        yield from ((case.name, case.model) for case in operators())
    elif cache is not None:
        yield from ((path.stem, path) for path in sorted(cache.glob("*.onnx")))


def count(judged: Judged, options: Options) -> tuple[int, int, int]:
    """Operators that could run low, that do, and heavy ones that do."""
    problem = judged.problem
    levels = options.planning.strategy.assign(problem)
    ops = [n for n in problem.graph.nodes if n.kind is Kind.OP and not problem.is_absent[n.id]]
    low = [node for node in ops if levels[node.id]]
    return len(ops), len(low), sum(problem.costs_of[node.id] in HEAVY for node in low)


def measure(name: str, model: onnx.ModelProto | Path, to: str) -> Row:
    """Plan a model with estimates and without."""
    options = read_options(Request(to=to))
    rest = frozenset(rule.name for rule in structure_rules()) - ESTIMATED
    plain = replace(options, planning=replace(options.planning, policy=replace(options.planning.policy, findings=rest)))
    opened = open_model(model)
    _, without, heavy_without = count(judge_model(opened, plain)[1], plain)
    judged = judge_model(opened, options)[1]
    nodes, low, heavy = count(judged, options)
    graph = judged.problem.graph
    start = time.process_time()
    estimate(graph, rows_of(graph), FORMATS[LOW_DTYPES[to]], {})
    spent = time.process_time() - start
    return Row(name, to, nodes, without, low, heavy_without, heavy, spent / max(len(graph.nodes), 1) * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=["operators", "architectures"], default="operators")
    parser.add_argument("--cache", type=Path, help="where the architectures are")
    parser.add_argument("--to", nargs="+", choices=sorted(LOW_DTYPES), default=["fp16", "bf16"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [measure(name, model, to) for name, model in models(options.suite, options.cache) for to in options.to]
    if not rows:
        print("no model found; give --cache a folder that benchmarks/architectures.py filled", file=sys.stderr)
        return 2
    table = Table(title=f"{options.suite}: low operators without estimates and with them")
    for title in ("format", "models", "could", "without", "with", "given up", "heavy", "us a node", "over a tenth"):
        table.add_column(title)
    for to in options.to:
        own = [row for row in rows if row.to == to]
        without, low = sum(row.without for row in own), sum(row.low for row in own)
        far = [row.model for row in own if row.without - row.low > MOST_GIVEN_UP * row.without]
        heavy = f"{sum(row.heavy_without for row in own)}, {sum(row.heavy for row in own)}"
        times = sorted(row.time_us for row in own)
        table.add_row(
            to, str(len(own)), str(sum(row.nodes for row in own)), str(without), str(low),
            f"{(without - low) / without:.2%}", heavy, f"{times[len(times) // 2]:.1f}", str(len(far)),
        )  # fmt: skip
    Console().print(table)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"environment": describe_environment("mezzo"), "rows": [asdict(r) for r in rows]})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
