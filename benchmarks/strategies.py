"""Compares the strategies on many models under one policy: low nodes, casts, bytes cast, cost against min-cut's.

    python benchmarks/strategies.py --suite operators
    python benchmarks/strategies.py --suite architectures --cache out/architectures --policy balanced aggressive

Ends with 1 if any strategy is cheaper than min-cut anywhere. A second table tells why operators stay in FP32 under
min-cut: how many by each rule, and how many of them name the node that caused it.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from suites import Case, architectures, operators, zoo

import mezzo
from mezzo.api.strategies import StrategyRow
from mezzo.contracts.plans import PlannedNode


@dataclass(slots=True)
class Total:
    """Sums of one strategy over all models. `dearest` is the largest cost against min-cut's on one model."""

    policy: str
    strategy: str
    models: int = 0
    low_nodes: int = 0
    nodes: int = 0
    casts: int = 0
    cast_bytes: int = 0
    cost: int = 0
    dearest: float = 1.0
    ties_with_mincut: int = 0
    cheaper_than_mincut: int = 0

    def add(self, row: StrategyRow, mincut: StrategyRow) -> None:
        self.models += 1
        self.low_nodes += row.low_nodes
        self.nodes += row.nodes
        self.casts += row.casts
        self.cast_bytes += row.cast_bytes
        self.cost += row.cost
        self.ties_with_mincut += row.cost == mincut.cost
        self.cheaper_than_mincut += row.cost < mincut.cost
        if mincut.cost:
            self.dearest = max(self.dearest, row.cost / mincut.cost)


@dataclass(slots=True)
class Reasons:
    """FP32 operators of one policy by rule: how many, how many name a cause, and one of them."""

    counts: Counter[str]
    caused: Counter[str]
    examples: dict[str, PlannedNode]
    without_evidence: int = 0

    def add(self, plan: mezzo.Plan) -> None:
        for node in plan.nodes:
            if node.kind == "op" and node.precision.compute is plan.high:
                self.counts[node.rule] += 1
                self.caused[node.rule] += node.cause is not None
                self.examples.setdefault(node.rule, node)
                self.without_evidence += not (node.rule and node.because)


def cases_of(suite: str, cache: Path) -> Iterator[Case]:
    match suite:
        case "operators":
            return operators()
        case "zoo":
            return zoo()
        case _:
            return architectures(cache)


def measure(model: onnx.ModelProto, to: str, policy: str, totals: dict[str, Total]) -> None:
    """Add what each strategy makes of a model."""
    rows = mezzo.compare_strategies(model, to=to, policy=policy)
    mincut = next(row for row in rows if row.strategy == "mincut")
    for row in rows:
        totals.setdefault(row.strategy, Total(policy, row.strategy)).add(row, mincut)


def print_totals(totals: Sequence[Total], console: Console, title: str) -> None:
    table = Table(title=title)
    for name in ("policy", "strategy"):
        table.add_column(name)
    for name in ("models", "low nodes", "casts", "MB cast", "cost to mincut", "dearest", "as cheap", "cheaper"):
        table.add_column(name, justify="right")
    least = {total.policy: total.cost for total in totals if total.strategy == "mincut"}
    for total in sorted(totals, key=lambda total: (total.policy, total.cost)):
        table.add_row(
            total.policy, total.strategy, str(total.models), f"{total.low_nodes}/{total.nodes}", str(total.casts),
            f"{total.cast_bytes / 1e6:.1f}", f"{total.cost / max(least[total.policy], 1):.3f}",
            f"{total.dearest:.2f}", str(total.ties_with_mincut), str(total.cheaper_than_mincut),
        )  # fmt: skip
    console.print(table)


def print_reasons(reasons: Reasons, console: Console, title: str) -> None:
    table = Table(title=title)
    table.add_column("rule")
    table.add_column("nodes", justify="right")
    table.add_column("name a cause", justify="right")
    table.add_column("for example")
    for rule, count in reasons.counts.most_common():
        example = reasons.examples[rule]
        table.add_row(rule, str(count), str(reasons.caused[rule]), f"{example.name}: {example.because}")
    console.print(table)


def main() -> int:
    """Compare, print, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="+", choices=("operators", "zoo", "architectures"), default=["operators"])
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="folder of architectures.py")
    parser.add_argument("--to", choices=("fp16", "bf16"), default="fp16")
    parser.add_argument("--policy", nargs="+", default=["balanced", "aggressive"])
    parser.add_argument("--json", type=Path, default=Path("out/strategies.json"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    console = Console() if sys.stdout.isatty() else Console(width=160)
    every: list[Total] = []
    unexplained = 0
    for suite in options.suite:
        models = [case.model for case in cases_of(suite, options.cache)]
        for policy in options.policy:
            totals: dict[str, Total] = {}
            reasons = Reasons(Counter(), Counter(), {})
            for model in models:
                measure(model, options.to, policy, totals)
                reasons.add(mezzo.plan(model, to=options.to, policy=policy))
            print_totals(list(totals.values()), console, f"{suite}, {options.to}, {policy}")
            print_reasons(reasons, console, f"why operators stay in FP32: {suite}, {options.to}, {policy}")
            every += totals.values()
            unexplained += reasons.without_evidence
    beaten = sum(total.cheaper_than_mincut for total in every)
    console.print(
        f"models on which a strategy is cheaper than mincut: {beaten}; FP32 nodes without evidence: {unexplained}"
    )
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows = [{name: getattr(total, name) for name in Total.__dataclass_fields__} for total in every]
    options.json.write_text(json.dumps({"environment": describe_environment("mezzo"), "totals": rows}, indent=1))
    return 1 if beaten or unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
