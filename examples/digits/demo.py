"""Convert a trained digit classifier to FP16 and BF16, and show what that cost and what was decided. Then tune it to a
budget of error. Run: make demo
"""

import os
import platform
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

import mezzo
from mezzo.dtypes import LOW_DTYPES
from mezzo.frontends.onnx.run import native_session
from mezzo.plans import Plan, PlannedNode
from mezzo.report.layout import Layout
from mezzo.report.tuning import report_tuning

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits.onnx"
DATA = HERE / "heldout.npz"
OUT = HERE.parents[1] / "out" / "demo"
WANTED_ACCURACY = 0.97
BUDGET = 2e-3
CPU_FEATURES = ("amx_bf16", "amx_fp16", "amx_int8", "avx512_fp16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `error` is the relative L2 error of the logits."""

    label: str
    accuracy: float
    agreement: float
    error: float
    size_bytes: int
    casts: int
    low_nodes: int
    high_nodes: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converted model: where it is, how long it took, its row, its plan and the notes for people."""

    path: Path
    time_s: float
    row: Row
    plan: Plan
    notes: tuple[str, ...]


def read_cpu_features() -> str:
    """Return the instruction sets that matter for low precision, from /proc/cpuinfo where there is one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return f"{platform.machine()}, features unknown"
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    present = [feature for feature in CPU_FEATURES if feature in flags]
    return f"{platform.machine()}, {' '.join(present) or 'none of ' + ' '.join(CPU_FEATURES)}"


def relative(path: Path) -> str:
    """Spell a path from where the user stands."""
    return os.path.relpath(path)


def convert(to: str, held_out: Mapping[str, np.ndarray]) -> Conversion:
    """Convert the model and judge it in its true precision, rounding after every operator.

    ONNX Runtime's CPU would compute an FP16 graph in FP32, and has no BF16 kernels at all.
    """
    path = OUT / f"digits.{to}.onnx"
    start = time.perf_counter()
    result = mezzo.convert(MODEL, path, to=to)
    time_s = time.perf_counter() - start
    answers = mezzo.compare(MODEL, result.model, {"image": held_out["image"]}, layers=False).outputs[0]
    logits = mezzo.emulate(result.model, {"image": held_out["image"]})["logits"].astype(np.float32)
    summary = result.summary
    row = Row(
        label=to.upper(),
        accuracy=measure_accuracy(logits, held_out["label"]),
        agreement=1.0 if answers.top1 is None else answers.top1.estimate,
        error=answers.relative_l2.estimate,
        size_bytes=path.stat().st_size,
        casts=summary.casts,
        low_nodes=summary.low_nodes,
        high_nodes=summary.high_nodes,
    )
    return Conversion(path, time_s, row, result.plan, summary.notes)


def measure_accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


def describe_original(logits: np.ndarray, labels: np.ndarray, float_nodes: int) -> Row:
    """Return the row of the FP32 model."""
    casts = sum(node.op_type == "Cast" for node in onnx.load(MODEL).graph.node)
    return Row("FP32", measure_accuracy(logits, labels), 1.0, 0.0, MODEL.stat().st_size, casts, 0, float_nodes)


def make_comparison(rows: Iterable[Row]) -> Table:
    table = Table(title="before and after, judged in the true precision (rounded after every operator)")
    table.add_column("model")
    for heading in ("accuracy", "same answer\nas FP32", "relative\nerror", "size", "casts", "low\nnodes"):
        table.add_column(heading, justify="right")
    table.add_column("FP32\nnodes", justify="right")
    for row in rows:
        table.add_row(
            row.label,
            f"{row.accuracy:.2%}",
            f"{row.agreement:.2%}",
            f"{row.error:.3%}",
            f"{row.size_bytes / 1024:.0f} KB",
            str(row.casts),
            str(row.low_nodes),
            str(row.high_nodes),
        )
    return table


def group_high_nodes(plan: Plan) -> dict[str, list[PlannedNode]]:
    """Group the operators that stayed FP32 by the rule that kept them, the largest group first."""
    groups: dict[str, list[PlannedNode]] = {}
    for node in plan.nodes:
        if node.kind == "op" and node.precision.compute is plan.high:
            groups.setdefault(node.rule, []).append(node)
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))


def describe_node(node: PlannedNode) -> str:
    return f"{node.name} (from {node.cause})" if node.cause else node.name


