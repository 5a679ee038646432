"""Trained networks in torch.compile with INT8: their task on data that calibration has not seen, beside FP32 and BF16.

    python benchmarks/torch_int8_trained.py --json out/torch-int8-trained.json
    python benchmarks/torch_int8_trained.py --only crepe-tiny --frozen --to int8 --max-error 0.05 0.1

The networks, their tasks and what to install are in torch_tasks.py. Scales are from other data, errors are relative L2
of the answers to eager FP32, the largest of an output. The run ends with 1 if a network with INT8 is more than half a
point below FP32, or an error on that data is above its budget.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch_int8 import PRODUCTS
from torch_speed import describe_torch_environment
from torch_tasks import TASKS, Task, error_of, measured

import mezzo.torch

POINTS = 0.5  # of a hundred, that INT8 may lose
FORMATS = ("bf16", "int8,bf16", "int8", "int8 dynamic", "int8w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network in one format. `score`: per cent; `int8` of `products` run in kernels of INT8."""

    name: str
    to: str
    score: float
    loss: float | None = None
    budget: float | None = None
    error: float = 0.0
    int8: int = 0
    products: int = 0

    @property
    def is_held(self) -> bool:
        return self.budget is None or self.error <= self.budget


def measure(
    name: str, task: Task, formats: Sequence[str], is_frozen: bool, budgets: Sequence[float | None]
) -> list[Row]:
    """The score in FP32, and in each format within each budget."""
    right = task.answers(task.network)
    rows = [Row(name=name, to="fp32", score=task.score(right), loss=task.loss and task.loss(right))]
    print(json.dumps(asdict(rows[0])), file=sys.stderr, flush=True)
    for to, budget in ((to, budget) for to in formats for budget in budgets):
        torch._dynamo.reset()
        options: dict[str, Any] = {} if budget is None else {"max_error": budget}
        if to == "int8 dynamic":
            options["calibrator"] = "none"
        if budget is not None or to in ("int8", "int8,bf16"):
            options["data"] = task.data
        run = mezzo.torch.compile(task.network, to=to.partition(" ")[0], freeze=is_frozen, **options)
        answers = task.answers(run)
        graphs = mezzo.torch.account(run).graphs[:1]  # the next one is of a last batch that is smaller
        nodes = [node for graph in graphs if graph.plan is not None for node in graph.plan.nodes]
        row = Row(
            name=name,
            to=to,
            score=task.score(answers),
            loss=task.loss and task.loss(answers),
            budget=budget,
            error=error_of(answers, right),
            int8=sum(graph.int8_products for graph in graphs),
            products=sum(node.op in PRODUCTS and node.kind == "op" for node in nodes),
        )
        rows.append(row)
        print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    return rows


def show(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None)
    for column in ("network", "to", "right, %", "perplexity", "budget", "error", "in INT8"):
        table.add_column(column, justify="left" if column in ("network", "to") else "right")
    for row in rows:
        int8 = f"{row.int8} of {row.products}" if "int8" in row.to else ""
        perplexity = "" if row.loss is None else f"{math.exp(row.loss):.2f}"
        budget = "" if row.budget is None else f"{row.budget:g}"
        error = f"{row.error:.2e}{'' if row.is_held else ': above'}" if row.error else ""
        table.add_row(row.name, row.to, f"{row.score:.2f}", perplexity, budget, error, int8)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=list(FORMATS[:3]))
    parser.add_argument("--frozen", action="store_true", help="weights are constants")
    parser.add_argument("--max-error", type=float, nargs="+", default=[None], help="budgets that are held on the data")
    parser.add_argument("--cache", type=Path, default=Path("out/int8"), help="folder of trained networks")
    parser.add_argument("--json", type=Path, help="where the rows go")
    given = parser.parse_args(arguments)
    rows = measured(
        given.only, given.cache, lambda name, task: measure(name, task, given.to, given.frozen, given.max_error)
    )
    show(rows, Console(width=100))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"environment": describe_torch_environment(), "results": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    floats = {row.name: row.score for row in rows if row.to == "fp32"}
    return 0 if all(row.is_held and row.score >= floats[row.name] - POINTS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
