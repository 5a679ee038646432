"""What INT8 costs trained networks: accuracy and error on data that was never seen, by quantizer, on two runtimes.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_training.py --cache out/int8        # with a Python that has torch and scikit-learn
    python benchmarks/int8_peers.py --cache out/int8           # with a Python that has nncf; again with one with quark
    python benchmarks/int8_accuracy.py --cache out/int8

Every quantized file of the folder runs on the held-out data, on OpenVINO and on ONNX Runtime. The error is the root
mean square of the difference from FP32 of the same runtime, over that of what varies between samples. "runs" are calls
of the model, or of a part of it, that the quantizer made, with the samples in them; seconds are the quantizer's whole
time on this machine. Products are convolutions and matrix products. What is not there of mezzo reads "not yet".
"""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import int8_mezzo
import int8_peers
import int8_runtimes as runtimes
import numpy as np
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

MODELS = ("cnn", "residual", "preact", "depthwise", "vit", "language")
_SAMPLES_PER_RUN = 32
_BOUND = 2 / 3  # of a peer's error
_PEERS = ("nncf", "nncf-mixed", "ort-default", "ort-best", "ort-linear", "ort-dynamic")
_OF_TRANSFORMERS = frozenset({"ort-linear", "ort-dynamic"})  # of other networks they quantize the last layer alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A file on a runtime. Errors are over all of FP32's answer and over what varies of it."""

    model: str
    quantizer: str
    batches: int
    runtime: str
    measure: str
    quality: float
    reference: float
    error: float
    varying_error: float
    products: int
    integer_products: int
    operators: tuple[tuple[str, int], ...]
    seconds: float
    runs: int | None
    samples_run: int | None

    @property
    def loss(self) -> float:
        """By how much it is worse: points of top-1, or percent of bits per byte."""
        if self.measure == "top-1":
            return 100 * (self.reference - self.quality)
        return 100 * (self.quality / self.reference - 1)