def print_reasons(console: Console, conversion: Conversion) -> None:
    """Print each rule that kept operators in FP32: which operators, why, and up to two nodes by name."""
    row, groups = conversion.row, group_high_nodes(conversion.plan)
    kept = sum(map(len, groups.values()))
    console.print(f"\n[bold]{row.label}: {kept} of {row.low_nodes + row.high_nodes} operators stayed FP32[/bold]")
    for rule, nodes in groups.items():
        ops = ", ".join(f"{op} {count}" for op, count in Counter(node.op for node in nodes).most_common())
        examples = [describe_node(node) for node in nodes[:2]]
        if len(nodes) > 2:
            examples.append(f"and {len(nodes) - 2} more")
        console.print(f"  [cyan]{escape(rule)}[/cyan]: {escape(ops)}", highlight=False)
        for line in (nodes[0].because, *examples):
            console.print(Padding(escape(line), (0, 0, 0, 6)), highlight=False)
    for note in conversion.notes:
        console.print(f"  [dim]note: {escape(note)}[/dim]", highlight=False)


def print_tuning(console: Console, held_out: Mapping[str, np.ndarray]) -> None:
    """Tune to a budget between what BF16 costs everywhere and nothing, and draw the frontier it was chosen from."""
    path = OUT / "digits.tuned.onnx"
    result = mezzo.tune(MODEL, path, data={"image": held_out["image"]}, max_error=BUDGET, to="bf16")
    console.print(f"\n[bold]tuned: BF16 within a relative error of {BUDGET:g}[/bold]", highlight=False)
    layout = Layout.TERMINAL if console.is_terminal else Layout.PLAIN
    assert result.measured is not None, "tuning measures"
    for part in report_tuning(layout, relative(MODEL), relative(path), result.plan, result.summary, result.measured):
        console.print(part)


def print_next_steps(console: Console, conversions: Iterable[Conversion]) -> None:
    console.print("\n[bold]written[/bold]")
    asked = None
    for conversion in conversions:
        console.print(f"  {relative(conversion.path)}  (converted in {conversion.time_s:.2f} s)", soft_wrap=True)
        kept = [node for nodes in group_high_nodes(conversion.plan).values() for node in nodes]
        asked = asked or next((node.name for node in kept if node.cause), kept[0].name if kept else None)
    asked = asked or next(iter(onnx.load(MODEL).graph.node)).name
    model, data = relative(MODEL), f"--data {relative(DATA)} --labels label"
    console.print("\n[bold]try next[/bold]")
    for command, effect in (
        (f"explain {model} {asked}", "why this node has its precision"),
        (f"plan {model} --to fp16", "every decision, before anything is written"),
        (f"convert {model} {relative(OUT)}/mine.onnx --to fp16 --policy aggressive", "fewer nodes in FP32"),
        (f"convert {model} {relative(OUT)}/mine.onnx --to fp16 --exclude 'op:Gemm'", "keep an operator in FP32"),
        (f"sensitivity {model} {data} --to bf16", "what each operator costs in output error"),
        (f"tune {model} {relative(OUT)}/mine.onnx {data} --max-error 3e-4", "the fastest plan inside a budget"),
    ):
        console.print(f"  .venv/bin/mezzo {escape(command)}", soft_wrap=True, highlight=False)
        console.print(f"      [dim]{effect}[/dim]", highlight=False)


def main() -> None:
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    with np.load(DATA, allow_pickle=False) as file:
        held_out = dict(file)
    console.print(f"[bold]mezzo {mezzo.__version__}[/bold], ONNX Runtime {onnxruntime.__version__}", highlight=False)
    console.print(f"CPU: {read_cpu_features()}", highlight=False)
    console.print(f"model: {relative(MODEL)}, judged on {len(held_out['label'])} held-out digits\n", highlight=False)
    reference = native_session(onnx.load(MODEL)).run({"image": held_out["image"]})["logits"]
    conversions = [convert(to, held_out) for to in LOW_DTYPES]
    first = conversions[0].row
    original = describe_original(reference, held_out["label"], first.low_nodes + first.high_nodes)
    console.print(make_comparison([original, *(conversion.row for conversion in conversions)]))
    for conversion in conversions:
        print_reasons(console, conversion)
    print_tuning(console, held_out)
    print_next_steps(console, conversions)
    worst = min(conversion.row.accuracy for conversion in conversions)
    if worst < WANTED_ACCURACY:
        raise SystemExit(f"accuracy {worst:.2%} of a converted model is below {WANTED_ACCURACY:.0%}: a bug in mezzo")


if __name__ == "__main__":
    main()
