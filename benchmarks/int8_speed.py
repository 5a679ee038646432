"""How fast INT8 is: FP32, what each quantizer made, and mezzo's column, side by side in one run on two runtimes.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_topologies.py --cache out/int8-speed      # with a Python that has torch, timm, transformers
    python benchmarks/int8_peers.py --cache out/int8-speed --batches 5       # with a Python that has nncf, or quark
    python benchmarks/int8_speed.py --cache out/int8-speed --batch 1 16

Two threads. Files of a model take turns; before each timed call stand 20 ms of rest and an untimed call. A cell is the
median in ms, the speed as a multiple of FP32's, and the half of the middle half of the times as a share of the median:
the machine was busy where that is large. FP32 is OpenVINO's hint f32; all else runs as the runtime decides by default,
which on a CPU with BF16 is BF16 for what is not quantized. Where the CPU has BF16 the hint alone stands beside it.
Shares are of the time of one call by OpenVINO's runtime graph; ONNX Runtime's kernels are those of its optimized graph.
Errors are of random weights on inputs that no quantizer saw, over what varies between them.
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import int8_mezzo
import int8_runtimes as runtimes
import numpy as np
from conformance import describe_environment
from int8_accuracy import files
from rich.console import Console
from rich.table import Table

_BF16_FEATURES = frozenset({"amx_bf16", "avx512_bf16"})
_EXACT, _HINT = "fp32", "bf16 hint"
_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
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


def read_feeds(cache: Path, name: str, batch: int) -> dict[str, np.ndarray]:
    """The first held-out inputs."""
    with np.load(cache / f"{name}.held_out.npz") as stored:
        return {key: stored[key][:batch] for key in stored.files if key != "labels"}


def load_all(
    cache: Path, name: str, runtime: str, batch: int, *, quantizers: Sequence[str], has_bf16: bool
) -> dict[str, runtimes.Loaded]:
    """Every variant of a model; those that the runtime refuses are told and left out."""
    plain = cache / f"{name}.onnx"
    loaded = {_EXACT: runtimes.load(runtime, plain, batch, _F32)}
    if has_bf16 and runtime == "openvino":
        loaded[_HINT] = runtimes.load(runtime, plain, batch, _BF16)
    for path, made in files(cache, name):
        is_other = made.quantizer.startswith("mezzo") and runtime not in made.quantizer
        if is_other or (quantizers and not made.quantizer.startswith(tuple(quantizers))):
            continue
        try:
            loaded[made.quantizer] = runtimes.load(runtime, path, batch)
        except Exception as error:  # noqa: BLE001  any of the runtime's own
            print(f"{path.stem} on {runtime}: {str(error)[:200]}", file=sys.stderr)
    return loaded


def measure(models: Mapping[str, runtimes.Loaded], feeds: runtimes.Feeds, rounds: int) -> Iterable[tuple[str, dict]]:
    """Answers first, then times by turns, then what the graphs say."""
    exact = models[_EXACT].answer(feeds)
    wrong = {name: runtimes.errors(model.answer(feeds), exact)[1] for name, model in models.items()}
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
    """A table for a model: a line for each quantizer, a pair of columns for each runtime and batch."""
    places = list(dict.fromkeys((row.runtime, row.batch) for row in rows))
    table = Table(title=rows[0].model)
    table.add_column("quantizer")
    for runtime, batch in places:
        table.add_column(f"{runtime}, {batch}: ms", justify="right")
        table.add_column("speed (spread)", justify="right")
    for runtime in dict.fromkeys(runtime for runtime, _ in places):
        table.add_column(f"{runtime}: error", justify="right")
        table.add_column("INT8 products", justify="right")
    table.add_column("share of time, OpenVINO")
    found = {(row.quantizer, row.runtime, row.batch): row for row in rows}
    for quantizer in dict.fromkeys(row.quantizer for row in rows):
        cells = []
        for runtime, batch in places:
            row = found.get((quantizer, runtime, batch))
            cells += ["-", "-"] if row is None else [f"{row.median_ms:.2f}", f"{row.speed:.2f} ({row.spread:.0%})"]
        largest = {runtime: found.get((quantizer, runtime, batch)) for runtime, batch in places}
        for row in largest.values():
            cells += ["-", "-"] if row is None else [f"{row.varying_error:.4f}", _products(row.kernels)]
        own = largest.get("openvino")
        table.add_row(quantizer, *cells, "" if own is None else _shares(own.kernels))
    if not any(row.quantizer.startswith("mezzo") for row in rows):
        table.add_row("mezzo", int8_mezzo.NOT_YET)
    console.print(table)


def _products(kernels: runtimes.Kernels) -> str:
    return f"{kernels.integer_products}/{kernels.products}"


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
    console = Console(width=200)
    console.print(f"CPU features: {' '.join(features)}")
    rows: list[Timed] = []
    for name in given.models or sorted(path.stem for path in given.cache.glob("*.onnx")):
        own = []
        for runtime in given.runtimes:
            for batch in given.batch:
                feeds = read_feeds(given.cache, name, batch)
                models = load_all(
                    given.cache, name, runtime, batch,
                    quantizers=given.quantizers, has_bf16=bool(_BF16_FEATURES.intersection(features)),
                )  # fmt: skip
                for quantizer, figures in measure(models, feeds, given.rounds):
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
