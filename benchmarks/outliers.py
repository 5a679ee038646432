"""Transformers with activations past 65,504 in known places: are conversions on data right, and how much is low?

    python benchmarks/outliers.py --cache out/outliers

The models are those of outlier_models.py: five families, and outliers in three kinds of places.
Judged in the true precision on feeds that the conversion did not see: every output finite and within 1 % (relative L2),
while at least 80 % of the multiply-adds of MatMul, Gemm and Conv stay low. Ends with 1 where that fails.

Needs torch and transformers to make the models.
"""

import argparse
import importlib.util
import json
import logging
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
from architectures import NEEDED
from conformance import describe_environment
from outlier_models import FAMILIES, Family, make_feeds, make_model
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session

LARGEST_ERROR = 0.01
LEAST_LOW_WORK = 0.8
CALIBRATION_BATCHES, HELD_OUT_BATCHES = 4, 2


def count_work(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Multiply-adds of every MatMul, Gemm and Conv by name, from the shapes of a run."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    heavy = [node for node in copy.graph.node if node.op_type in ("MatMul", "Gemm", "Conv")]
    made = {name for node in copy.graph.node for name in node.output}
    wanted = {name for node in heavy for name in (*node.input[:2], node.output[0]) if name in made}
    shown = {port.name for port in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted - shown))
    shapes = {name: np.shape(value) for name, value in native_session(_typed(copy)).run(dict(feeds)).items()}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in copy.graph.initializer}
    shapes |= {name: value.shape for name, value in feeds.items()}
    work = {}
    for node in heavy:
        first, second = shapes[node.input[0]], shapes[node.input[1]]
        is_turned = any(a.name == "transA" and a.i for a in node.attribute)
        depth = math.prod(second[1:]) if node.op_type == "Conv" else first[0] if is_turned else first[-1]
        work[node.name] = math.prod(shapes[node.output[0]]) * depth
    return work


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give the outputs that were added their types: all of them are FP32."""
    for port in model.graph.output:
        if not port.HasField("type"):
            port.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return model


@dataclass(slots=True)
class Row:
    """One line of the table. Errors are relative L2 over the held-out feeds; NaN where an output is not finite."""

    model: str
    place: str
    peak: float
    error_without: float
    low_without: float
    error_with: float
    low_with: float
    notes: list[str] = field(default_factory=list)

    @property
    def misses(self) -> str:
        faults = [] if self.error_with <= LARGEST_ERROR else [f"error above {LARGEST_ERROR:.0%}"]
        return ", ".join(faults + ([] if self.low_with >= LEAST_LOW_WORK else [f"less than {LEAST_LOW_WORK:.0%} low"]))


def largest_activation(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> float:
    """The largest finite magnitude that any FP32 operator of the main graph gives, masks of constants left out."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    operators = ("MatMul", "Gemm", "Add", "Mul", "LayerNormalization")
    heavy = [node.output[0] for node in model.graph.node if node.op_type in operators]
    shown = {port.name for port in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(heavy) if name not in shown)
    inferred = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    kept = [p for p in copy.graph.output if p.name in shown or inferred.get(p.name) == onnx.TensorProto.FLOAT]
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    values = native_session(_typed(copy)).run(dict(feeds)).values()
    sizes = [float(np.abs(value).max()) for value in values if np.size(value)]
    return max(size for size in sizes if size < 1e30)


def judge(made: mezzo.Converted, model: onnx.ModelProto, batches: Sequence[Mapping[str, np.ndarray]]) -> float:
    """Relative L2 of a plan in its true precision, the largest over the outputs; NaN where one is not finite."""
    session, reference = emulated_session(made.model), native_session(model)
    sums: dict[str, np.ndarray] = {}
    for feeds in batches:
        got, want = session.run(dict(feeds)), reference.run(dict(feeds))
        for name, exact in want.items():
            difference = np.asarray(got[name], np.float64) - exact
            pair = np.array([np.sum(difference**2), np.sum(np.asarray(exact, np.float64) ** 2)])
            sums[name] = sums.get(name, 0) + pair
    return float(np.max([math.sqrt(error / scale) for error, scale in sums.values()]))


def low_share(made: mezzo.Converted, work: Mapping[str, int]) -> float:
    """Share of the multiply-adds that run low."""
    low = sum(size for name, size in work.items() if made.plan.by_name[name].precision.compute is made.plan.low)
    return low / sum(work.values())


def measure(family: Family, place: str, path: Path, policy: str) -> Row:
    """Convert with and without data, and judge both."""
    model = onnx.load(path)
    used = {port.name for port in model.graph.input}
    seen = [make_feeds(family.row.feed, seed) for seed in range(CALIBRATION_BATCHES + HELD_OUT_BATCHES)]
    batches = [{name: value for name, value in feeds.items() if name in used} for feeds in seen]
    work = count_work(model, batches[0])
    held_out = batches[CALIBRATION_BATCHES:]
    without = mezzo.convert(model, policy=policy)
    protected = mezzo.convert(model, policy=policy, data=batches[:CALIBRATION_BATCHES])
    return Row(
        family.row.name, place, largest_activation(model, batches[0]), judge(without, model, held_out),
        low_share(without, work), judge(protected, model, held_out), low_share(protected, work),
    )  # fmt: skip


def print_rows(rows: Sequence[Row], console: Console, policy: str) -> None:
    table = Table(title=f"activations past 65,504, FP16 in its true precision, policy {policy}")
    for name in ("model", "outliers in"):
        table.add_column(name)
    for name in ("largest", "error without data", "low work", "error with data", "low work"):
        table.add_column(name, justify="right")
    table.add_column("misses")
    for row in rows:
        table.add_row(
            row.model, row.place, f"{row.peak:.2g}", f"{row.error_without:.2e}", f"{row.low_without:.1%}",
            f"{row.error_with:.2e}", f"{row.low_with:.1%}", row.misses,
        )  # fmt: skip
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/outliers"), help="folder that takes the models")
    parser.add_argument("--only", nargs="*", default=[], help="names of models; all if left out")
    parser.add_argument("--policy", default="balanced")
    parser.add_argument("--json", type=Path, default=Path("out/outliers.json"))
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    options.cache.mkdir(parents=True, exist_ok=True)
    rows = []
    for family in FAMILIES:
        for place in family.places if not options.only or family.row.name in options.only else ():
            path = options.cache / f"{family.row.name}-{place}.onnx"
            if not path.exists():
                missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
                if missing:
                    print(f"making models needs {', '.join(missing)}: pip install -e '.[bench]'", file=sys.stderr)
                    return 2
                make_model(family, place, path)
            rows.append(measure(family, place, path, options.policy))
    print_rows(rows, console, options.policy)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "environment": describe_environment("mezzo"),
        "rows": [asdict(row) | {"misses": row.misses} for row in rows],
    }
    options.json.write_text(json.dumps(report, indent=1))
    return 1 if any(row.misses for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