def read_held_out(cache: Path, name: str, limit: int | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Inputs and labels that nobody saw."""
    with np.load(cache / f"{name}.held_out.npz") as stored:
        data = {key: stored[key][:limit] for key in stored.files}
    return data, data.pop("labels")


def judge(cache: Path, name: str, limit: int | None, quantizers: Sequence[str]) -> Iterator[Judged]:
    """Every file of a model on every runtime; one that is refused is told and left out."""
    data, labels = read_held_out(cache, name, limit)
    for runtime in runtimes.RUNTIMES:
        exact = runtimes.answers_of(_load(runtime, cache / f"{name}.onnx", is_exact=True), data, _SAMPLES_PER_RUN)
        measure, reference = runtimes.quality(exact, labels)
        for path, made in int8_peers.files(cache, name):
            if quantizers and not made.quantizer.startswith(tuple(quantizers)):
                continue
            try:
                model = _load(runtime, path, is_exact=False)
                answers = runtimes.answers_of(model, data, _SAMPLES_PER_RUN)
                kernels = model.kernels({key: array[:_SAMPLES_PER_RUN] for key, array in data.items()})
            except Exception as error:  # noqa: BLE001  any of the runtime's own
                print(f"{path.stem} on {runtime}: {str(error)[:200]}", file=sys.stderr)
                continue
            whole, varying = runtimes.errors(answers, exact)
            yield Judged(
                model=name,
                quantizer=made.quantizer,
                batches=made.batches,
                runtime=runtime,
                measure=measure,
                quality=runtimes.quality(answers, labels)[1],
                reference=reference,
                error=whole,
                varying_error=varying,
                products=kernels.products,
                integer_products=kernels.integer_products,
                operators=kernels.operators,
                seconds=made.seconds,
                runs=made.runs,
                samples_run=made.samples_run,
            )


def _load(runtime: str, path: Path, *, is_exact: bool) -> runtimes.Loaded:
    return runtimes.load(runtime, path, settings={"INFERENCE_PRECISION_HINT": "f32"} if is_exact else None)


def show(console: Console, name: str, rows: Sequence[Judged]) -> None:
    """One table for a model: a line for each quantizer and number of batches, both runtimes beside each other."""
    if not rows:
        return
    first = rows[0]
    unit = "points lost" if first.measure == "top-1" else "% worse"
    exact = ", ".join(f"{row.runtime} {row.reference:.4f}" for row in {row.runtime: row for row in rows}.values())
    table = Table(title=f"{name}: {first.measure} of FP32: {exact}; {unit}, error on what varies, products in INT8")
    for column in ("quantizer", "batches", "seconds", "runs (samples)"):
        table.add_column(column, justify="left" if column == "quantizer" else "right")
    for runtime in runtimes.RUNTIMES:
        for column in (f"{runtime}: {unit}", "error", "INT8"):
            table.add_column(column, justify="right")
    by_file: dict[tuple[str, int], dict[str, Judged]] = {}
    for row in rows:
        by_file.setdefault((row.quantizer, row.batches), {})[row.runtime] = row
    for (quantizer, batches), judged in by_file.items():
        one = next(iter(judged.values()))
        runs = "-" if one.runs is None else f"{one.runs:,} ({one.samples_run:,})"
        table.add_row(quantizer, str(batches), f"{one.seconds:.1f}", runs, *_cells(judged))
    missing = {one.name for one in int8_peers.QUANTIZERS if one.package == "mezzo"} - {name for name, _ in by_file}
    if missing:
        table.add_row(f"mezzo ({len(missing)} settings)", int8_mezzo.NOT_YET)
    console.print(table)


def _cells(judged: Mapping[str, Judged]) -> Iterator[str]:
    for runtime in runtimes.RUNTIMES:
        row = judged.get(runtime)
        if row is None:
            yield from ("refused", "-", "-")
        else:
            yield from (f"{row.loss:+.2f}", f"{row.varying_error:.4f}", f"{row.integer_products}/{row.products}")


def show_bounds(console: Console, rows: Sequence[Judged]) -> None:
    """mezzo's error over the least of the peers', by model, runtime and number of batches."""
    table = Table(title=f"error of mezzo over a peer's on the same batches (wanted: at most {_BOUND:.2f})")
    for column in ("model", "runtime", "batches", "mezzo", "error", *_PEERS):
        table.add_column(column)
    found = {(row.model, row.runtime, row.batches, row.quantizer): row for row in rows}
    for (model, runtime, batches, quantizer), row in found.items():
        if not quantizer.startswith("mezzo") or runtime not in quantizer:
            continue
        ratios = []
        for peer in _PEERS:
            is_asked = model in int8_peers.TRANSFORMERS or peer not in _OF_TRANSFORMERS
            other = found.get((model, runtime, batches, peer)) or found.get((model, runtime, 0, peer))
            ratios.append("-" if other is None or not is_asked else f"{row.varying_error / other.varying_error:.2f}")
        table.add_row(model, runtime, str(batches), quantizer, f"{row.varying_error:.4f}", *ratios)
    console.print(table if table.row_count else f"mezzo: {int8_mezzo.NOT_YET}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8"))
    parser.add_argument("--models", nargs="*", choices=MODELS, default=[])
    parser.add_argument("--quantizers", nargs="*", default=[], help="by the beginning of their names; all by default")
    parser.add_argument("--samples", type=int, help="held-out samples; all by default")
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    console = Console(width=160)
    rows: list[Judged] = []
    for name in given.models or MODELS:
        if not (given.cache / f"{name}.onnx").exists():
            print(f"{name}.onnx is not in {given.cache}: run benchmarks/int8_training.py", file=sys.stderr)
            return 2
        found = list(judge(given.cache, name, given.samples, given.quantizers))
        show(console, name, found)
        rows += found
    show_bounds(console, rows)
    if given.json is not None:
        document = {"environment": describe_environment("mezzo"), "results": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
