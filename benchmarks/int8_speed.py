"""How fast INT8 is: FP32, what each quantizer made, and mezzo's column, side by side in one run on two runtimes.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_topologies.py --cache out/int8-speed      # with a Python that has torch, timm, transformers
    python benchmarks/int8_peers.py --cache out/int8-speed --batches 5       # with a Python that has nncf, or quark
    python benchmarks/int8_speed.py --cache out/int8-speed --batch 1 16

Two threads. Files of a model take turns; before each timed call stand 20 ms of rest and an untimed call. Columns are
the median and the least in ms, the speed by medians as a multiple of FP32's, and half of the middle half of the times
as a share of the median: the machine was busy where that is large. FP32 is OpenVINO's hint f32; all else runs as the
runtime decides by default, which on a CPU with BF16 is BF16 for what is not quantized; there the hint alone stands
beside it. Shares are of the time of one call by OpenVINO's runtime graph; ONNX Runtime's kernels are those of its
optimized graph. Errors are of random weights on inputs that no quantizer saw, over what varies between them.
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import int8_mezzo
import int8_peers
import int8_runtimes as runtimes
import numpy as np
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

_BF16_FEATURES = frozenset({"amx_bf16", "avx512_bf16"})
_EXACT, _HINT = "fp32", "bf16 hint"
_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
_JUDGED = 16  # samples, a multiple of each batch
_BF16 = {"INFERENCE_PRECISION_HINT": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A file on a runtime at a batch size. Times are in ms; `spread` is a share of the median."""

    model: str
    runtime: str
    batch: int
    quantizer: str
    median_ms: float
    least_ms: float
    spread: float
    speed: float  # as a multiple of FP32's median
    varying_error: float
    kernels: runtimes.Kernels
    load: float  # of the machine, in processes over the last minute


def read_held_out(cache: Path, name: str) -> dict[str, np.ndarray]:
    """Inputs that no quantizer saw."""
    with np.load(cache / f"{name}.held_out.npz") as stored:
        return {key: stored[key][:_JUDGED] for key in stored.files if key != "labels"}


def load_all(
    cache: Path, name: str, runtime: str, batch: int, *, quantizers: Sequence[str], has_bf16: bool
) -> dict[str, runtimes.Loaded]:
    """Every variant of a model; those that the runtime refuses are told and left out."""
    plain = cache / f"{name}.onnx"
    last = {
        made.quantizer: path for path, made in int8_peers.files(cache, name)
    }  # of several numbers of batches the largest
    loaded = {_EXACT: runtimes.load(runtime, plain, batch, _F32)}
    if has_bf16 and runtime == "openvino":
        loaded[_HINT] = runtimes.load(runtime, plain, batch, _BF16)
    for quantizer, path in last.items():
        is_other = quantizer.startswith("mezzo") and runtime not in quantizer
        if is_other or (quantizers and not quantizer.startswith(tuple(quantizers))):
            continue
        try:
            loaded[quantizer] = runtimes.load(runtime, path, batch)
        except Exception as error:  # noqa: BLE001  any of the runtime's own
            print(f"{path.stem} on {runtime}: {str(error)[:200]}", file=sys.stderr)
    return loaded


