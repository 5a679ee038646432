"""Convert a trained digit classifier to FP16, BF16 and INT8, and show what that cost and what was decided. Then tune it
to a budget of error. Run: make demo
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from rich.console import Console, RenderableType
from rich.table import Table

import mezzo
from mezzo.common.machine import find_machine
from mezzo.common.sizes import format_size
from mezzo.conversion.results import Converted
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.onnx.run.session import native_session
from mezzo.report.html import render
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.account import describe_tuning, with_graph
from mezzo.report.text.conversion import report_next_steps
from mezzo.report.text.measured.frontier import report_frontier
from mezzo.report.text.measured.tuning import report_outcome
from mezzo.report.text.picture import report_picture

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits.onnx"
DATA = HERE / "heldout.npz"
OUT = HERE.parents[1] / "out" / "demo"
WANTED_ACCURACY = 0.97
BUDGET = 2e-3
REPORT = OUT / "report.html"
ISLANDS_SHOWN = 2
ASKED = "/block/Add"
# So many digits give INT8 its scales, and judge nothing.
CALIBRATING = 100
QUANTIZED = (("int8", "onnxruntime-cpu"), ("int8,bf16", "openvino-cpu"))


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
    """A converted model: where it is, its row, and what `mezzo.convert` tells of it."""

    path: Path
    row: Row
    result: Converted


def describe_cpu() -> str:
    """The instruction sets that matter for low precision, where the system tells them."""
    machine = find_machine()
    if machine.features is None:
        return f"{machine.architecture}, features unknown"
    return f"{machine.architecture}, {' '.join(machine.features) or 'no feature that speeds low precision up'}"


def relative(path: Path) -> str:
    """Spell a path from where the user stands."""
    return os.path.relpath(path)


def judge(label: str, path: Path, result: Converted, held_out: Mapping[str, np.ndarray]) -> Conversion:
    """Judge a converted model in its true precision, rounding after every operator.

    ONNX Runtime's CPU would compute an FP16 graph in FP32, and has no BF16 kernels at all.
    """
    answers = mezzo.compare(MODEL, result.model, {"image": held_out["image"]}, layers=False).outputs[0]
    logits = mezzo.emulate(result.model, {"image": held_out["image"]})["logits"].astype(np.float32)
    summary = result.summary
    row = Row(
        label=label,
        accuracy=measure_accuracy(logits, held_out["label"]),
        agreement=1.0 if answers.top1 is None else answers.top1.estimate,
        error=answers.relative_l2.estimate,
        size_bytes=path.stat().st_size,
        casts=summary.casts,
        low_nodes=summary.low_nodes,
        high_nodes=summary.high_nodes,
    )
    return Conversion(path, row, result)


def convert(to: str, held_out: Mapping[str, np.ndarray]) -> Conversion:
    path = OUT / f"digits.{to}.onnx"
    return judge(to.upper(), path, mezzo.convert(MODEL, path, to=to), held_out)


def quantize(
    to: str, target: str, calibration: Mapping[str, np.ndarray], held_out: Mapping[str, np.ndarray]
) -> Conversion:
    path = OUT / f"digits.{to.replace(',', '-')}.onnx"
    result = mezzo.convert(MODEL, path, to=to, target=target, data={"image": calibration["image"]})
    return judge(to.upper().replace(",", "+"), path, result, held_out)


def tune(held_out: Mapping[str, np.ndarray]) -> Conversion:
    """Tune to a budget between what BF16 costs everywhere and nothing."""
    path = OUT / "digits.tuned.onnx"
    result = mezzo.tune(MODEL, path, data={"image": held_out["image"]}, max_error=BUDGET, to="bf16")
    return judge("BF16, tuned", path, result, held_out)


def measure_accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


def describe_original(logits: np.ndarray, labels: np.ndarray, float_nodes: int) -> Row:
    """Return the row of the FP32 model."""
    casts = sum(node.op_type == "Cast" for node in onnx.load(MODEL).graph.node)
    return Row("FP32", measure_accuracy(logits, labels), 1.0, 0.0, MODEL.stat().st_size, casts, 0, float_nodes)


def make_comparison(layout: Layout, rows: Iterable[Row]) -> Table:
    numbers = ("accuracy", "as FP32", "error", "size", "casts", "low nodes", "FP32 nodes")
    table = make_table(layout, "", *numbers, right=numbers)
    for row in rows:
        table.add_row(
            row.label,
            f"{row.accuracy:.2%}",
            f"{row.agreement:.2%}",
            f"{row.error:.3%}",
            format_size(row.size_bytes),
            str(row.casts),
            str(row.low_nodes),
            str(row.high_nodes),
        )
    return table


def tell_islands(conversion: Conversion) -> list[RenderableType]:
    """What stayed FP32 and why, a line per kind of island, the largest first."""
    islands = conversion.result.picture.islands
    lines: list[RenderableType] = []
    for island in islands[:ISLANDS_SHOWN]:
        ops = ", ".join(f"{count * island.alike} {op}" for op, count in Counter(n.op for n in island.nodes).items())
        lines.append(indented(f"FP32 for {ops}: {island.because}"))
    return lines


def tell_tuning(layout: Layout, result: Converted) -> list[RenderableType]:
    """What the search found, and the frontier it chose from."""
    measured = result.measured
    assert measured is not None and measured.search is not None, "tuning measures"
    return [*report_outcome(measured), *report_frontier(layout, measured.frontier, measured.costs)]


def write_report(conversion: Conversion) -> None:
    """Draw the tuned model: one page for any browser."""
    result, names = conversion.result, (relative(MODEL), relative(conversion.path))
    assert result.measured is not None, "tuning measures"
    account = describe_tuning(*names, result.plan, result.summary, result.measured, machine=find_machine())
    REPORT.write_text(render(with_graph(account, result.outline(), spell_next_steps())), encoding="utf-8")


def spell_next_steps() -> list[tuple[str, str]]:
    model, out = relative(MODEL), relative(OUT)
    return [
        (f".venv/bin/mezzo explain {model} {ASKED}", "why this node runs in what it runs in"),
        (f".venv/bin/mezzo convert {model} {out}/my.onnx", "the same by hand, with every reason"),
        (
            f".venv/bin/mezzo quantize-report {model} --data {relative(DATA)} --labels label",
            "INT8 by every calibrator: accuracy, error, what runs on integers",
        ),
    ]


def main() -> None:
    console = Console(highlight=False)
    layout = Layout.TERMINAL if console.is_terminal else Layout.PLAIN
    OUT.mkdir(parents=True, exist_ok=True)
    with np.load(DATA, allow_pickle=False) as file:
        digits = dict(file)
    calibration = {name: array[:CALIBRATING] for name, array in digits.items()}
    held_out = {name: array[CALIBRATING:] for name, array in digits.items()}
    runtime = f"ONNX Runtime {onnxruntime.__version__}"
    console.print(f"[bold]mezzo {mezzo.__version__}[/bold], {runtime}; {describe_cpu()}")
    console.print(f"{relative(MODEL)}, {len(held_out['label'])} held-out digits, judged in the true precision;")
    console.print(f"INT8 has its scales from {CALIBRATING} others\n")
    reference = native_session(onnx.load(MODEL)).run({"image": held_out["image"]})["logits"]
    conversions = [convert(to, held_out) for to in LOW_DTYPES]
    conversions += [quantize(to, target, calibration, held_out) for to, target in QUANTIZED]
    conversions.append(tune(held_out))
    first, tuned = conversions[0], conversions[-1]
    original = describe_original(reference, held_out["label"], first.row.low_nodes + first.row.high_nodes)
    parts: list[RenderableType] = [
        make_comparison(layout, [original, *(conversion.row for conversion in conversions)]),
        *report_picture(layout, first.result.picture),
        *tell_islands(first),
        blank(),
        heading(f"tuned: BF16 within a relative error of {BUDGET:g}"),
        *tell_tuning(layout, tuned.result),
        blank(),
        f"report: {relative(REPORT)}, for any browser",
        *report_next_steps(spell_next_steps()),
    ]
    write_report(tuned)
    for part in parts:
        console.print(part, crop=False)
    worst = min(conversion.row.accuracy for conversion in conversions)
    if worst < WANTED_ACCURACY:
        raise SystemExit(f"accuracy {worst:.2%} of a converted model is below {WANTED_ACCURACY:.0%}: a bug in mezzo")


if __name__ == "__main__":
    main()
