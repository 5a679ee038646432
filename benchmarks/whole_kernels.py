"""Attention in a target's plans: how many of its kernels run whole in a low float, are taken apart, or stay in FP32?

    python benchmarks/architectures.py --cache out/architectures          # needs torch and transformers
    python benchmarks/whole_kernels.py --cache out/architectures --target tensorrt onnxruntime-cuda --judge

An attention is a unit of the target's fusions, or an operator. `--judge` emulates the results on the models' data and
gives the median and the largest error (relative L2).
"""

import argparse
import json
import logging
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.formats.dtypes import DType

_OPERATORS = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention"})


@dataclass(slots=True)
class Total:
    """One way to plan, over all models; nodes are operators that are not folded."""

    way: str
    models: int = 0
    whole: int = 0
    split: int = 0
    high: int = 0
    nodes: int = 0
    low_nodes: int = 0
    casts: int = 0
    errors: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def attentions(model: onnx.ModelProto, target: str) -> list[list[str]]:
    """The names of the nodes of each attention."""
    split = mezzo.partition(model, target=target)
    units = [[node.name for node in unit.nodes] for unit in split.units if unit.pattern == "attention"]
    return units + [[node.name] for node in split.alone if node.op in _OPERATORS]


def measure(paths: Sequence[Path], target: str, to: str, policy: str, fuse: str, *, judges: bool) -> Total:
    total = Total(f"{target}, {to}, {policy}, {fuse}")
    for path in paths:
        model = onnx.load(path)
        made = mezzo.convert(model, to=to, target=target, policy=policy, fuse=fuse, check=False)
        precisions = {node.name: node.precision.compute for node in made.plan.nodes}
        for nodes in attentions(model, target):
            is_high = [precisions.get(name) is DType.FLOAT32 for name in nodes]
            total.whole += not any(is_high)
            total.high += all(is_high)
            total.split += any(is_high) and not all(is_high)
        total.models += 1
        total.low_nodes += made.summary.low_nodes
        total.nodes += made.summary.low_nodes + made.summary.high_nodes
        total.casts += made.summary.casts
        data = path.with_suffix(".npz")
        if judges and data.exists():
            with np.load(data) as arrays:
                feeds = {name.removeprefix("in:"): arrays[name] for name in arrays.files if name.startswith("in:")}
            compared = mezzo.compare(model, made.model, data=feeds)
            total.errors.append(max(output.relative_l2.estimate for output in compared.outputs))
            if compared.is_wrong:
                total.wrong.append(path.stem)
        print(total.way, path.stem, total.whole, total.split, total.high, flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="the exported architectures")
    parser.add_argument("--target", nargs="+", default=["tensorrt"])
    parser.add_argument("--to", nargs="+", default=["fp16"])
    parser.add_argument("--policies", nargs="+", default=["balanced"])
    parser.add_argument("--fuse", nargs="+", default=["none", "standard"])
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of models; all if left out")
    parser.add_argument("--judge", action="store_true", help="emulate the results on the models' data")
    parser.add_argument("--json", type=Path, default=Path("out/whole_kernels.json"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    paths = [
        path
        for path in sorted(given.cache.glob("*.onnx"))
        if not given.only or any(part in path.stem for part in given.only)
    ]
    totals = [
        measure(paths, target, to, policy, fuse, judges=given.judge)
        for target in given.target
        for to in given.to
        for policy in given.policies
        for fuse in given.fuse
    ]
    table = Table(title="attention kernels", caption=str(describe_environment("mezzo")["versions"]))
    counted = ("whole", "split", "FP32", "low nodes", "casts")
    for name in ("target, format, policy, fuse", "models", *counted, "error", "wrong"):
        table.add_column(name)
    for total in totals:
        errors = f"{statistics.median(total.errors):.1e}, {max(total.errors):.1e}" if total.errors else ""
        counts = (total.models, total.whole, total.split, total.high)
        share = f"{total.low_nodes} of {total.nodes}, {total.low_nodes / max(total.nodes, 1):.1%}"
        rest = (share, str(total.casts), errors, ", ".join(total.wrong))
        table.add_row(total.way, *map(str, counts), *rest)
    Console(width=140).print(table)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(
        json.dumps(
            {"environment": describe_environment("mezzo"), "totals": [asdict(total) for total in totals]}, indent=1
        )
    )


if __name__ == "__main__":
    main()
