"""Tuning against today's bisecting tool: which finds the cheaper plan inside a budget of error, and with how many runs.

    python benchmarks/language_model.py && python benchmarks/outliers.py    # they make the models
    python benchmarks/tuning.py

The tool is onnxconverter-common's auto_mixed_precision: it excludes ever smaller segments of the node list until its
check passes. It runs its trials on ONNX Runtime's CPU, which computes FP16 in FP32 and would pass all of them; here it
judges by the same emulator and the same error as mezzo does: the largest relative L2 over the outputs. Both get the
same samples. Evaluations are runs of a trial model on all of them; mezzo also probes on a few.

Plans are compared by what they cost in mezzo's table, in one problem: gains forgone and the casts that the assignment
needs, so the tool's superfluous casts do not count. The budgets are below what FP16 costs everywhere, or everything
could run low and there would be nothing to search, and above the least that the tool can reach: what it excludes still
hands on FP16, which alone costs 2.8e-4 on the language model and is infinite on outliers that stand between two
operators, so those models are not here. Where the tool runs out of time, its best trial so far counts.

Ends with 1 unless mezzo's plan is inside the budget, at least as cheap, and took a tenth of the evaluations, on each.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from conformance import describe_environment
from outlier_models import FAMILIES, make_feeds
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.contracts.options.request import Request
from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import cost
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session
from mezzo.planner.options import read_options

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Task:
    """A model, a budget, what to tune on and what to judge on."""

    name: str
    model: onnx.ModelProto
    budget: float
    seen: Feeds
    unseen: Feeds


@dataclass(slots=True)
class Found:
    """What one of the two found. Costs are in the table's unit; errors are relative L2 in the true precision.

    `probes`: runs on the first samples alone. `passes`: all samples that were run, over the samples there are.
    """

    low_nodes: int
    cost: int
    error: float
    unseen_error: float
    evaluations: int
    probes: int
    passes: float
    time_s: float
    stopped_by: str


def relative_l2(got: Mapping[str, Any], want: Mapping[str, Any]) -> float:
    """The largest over the outputs; infinite where one is not finite."""
    worst = 0.0
    for name, exact in want.items():
        scale = float(np.linalg.norm(np.asarray(exact, np.float64)))
        error = float(np.linalg.norm(np.asarray(got[name], np.float64) - exact))
        worst = max(worst, error / scale) if math.isfinite(error) else math.inf
    return worst


def error_of(model: onnx.ModelProto, task: Task, feeds: Feeds) -> float:
    return relative_l2(emulated_session(model).run(dict(feeds)), native_session(task.model).run(dict(feeds)))


def make_problem(task: Task) -> Problem:
    """The problem in which both plans are priced: that of the aggressive policy, which forbids least."""
    model = open_model(task.model)
    return judge_model(model, read_options(Request(policy="aggressive")))[1].problem


def price(problem: Problem, low: frozenset[str]) -> int:
    """What a plan costs whose operators of these names run low."""
    return cost(problem, [node.kind is Kind.OP and node.name in low for node in problem.graph.nodes])


def low_names(model: onnx.ModelProto) -> frozenset[str]:
    """Operators of a converted model whose compute group is FP16."""
    nodes = open_model(model).read(DType.FLOAT16).graph.nodes
    return frozenset(n.name for n in nodes if n.kind is Kind.OP and n.signature.dtype is DType.FLOAT16)


def bisect(task: Task, problem: Problem, limit_s: float) -> Found:
    """Let the bisecting tool search, its trials run in their true precision."""
    from onnxconverter_common import auto_mixed_precision as tool

    runs, begin = 0, time.perf_counter()
    names = [port.name for port in task.model.graph.output]
    inner = tool.get_tensor_values_using_ort
    trial: onnx.ModelProto | None = None
    best: onnx.ModelProto | None = None

    def run(model: onnx.ModelProto, feeds: Feeds, output_names: Any = None, sess_options: Any = None) -> list[Any]:
        nonlocal runs, trial
        if output_names is not None:  # it looks for types, and judges nothing
            return list(inner(model, feeds, output_names, sess_options))
        if time.perf_counter() - begin > limit_s:
            raise TimeoutError(f"not done after {limit_s:.0f} s and {runs} evaluations")
        runs, trial = runs + 1, model
        results = emulated_session(model).run(dict(feeds))
        return [results[name] for name in names]

    def passes(reference: Sequence[Any], results: Sequence[Any]) -> bool:
        nonlocal best
        pair = (dict(zip(names, values, strict=True)) for values in (results, reference))
        is_good = relative_l2(*pair) <= task.budget
        best = trial if is_good else best  # whatever passes excludes fewer nodes than what passed before
        return is_good

    stopped_by = ""
    with mock.patch.object(tool, "get_tensor_values_using_ort", run), contextlib.redirect_stdout(io.StringIO()):
        try:
            best = tool.auto_convert_mixed_precision(task.model, dict(task.seen), passes, keep_io_types=True)
        except Exception as error:  # noqa: BLE001  whatever it raises is its result
            stopped_by = f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}"
    time_s = time.perf_counter() - begin
    assert best is not None, "the first run is of the model itself, which passes"
    low = low_names(best)
    errors = [error_of(best, task, feeds) for feeds in (task.seen, task.unseen)]
    # The first run is FP32's.
    return Found(len(low), price(problem, low), *errors, runs - 1, 0, runs, time_s, stopped_by)


def tune(task: Task, problem: Problem) -> Found:
    """Let mezzo search."""
    begin, samples, run = time.perf_counter(), 0, OnnxEmulator.run

    def counted(self: OnnxEmulator, feeds: Feeds, *rest: Any) -> Any:
        nonlocal samples
        samples += len(next(iter(feeds.values())))
        return run(self, feeds, *rest)

    with mock.patch.object(OnnxEmulator, "run", counted):
        made = mezzo.tune(task.model, data=[task.seen], held_out=[task.unseen], max_error=task.budget)
    time_s = time.perf_counter() - begin
    passes = samples / len(next(iter(task.seen.values())))
    record = made.measured.search
    low = frozenset(n.name for n in made.plan.nodes if n.kind == "op" and n.precision.compute is made.plan.low)
    errors = [error_of(made.model, task, feeds) for feeds in (task.seen, task.unseen)]
    return Found(
        len(low), price(problem, low), *errors, record.evaluations, record.partial_evaluations, passes,
        time_s, record.stopped_by,
    )  # fmt: skip


def _digits(budget: float) -> Task:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as file:
        images = file["image"]
    model = onnx.load(DIGITS / "digits.onnx")
    return Task("digits", model, budget, {"image": images[:256]}, {"image": images[256:]})


def _language_model(cache: Path, budget: float) -> Task:
    model = onnx.load(cache / "language_model" / "model.onnx")
    seen, unseen = (
        np.load(cache / "language_model" / f"{part}.npz")["tokens"][:64, :64] for part in ("tuning", "held_out")
    )
    return Task("language model", model, budget, {"tokens": seen}, {"tokens": unseen})


def _outlier(cache: Path, name: str, budget: float) -> Task:
    family = next(row for row in FAMILIES if name.startswith(row.row.name))
    model = onnx.load(cache / "outliers" / f"{name}.onnx")
    used = {port.name for port in model.graph.input}

    def join(seeds: range) -> Feeds:
        every = [make_feeds(family.row.feed, seed) for seed in seeds]
        return {n: np.concatenate([feeds[n] for feeds in every]) for n in every[0] if n in used}

    return Task(name, model, budget, join(range(32)), join(range(32, 64)))


def find_tasks(cache: Path) -> dict[str, Callable[[], Task]]:
    return {
        "language-model": lambda: _language_model(cache, 3e-4),
        "digits": lambda: _digits(5.2e-4),
        "bert-attention": lambda: _outlier(cache, "bert-attention", 2.5e-3),
        "llama-ffn": lambda: _outlier(cache, "llama-ffn", 1.7e-3),
        "vit-attention": lambda: _outlier(cache, "vit-attention", 2.2e-3),
    }


def misses(task: Task, ours: Found, theirs: Found) -> str:
    faults = []
    if not max(ours.error, ours.unseen_error) <= task.budget:
        faults.append("outside the budget")
    if ours.cost > theirs.cost:
        faults.append("dearer")
    if ours.evaluations * 10 > theirs.evaluations:
        faults.append("more than a tenth of the evaluations")
    return ", ".join(faults)


def print_rows(rows: Sequence[tuple[Task, Found, Found]], console: Console) -> None:
    table = Table(title="the cheapest FP16 plan inside a budget, judged in the true precision")
    for name in ("model", "tool"):
        table.add_column(name)
    for name in ("budget", "low nodes", "cost", "error", "on unseen data", "evaluations", "passes", "s"):
        table.add_column(name, justify="right")
    table.add_column("misses or was stopped by")
    for task, ours, theirs in rows:
        for name, found in (("mezzo", ours), ("bisection", theirs)):
            note = misses(task, ours, theirs) if found is ours else found.stopped_by
            if found is theirs and found.unseen_error > task.budget:
                note = f"outside the budget on unseen data {note}"
            count = f"{found.evaluations} + {found.probes} probes" if found.probes else str(found.evaluations)
            table.add_row(
                task.name, name, f"{task.budget:.1e}", str(found.low_nodes), f"{found.cost:.3g}", f"{found.error:.2e}",
                f"{found.unseen_error:.2e}", count, f"{found.passes:.1f}", f"{found.time_s:.0f}", note,
            )  # fmt: skip
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out"), help="folder with language_model/ and outliers/")
    parser.add_argument("--only", nargs="*", default=[], help="names of models; all if left out")
    parser.add_argument("--limit", type=float, default=900, help="seconds that the bisecting tool may take on a model")
    parser.add_argument("--json", type=Path, default=Path("out/tuning.json"))
    options = parser.parse_args()
    if importlib.util.find_spec("onnxconverter_common") is None:
        print("the other tool is missing: pip install onnxconverter-common", file=sys.stderr)
        return 2
    console = Console() if sys.stdout.isatty() else Console(width=170)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows = []
    for name, make in find_tasks(options.cache).items():
        if options.only and name not in options.only:
            continue
        task = make()
        problem = make_problem(task)
        ours = tune(task, problem)
        theirs = bisect(task, problem, options.limit)
        rows.append((task, ours, theirs))
        print_rows(rows[-1:], console)
    print_rows(rows, console)
    for tool, every in (("mezzo", [row[1] for row in rows]), ("bisection", [row[2] for row in rows])):
        evaluations, passes = (sum(getattr(found, name) for found in every) for name in ("evaluations", "passes"))
        console.print(f"{tool}: {evaluations} evaluations, {passes:.0f} passes over the samples in all")
    report = {
        "environment": describe_environment("mezzo"),
        "rows": [
            {"model": task.name, "budget": task.budget, "mezzo": asdict(ours), "bisection": asdict(theirs)}
            | {"misses": misses(task, ours, theirs)}
            for task, ours, theirs in rows
        ],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    return 1 if any(misses(*row) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
