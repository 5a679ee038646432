"""Every exported architecture with hidden outliers: what do converters keep low on data, and are they right?

    python benchmarks/architectures.py --cache out/architectures          # needs torch and transformers
    python benchmarks/outlier_architectures.py --cache out/architectures --autocast-python PYTHON

Where outliers are hidden tells outlier_places.py. Each tool sees the same batches; its result is judged in the true
precision on batches that it did not see: right is every output finite and within 1 % (relative L2). Counted are the
matrix products, convolutions and attentions that run low, and the casts between floats. PYTHON has
nvidia-modelopt[onnx]; without it AutoCast is left out. Ends with 1 where mezzo is wrong on a model.
"""

import argparse
import json
import logging
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from float_nodes import count_casts, float_nodes
from outlier_places import hide_outliers
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.onnx.run.session import native_session

LARGEST_ERROR = 0.01
SEEN, UNSEEN = 3, 6
VOCABULARY = 99
HEAVY = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Attention", "MultiHeadAttention"})
# A model whose FP32 answers move by more than this, when its numbers do by half a unit, shows nothing of a converter.
_LARGEST_NOISE = 1e-4
# So does one whose answers change by less than this from batch to batch.
_LEAST_CHANGE = 0.02
Feeds = dict[str, np.ndarray]


@dataclass(slots=True)
class Total:
    """Sums of one tool over all models."""

    tool: str
    models: int = 0
    right: int = 0
    heavy_low: int = 0
    heavy: int = 0
    casts: int = 0
    low_nodes: int = 0
    time_s: float = 0.0
    worst: float = 0.0
    whole: int = 0  # models without a float node in FP32
    wrong: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def make_feeds(example: Mapping[str, np.ndarray], seed: int) -> Feeds:
    """Draw inputs like those of an example: tokens, standard normal numbers, and masks of other lengths."""
    random = np.random.default_rng(seed)
    feeds = {}
    for name, array in example.items():
        if name.endswith("mask"):
            mask = np.ones_like(array)
            mask[0, -int(random.integers(1, 5)) :] = 0
            feeds[name] = mask
        elif array.dtype.kind in "iu":
            feeds[name] = random.integers(3, VOCABULARY, array.shape).astype(array.dtype)
        else:
            feeds[name] = random.standard_normal(array.shape).astype(array.dtype)
    return feeds