def measure(
    models: Mapping[str, runtimes.Loaded], data: runtimes.Feeds, batch: int, rounds: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Answers first, then times by turns, then what the graphs say. A file that fails as it runs is told, and out."""
    exact, wrong = runtimes.answers_of(models[_EXACT], data, batch), {}
    for name, each in models.items():
        try:
            wrong[name] = runtimes.errors(runtimes.answers_of(each, data, batch), exact)[1]
        except Exception as error:  # noqa: BLE001  any of the runtime's own
            print(f"{name} fails as it runs: {str(error)[-200:]}", file=sys.stderr)
    models = {name: models[name] for name in wrong}
    feeds = {name: array[:batch] for name, array in data.items()}
    times = runtimes.time_by_turns(models, feeds, rounds)
    for name, model in models.items():
        quarters = statistics.quantiles(times[name], n=4)
        median = statistics.median(times[name])
        yield (
            name,
            {
                "median_ms": median,
                "least_ms": min(times[name]),
                "spread": (quarters[2] - quarters[0]) / 2 / median,
                "speed": statistics.median(times[_EXACT]) / median,
                "varying_error": wrong[name],
                "kernels": model.kernels(feeds),
            },
        )


def show(console: Console, rows: Sequence[Timed]) -> None:
    """A table for a model on a runtime: a line for each quantizer, columns for each batch."""
    batches = sorted({row.batch for row in rows})
    table = Table(
        title=f"{rows[0].model} on {rows[0].runtime}, load of the machine {max(row.load for row in rows):.1f}"
    )
    table.add_column("quantizer")
    for batch in batches:
        for column in (f"batch {batch}: ms", "least", "speed", "spread"):
            table.add_column(column, justify="right")
    for column in ("error", "INT8 products", "INT8 kernels", "share of time"):
        table.add_column(column, justify="left" if column == "share of time" else "right")
    found = {(row.quantizer, row.batch): row for row in rows}
    for quantizer in dict.fromkeys(row.quantizer for row in rows):
        cells = []
        for batch in batches:
            row = found[quantizer, batch]
            cells += [f"{row.median_ms:.2f}", f"{row.least_ms:.2f}", f"{row.speed:.2f}", f"{row.spread:.0%}"]
        kernels = row.kernels
        counts = (f"{kernels.integer_products}/{kernels.products}", f"{kernels.integer_kernels}/{kernels.kernels}")
        table.add_row(quantizer, *cells, f"{row.varying_error:.4f}", *counts, _shares(kernels))
    if not any(row.quantizer.startswith("mezzo") for row in rows):
        table.add_row("mezzo", int8_mezzo.NOT_YET)
    console.print(table)


def _shares(kernels: runtimes.Kernels) -> str:
    return " ".join(f"{name} {share:.0%}" for name, share in (kernels.shares or {}).items() if share >= 0.005)


def sum_up(console: Console, rows: Sequence[Timed]) -> None:
    """The fastest peer of each model, and mezzo's speed over it, by runtime and batch."""
    table = Table(title="fastest peer by the median, and mezzo's speed over it")
    for column in ("model", "runtime", "batch", "fastest", "over FP32", "mezzo over it", "mezzo over NNCF"):
        table.add_column(column)
    over: dict[str, list[float]] = {}
    groups: dict[tuple[str, str, int], dict[str, Timed]] = {}
    for row in rows:
        groups.setdefault((row.model, row.runtime, row.batch), {})[row.quantizer] = row
    for (model, runtime, batch), group in groups.items():
        peers = [row for name, row in group.items() if not name.startswith("mezzo")]
        ours = [row for name, row in group.items() if name.startswith("mezzo")]
        best = min(peers, key=lambda row: row.median_ms)
        cells = [int8_mezzo.NOT_YET, int8_mezzo.NOT_YET]
        if ours:
            least = min(row.median_ms for row in ours)
            nncf = group.get("nncf")
            cells = [f"{best.median_ms / least:.2f}", "-" if nncf is None else f"{nncf.median_ms / least:.2f}"]
            if nncf is not None:
                over.setdefault(runtime, []).append(nncf.median_ms / least)
        table.add_row(model, runtime, str(batch), best.quantizer, f"{best.speed:.2f}", *cells)
    console.print(table)
    for runtime, ratios in over.items():
        console.print(
            f"{runtime}: mezzo over NNCF, geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.3f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8-speed"))
    parser.add_argument("--models", nargs="*", default=[], help="names of models; every one of the folder by default")
    parser.add_argument("--quantizers", nargs="*", default=[], help="by the beginning of their names; all by default")
    parser.add_argument("--runtimes", nargs="+", choices=runtimes.RUNTIMES, default=list(runtimes.RUNTIMES))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each file")
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args()
    environment = describe_environment("mezzo")
    features = environment["cpu_features"]
    console = Console(width=160)
    console.print(f"CPU features: {' '.join(features)}")
    rows: list[Timed] = []
    for name in given.models or sorted(path.stem for path in given.cache.glob("*.onnx")):
        data = read_held_out(given.cache, name)
        for runtime in given.runtimes:
            own = []
            for batch in given.batch:
                models = load_all(
                    given.cache, name, runtime, batch,
                    quantizers=given.quantizers, has_bf16=bool(_BF16_FEATURES.intersection(features)),
                )  # fmt: skip
                for quantizer, figures in measure(models, data, batch, given.rounds):
                    place = {"model": name, "runtime": runtime, "batch": batch, "quantizer": quantizer}
                    own.append(Timed(**place, **figures, load=os.getloadavg()[0]))
            show(console, own)
            rows += own
    sum_up(console, rows)
    if given.json is not None:
        document = {"environment": environment, "results": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
