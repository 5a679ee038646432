"""What corrections of INT8 error gain in exported PyTorch programs: trained networks of `torch_tasks.py`,
converted to INT8 with several corrections, on data that neither scales nor corrections have seen.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_corrections.py --only cnn residual vit

Errors are relative L2 of the answers to eager FP32; scales and corrections are from 320 other digits, a quarter of
which is held out and decides what is kept. The run ends with 1 if a network with corrections is further off than
without.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch_tasks import TASKS, Task, error_of, measured

import mezzo

STEPS = ("none", "smooth", "weights", "bias", "auto", "leave,smooth,weights,bias")
SLACK = 1.02  # what is kept by the held-out quarter may be worse by chance on other data


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network with some corrections. `score`: per cent of right answers; `int8`: matmuls and convolutions."""

    name: str
    correct: str
    kept: str
    error: float
    score: float
    int8: int


def measure(name: str, task: Task, steps: Sequence[str]) -> list[Row]:
    sample = task.data[0]
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(task.network, (sample,), dynamic_shapes=shapes)
    (port,) = (spec.arg.name for spec in program.graph_signature.input_specs if spec.target is None)
    data = [{port: batch.numpy()} for batch in task.data]
    right = task.answers(task.network)
    rows = []
    for correct in steps:
        result = mezzo.convert(program, to="int8", target="torch-cpu", data=data, correct=correct)
        answers = task.answers(result.model.module())
        notes = [note.removeprefix("correction ") for note in result.plan.notes if note.startswith("correction ")]
        row = Row(
            name=name,
            correct=correct,
            kept=", ".join(note.partition(":")[0] for note in notes if ": kept" in note),
            error=error_of(answers, right),
            score=task.score(answers),
            int8=sum(
                str(node.precision.compute) == "int8" and node.op in ("linear", "conv2d") for node in result.plan.nodes
            ),
        )
        print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(TASKS), default=["cnn", "residual", "preact", "vit"])
    parser.add_argument("--correct", nargs="+", default=list(STEPS), help="corrections to try together, with commas")
    parser.add_argument("--cache", type=Path, default=Path("out/int8"), help="folder of trained networks")
    parser.add_argument("--json", type=Path, help="where the rows go")
    given = parser.parse_args(arguments)
    rows = measured(given.only, given.cache, lambda name, task: measure(name, task, given.correct))
    table = Table(box=None)
    for column in ("network", "correct", "kept", "error", "right, %", "in INT8"):
        table.add_column(column, justify="left" if column in ("network", "correct", "kept") else "right")
    for row in rows:
        table.add_row(row.name, row.correct, row.kept, f"{row.error:.2e}", f"{row.score:.2f}", str(row.int8))
    Console(width=120).print(table)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    plain = {row.name: row.error for row in rows if row.correct == "none"}
    return 0 if all(row.error <= SLACK * plain.get(row.name, row.error) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