def make_models(cache: Path, folder: Path) -> Iterator[Path]:
    """Write the changed models with the data that tools may see, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(cache.glob("*.onnx")):
        made, skipped = folder / path.name, folder / f"{path.stem}.skipped"
        if not made.exists() and not skipped.exists():
            seed = zlib.crc32(path.stem.encode())
            with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
                example = {name[3:]: array for name, array in stored.items() if name.startswith("in:")}
            model, places = hide_outliers(onnx.load(path), make_feeds(example, seed), seed)
            batches = [make_feeds(example, seed + number) for number in range(SEEN + UNSEEN)]
            if not places or _noise(model, batches[:1]) > _LARGEST_NOISE or not _answers(model, batches[:2]):
                skipped.write_text("no place for outliers, or with them FP32 is ill-conditioned or always the same")
                continue
            data = made.with_suffix(".data")
            data.mkdir(exist_ok=True)
            for number, batch in enumerate(batches):
                target = data if number < SEEN else folder / f"{path.stem}.unseen"
                target.mkdir(exist_ok=True)
                np.savez(target / f"{number}.npz", **batch)
            (folder / f"{path.stem}.places").write_text("\n".join(places))
            onnx.save(model, made)
        if made.exists():
            yield made


def _noise(model: onnx.ModelProto, batches: Sequence[Feeds]) -> float:
    found = mezzo.compare(model, model, batches)
    return float("inf") if any(output.fault for output in found.outputs) else found.verdict.noise


def _answers(model: onnx.ModelProto, batches: Sequence[Feeds]) -> bool:
    """Whether every output depends on the input by more than rounding to FP16 could hide."""
    session = native_session(model)
    one, other = (session.run(batch) for batch in batches)
    return all(np.linalg.norm(one[n] - other[n]) > _LEAST_CHANGE * np.linalg.norm(one[n]) for n in one)


def load_batches(folder: Path) -> list[Feeds]:
    batches = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as stored:
            batches.append(dict(stored.items()))
    return batches


def add(total: Total, path: Path, model: onnx.ModelProto, result: onnx.ModelProto) -> None:
    """Judge one result on data that nobody saw, and count."""
    heavy = sum(node.node.op_type in HEAVY for node in float_nodes(model, "fp16"))
    low = [node.node.op_type for node in float_nodes(result, "fp16") if node.is_low]
    read = {name for node in result.graph.node for name in node.input} | {port.name for port in result.graph.output}
    # Exporters leave copies of constants that nothing reads.
    total.whole += all(node.is_low or read.isdisjoint(node.node.output) for node in float_nodes(result, "fp16"))
    heavy_low, casts = sum(op in HEAVY for op in low), count_casts(result) - count_casts(model)
    found = mezzo.compare(model, result, load_batches(path.with_suffix(".unseen")), max_error=LARGEST_ERROR)
    fault = next((output.fault for output in found.outputs if output.fault), None)
    error = found.verdict.error.estimate
    is_right = fault is None and error <= LARGEST_ERROR
    total.models, total.right = total.models + 1, total.right + is_right
    total.heavy, total.heavy_low = total.heavy + heavy, total.heavy_low + heavy_low
    total.casts, total.low_nodes = total.casts + casts, total.low_nodes + len(low)
    if is_right:
        total.worst = max(total.worst, error)
    else:
        total.wrong.append(f"{path.stem}: {fault or format(error, '.2e')}")
    row = {"model": path.stem, "heavy": heavy, "heavy_low": heavy_low, "casts": casts, "low": len(low), "error": error}
    total.rows.append({**row, "fault": fault, "is_right": is_right})
    print(total.tool, *row.values(), fault or "", file=sys.stderr, flush=True)


def convert_all(paths: Sequence[Path], policy: str, sees_data: bool, **options: str | None) -> Total:
    words = [word for word in options.values() if word]
    total = Total(", ".join(["mezzo", policy, *(words if sees_data else ["no data"])]))
    for path in paths:
        model, begin = onnx.load(path), time.perf_counter()
        seen = load_batches(path.with_suffix(".data")) if sees_data else None
        made = mezzo.convert(model, policy=policy, data=seen, **options)  # type: ignore[arg-type]  # its own names
        total.time_s += time.perf_counter() - begin
        add(total, path, model, made.model)
    return total


def read_autocast(paths: Sequence[Path]) -> Total:
    total = Total("ModelOpt AutoCast, on data")
    for path in paths:
        made = path.with_suffix(".autocast.onnx")
        if made.exists():
            add(total, path, onnx.load(path), onnx.load(made))
        else:
            total.models += 1
            total.wrong.append(f"{path.stem}: {path.with_suffix('.autocast.txt').read_text()[:100]}")
    return total


def compare_where_right(ours: Total, theirs: Total) -> str:
    """Heavy operators that run low, on the models on which both are right: what is wrong is worth nothing."""
    right = [{row["model"]: row for row in total.rows if row["is_right"]} for total in (ours, theirs)]
    both = sorted(right[0].keys() & right[1].keys())
    low = [sum(rows[model]["heavy_low"] for model in both) for rows in right]
    heavy = sum(right[0][model]["heavy"] for model in both)
    fewer = [model for model in both if right[0][model]["heavy_low"] < right[1][model]["heavy_low"]]
    named = f"; fewer low in {', '.join(fewer)}" if fewer else ""
    return f"right in both, {len(both)} models: {low[0]} and {low[1]} of {heavy} heavy operators low{named}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="the exported architectures")
    parser.add_argument("--folder", type=Path, default=Path("out/outlier-architectures"), help="takes the models")
    parser.add_argument("--autocast-python", default=None, help="a Python that has nvidia-modelopt[onnx]")
    parser.add_argument("--policies", nargs="+", default=["balanced"])
    parser.add_argument("--out-of-range", nargs="+", default=["repair"], choices=("repair", "protect"))
    parser.add_argument("--fuse", nargs="+", default=["standard"], choices=("none", "operators", "standard"))
    parser.add_argument("--target", default=None, help="of the conversion; its default for FP16 if left out")
    parser.add_argument("--without-data", action="store_true", help="convert without data too")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of models; all if left out")
    parser.add_argument("--json", type=Path, default=Path("out/outlier_architectures.json"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    paths = [
        p for p in make_models(given.cache, given.folder) if not given.only or any(n in p.stem for n in given.only)
    ]
    totals = [
        convert_all(paths, policy, True, out_of_range=word, fuse=fuse, target=given.target)
        for policy in given.policies
        for word in given.out_of_range
        for fuse in given.fuse
    ]
    ours = len(totals)
    if given.without_data:
        totals += [convert_all(paths, policy, False) for policy in given.policies]
    if given.autocast_python is not None:
        worker = Path(__file__).with_name("autocast_folder.py")
        subprocess.run([given.autocast_python, str(worker), str(given.folder)], check=True, stdout=subprocess.DEVNULL)
        totals.append(read_autocast(paths))
    console = Console() if sys.stdout.isatty() else Console(width=150)
    table = Table(title=f"{len(paths)} architectures with hidden outliers, FP16 in its true precision")
    for heading in ("tool", "right", "wholly low", "heavy low", "casts", "low nodes", "worst error", "s"):
        table.add_column(heading)
    for total in totals:
        table.add_row(
            total.tool, f"{total.right} of {total.models}", str(total.whole),
            f"{total.heavy_low} of {total.heavy}", str(total.casts),
            str(total.low_nodes), f"{total.worst:.1e}", f"{total.time_s:.0f}",
        )  # fmt: skip
    console.print(table)
    if given.autocast_python is not None:
        console.print(compare_where_right(totals[0], totals[-1]))
    for total in totals:
        for line in total.wrong:
            console.print(f"{total.tool} | {line}", markup=False)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"environment": describe_environment("mezzo"), "totals": [asdict(total) for total in totals]}
    given.json.write_text(json.dumps(report, indent=1))
    return 1 if any(total.wrong for total in totals[:ours]) else 0


if __name__ == "__main__":
    sys.exit(main())
