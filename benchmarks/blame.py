"""Faults planted in the kernel of one node of small models: does `mezzo.blame` name the node, and nothing without one?

    python benchmarks/blame.py
    python benchmarks/blame.py --targets openvino-cpu --formats fp16 bf16 int8   # runtimes as they are, no fault
    python benchmarks/blame.py --cache out/architectures --json out/blame.json   # and what architectures.py exported

The models are those of tests/support/trouble_models.py, converted on data to FP16 and to INT8 for ONNX Runtime, which
runs them. Without a fault it is right, so whatever is blamed is a false alarm. Planted are, at nodes drawn at random:
results off by a share; the same only where the next node is in the file too, as of a fused kernel; and a node that
does not load. Unseen are faults that change the model's answers by less than its noise. Ends with 1 where a false alarm
is raised, or a part is named that does not hold the node.
"""

import argparse
import json
import logging
import os
import random
import statistics
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.common.errors import MezzoError
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.numerics.blames import Finding

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from faulty_runtime import TARGET, VARIABLE, fault
from trouble_models import ROWS, make_spot

Feeds = Mapping[str, Any]
_TARGET = "onnxruntime-cpu"
KINDS = ("off by 5 %", "off by 1 %", "off by 5 % if the next follows", "does not load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault of one model, or none. `outcome`: exact, part, unseen, missed, wrong; right or false alarm without."""

    model: str
    to: str
    kind: str
    outcome: str
    nodes: int
    node: str = ""
    part: int = 0
    runs: int = 0


def models(cache: Path | None, only: Sequence[str]) -> Iterator[tuple[str, onnx.ModelProto, list[Feeds]]]:
    """Names, models and data."""
    for name in ROWS:
        if not only or any(part in name for part in only):
            spot = make_spot(name)
            yield name, spot.model, [*spot.seen, *spot.unseen]
    for path in sorted(cache.glob("*.onnx")) if cache is not None else ():
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
            feeds = {name[3:]: array for name, array in stored.items() if name.startswith("in:")}
        if not only or any(part in path.stem for part in only):
            yield path.stem, onnx.load(path), [feeds]


def measure(name: str, model: onnx.ModelProto, data: list[Feeds], to: str, faults: int) -> Iterator[Row]:
    """A row without a fault, and one for each that is planted."""
    try:
        low = mezzo.convert(model, to=to, data=data, target=_TARGET, check=False).model
    except MezzoError as error:
        logging.getLogger(__name__).info("%s is not converted to %s: %s", name, to, error)
        return
    parts = lab_of(open_source(low, False, None)).profiler.parts()
    titles = {node.name for node in parts.nodes.values()}
    nodes = [node for node in low.graph.node if _title(node) in titles and node.op_type != "Cast"]
    os.environ.pop(VARIABLE, None)
    found = mezzo.blame(model, low, data, target=TARGET)
    is_right = found.kernels is not None and not found.kernels.is_wrong
    if not is_right and found.fault is not None:
        return  # this version of ONNX Runtime does not load it
    yield Row(model=name, to=to, kind="none", outcome="right" if is_right else "false alarm", nodes=len(nodes))
    yield from _faults(name, model, low, nodes, data, to, faults)


def judge_runtime(name: str, model: onnx.ModelProto, data: list[Feeds], to: str, target: str) -> Iterator[Row]:
    """A row for a runtime as it is: a part that is named is a false alarm, unless its kernel is wrong indeed."""
    try:
        low = mezzo.convert(model, to=to, data=data, target=target, check=False).model
        found = mezzo.blame(model, low, data, target=target)
    except MezzoError as error:
        logging.getLogger(__name__).info("%s is not converted to %s: %s", name, to, error)
        return
    nodes = [] if found.kernel is None else [f"{node.name} ({node.op})" for node in found.kernel.nodes]
    is_right = found.finding in (Finding.NEITHER, Finding.UNKNOWN, Finding.PLAN)
    outcome = "right" if is_right else "false alarm"
    runs = 0 if found.kernel is None else found.kernel.runs
    yield Row(
        model=name, to=to, kind=f"none, on {target}", outcome=outcome, nodes=len(low.graph.node),
        node=", ".join(nodes), part=len(nodes), runs=runs,
    )  # fmt: skip


def _faults(
    name: str,
    model: onnx.ModelProto,
    low: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    data: list[Feeds],
    to: str,
    faults: int,
) -> Iterator[Row]:
    rng = random.Random(f"{name} {to}")
    places = [node for node in nodes if _is_float(low, node)]
    for kind in KINDS:
        for node in rng.sample(places, min(faults, len(places))):
            planted = _plant(low, node, kind)
            if planted is not None:
                os.environ[VARIABLE] = planted
                yield _judge(name, to, kind, node, mezzo.blame(model, low, data, target=TARGET), len(nodes))
    os.environ.pop(VARIABLE, None)


def _plant(model: onnx.ModelProto, node: onnx.NodeProto, kind: str) -> str | None:
    """The fault as the runtime reads it; None where no node follows."""
    output = node.output[0]
    if kind == KINDS[1]:
        return fault(output, error=0.01)
    if kind == KINDS[2]:
        readers = [each.output[0] for each in model.graph.node if output in each.input]
        return fault(output, before=readers[0]) if readers else None
    return fault(output, dies=kind == KINDS[3])


def _judge(name: str, to: str, kind: str, node: onnx.NodeProto, found: mezzo.Blame, nodes: int) -> Row:
    title, kernel = _title(node), found.kernel
    if kernel is None:
        is_unseen = found.kernels is not None and not found.kernels.is_wrong
        return Row(model=name, to=to, kind=kind, outcome="unseen" if is_unseen else "missed", nodes=nodes, node=title)
    names = [each.name for each in kernel.nodes]
    outcome = "wrong" if title not in names else "exact" if len(names) == 1 else "part"
    return Row(
        model=name, to=to, kind=kind, outcome=outcome, nodes=nodes, node=title, part=len(names), runs=kernel.runs
    )


def _title(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type}:{node.output[0]}"


def _is_float(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether the node is of the main graph, depends on an input and makes floats."""
    inferred = _TYPES.setdefault(id(model), {
        value.name: value.type.tensor_type.elem_type
        for value in (*onnx.shape_inference.infer_shapes(model).graph.value_info, *model.graph.output)
    })  # fmt: skip
    return bool(node.output) and inferred.get(node.output[0]) in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)


_TYPES: dict[int, dict[str, int]] = {}


def _print(console: Console, rows: Sequence[Row]) -> None:
    outcomes = ("right", "false alarm", "exact", "part", "unseen", "missed", "wrong")
    table = Table("to", "fault", *outcomes, "largest part", "runs, median", "most runs")
    for to in dict.fromkeys(row.to for row in rows):
        for kind in dict.fromkeys(row.kind for row in rows):
            some = [row for row in rows if (row.to, row.kind) == (to, kind)]
            counts = [str(sum(row.outcome == outcome for row in some) or "-") for outcome in outcomes]
            runs = [row.runs for row in some if row.runs]
            ends = [max(row.part for row in some), statistics.median(runs), max(runs)] if runs else ["-"] * 3
            table.add_row(to, kind, *counts, *(str(end) for end in ends))
    console.print(table)
    for row in rows:
        if row.outcome in ("false alarm", "missed", "wrong"):
            console.print(f"{row.outcome}: {row.model}, {row.to}, {row.kind} at {row.node}", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="the folder of benchmarks/architectures.py")
    parser.add_argument("--faults", type=int, default=1, help="of each kind in each model")
    parser.add_argument("--targets", nargs="+", default=[], help="runtimes to judge as they are, without faults")
    parser.add_argument("--formats", nargs="+", default=["fp16", "int8"])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of models; all if left out")
    parser.add_argument("--json", type=Path, default=Path("out/blame.json"))
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ["PYTHONPATH"] = os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")])
    rows: list[Row] = []
    for name, model, data in models(asked.cache, asked.only):
        for to in asked.formats:
            if not asked.targets:
                rows += measure(name, model, data, to, asked.faults)
            for target in asked.targets:
                rows += judge_runtime(name, model, data, to, target)
            print(f"{name} {to}: {sum(row.outcome == 'exact' for row in rows)} exact so far", file=sys.stderr)
    _print(Console() if sys.stdout.isatty() else Console(width=160), rows)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
    asked.json.write_text(json.dumps(report, indent=1))
    return int(any(row.outcome in ("false alarm", "wrong") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
