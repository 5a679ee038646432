"""INT8 beside floats within budgets of error: `mezzo tune` and NNCF's accuracy control, by evaluations, error and time.

    pip install onnx onnxruntime nncf openvino rich
    python benchmarks/int8_training.py --cache out/int8        # with a Python that has torch and scikit-learn
    python benchmarks/int8_frontier.py --cache out/int8                       # searches what is not there, then errors
    python benchmarks/int8_frontier.py --cache out/int8 --rounds 20           # and times, on a quiet machine

The budgets are shares of the error of NNCF's plain result (relative L2 of the first output over the data that both are
given, on OpenVINO). Results lie in CACHE/frontier with what it took: full passes are evaluations of a candidate over
all of the data that the searcher judges by, partial ones over less, "samples" those in both; "all runs" are calls of
OpenVINO's requests and ONNX Runtime's sessions for anything, calibration and corrections included, of the model or a
part of it. NNCF's validation function gives it the error of every batch, so it need not collect them by runs of their
own. Errors are over data that neither saw, on OpenVINO beside its own FP32, with a fixed batch. Points of mezzo's
frontier, each the least cost for its predicted error, stand in the JSON file.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import int8_accuracy
import int8_peers
import int8_runtimes as runtimes
import numpy as np
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

_EXACT = "fp32"
_PLAIN = "nncf plain"
_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
_SAMPLES_PER_RUN = 32
_BF16_FEATURES = frozenset({"amx_bf16", "avx512_bf16"})

Feeds = dict[str, np.ndarray]


@dataclass(slots=True)
class Passes:
    """Evaluations of candidates while something was searched, samples in them, and calls of runtimes for anything."""

    full: int = 0
    partial: int = 0
    samples: int = 0
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A line beside a result. `held` is the searcher's own word on the budget."""

    model: str
    searcher: str
    share: float
    budget: float
    passes: Passes
    seconds: float
    held: bool
    stopped_by: str
    points: list[dict[str, float | None]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A result judged. Times in ms by batch size: median, least."""

    found: Found
    error: float
    measure: str
    quality: float
    reference: float
    products: int
    integer_products: int
    times: dict[int, tuple[float, float]]


@contextmanager
def counted() -> Iterator[Passes]:
    """Count what both runtimes run in this process."""
    import onnxruntime
    import openvino

    passes = Passes()

    infer, run = openvino.InferRequest.infer, onnxruntime.InferenceSession.run

    def infer_counted(self: Any, inputs: Any = None, *rest: Any, **options: Any) -> Any:
        passes.calls += 1
        return infer(self, inputs, *rest, **options)

    def run_counted(self: Any, names: Any, feeds: Any, *rest: Any, **options: Any) -> Any:
        passes.calls += 1
        return run(self, names, feeds, *rest, **options)

    openvino.InferRequest.infer, onnxruntime.InferenceSession.run = infer_counted, run_counted
    try:
        yield passes
    finally:
        openvino.InferRequest.infer, onnxruntime.InferenceSession.run = infer, run


def _squares(answers: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> tuple[float, float]:
    difference = sum(float(np.sum((got - want) ** 2)) for got, want in zip(answers, exact, strict=True))
    return difference, sum(float(np.sum(want**2)) for want in exact)


def _answers(compiled: Any, batches: Iterable[Feeds]) -> list[np.ndarray]:
    """The first output of each batch."""
    request = compiled.create_infer_request()
    return [np.asarray(request.infer(dict(batch))[0], np.float64) for batch in batches]


def _kind(name: str) -> Any:
    import nncf

    return nncf.ModelType.TRANSFORMER if name in int8_peers.TRANSFORMERS else None


def quantize_plain(cache: Path, name: str, batches: Sequence[Feeds]) -> float:
    """Write NNCF's plain result and return its error over the batches."""
    import nncf
    import openvino

    core = openvino.Core()
    model, path = core.read_model(str(cache / f"{name}.onnx")), _file(cache, name, "plain", 1.0)
    exact = _answers(core.compile_model(model, "CPU", _F32), batches)
    data: Any = nncf.Dataset(list(batches))
    made = nncf.quantize(model, data, model_type=_kind(name), subset_size=len(batches))
    openvino.save_model(made, path, compress_to_fp16=False)
    difference, whole = _squares(_answers(core.compile_model(made, "CPU", _F32), batches), exact)
    return float((difference / whole) ** 0.5)


def search_by_nncf(cache: Path, name: str, to: Path, batches: Sequence[Feeds], budget: float) -> dict[str, Any]:
    """NNCF's accuracy control, from calibration on."""
    import nncf
    import openvino

    with counted() as passes:
        model = openvino.Core().read_model(str(cache / f"{name}.onnx"))
        compiled = openvino.Core().compile_model(model, "CPU", _F32)
        exact = {id(batch): answer for batch, answer in zip(batches, _answers(compiled, batches), strict=True)}
        dropped: list[float] = []

        def validate(candidate: Any, items: Iterable[Feeds]) -> tuple[float, list[float]]:
            chosen = list(items)
            wanted = [exact[id(batch)] for batch in chosen]
            got = _answers(candidate, chosen)
            difference, whole = _squares(got, wanted)
            is_full = len(chosen) == len(batches)
            passes.full += is_full
            passes.partial += not is_full
            passes.samples += sum(len(next(iter(batch.values()))) for batch in chosen)
            dropped.append((difference / whole) ** 0.5)
            each = [_squares([one], [want]) for one, want in zip(got, wanted, strict=True)]
            return 1 - dropped[-1], [1 - (part / all_of) ** 0.5 for part, all_of in each]

        data: Any = nncf.Dataset(list(batches))
        kept = nncf.quantize_with_accuracy_control(
            model, data, data, validate, max_drop=budget, drop_type=nncf.DropType.ABSOLUTE, subset_size=len(batches),
            model_type=_kind(name),
        )  # fmt: skip
    openvino.save_model(kept, to, compress_to_fp16=False)
    return {"passes": passes, "held": dropped[-1] <= budget, "stopped_by": f"error {dropped[-1]:.3g} at the end"}


def search_by_mezzo(cache: Path, name: str, to: Path, batches: Sequence[Feeds], budget: float) -> dict[str, Any]:
    """mezzo's search; the BF16 level is there where the CPU computes in it."""
    import mezzo

    features = describe_environment("mezzo")["cpu_features"]
    levels = "int8,bf16" if _BF16_FEATURES.intersection(features) else "int8"
    model = cache / f"{name}.onnx"
    with counted() as passes:
        made = mezzo.tune(
            model, to, data=list(batches), max_error=budget, to=levels, target="openvino-cpu", overwrite=True
        )
    measured = made.measured
    assert measured is not None and measured.search is not None, "tune measures and searches"
    record = measured.search
    passes.full, passes.partial = record.evaluations + record.checks, record.partial_evaluations
    comparison, sensitivity = measured.comparison, measured.sensitivity
    for times, source in (
        (record.evaluations, measured.data),
        (record.checks, None if comparison is None else comparison.data),
        (record.partial_evaluations, None if sensitivity is None else sensitivity.data),
    ):
        passes.samples += 0 if source is None else times * source.samples
    points = [
        {"cost": point.cost, "predicted_error": point.predicted_error, "error": point.error}
        for point in measured.frontier
    ]
    return {
        "passes": passes, "held": record.is_within_budget, "stopped_by": record.stopped_by, "points": points,
    }  # fmt: skip


SEARCHERS = {"mezzo": search_by_mezzo, "nncf": search_by_nncf}
_ENDINGS = {"mezzo": "onnx", "nncf": "xml", "plain": "xml"}


def _file(cache: Path, name: str, searcher: str, share: float) -> Path:
    return cache / "frontier" / f"{name}.{searcher}.{share:g}.{_ENDINGS[searcher]}"


def search(cache: Path, name: str, count: int, shares: Sequence[float], searchers: Sequence[str]) -> None:
    """Make what is not there. A line is written last, so what has one is whole."""
    batches = [dict(batch) for batch in int8_peers.read_batches(cache / f"{name}.calibration.npz", count)]
    plain = cache / "frontier" / f"{name}.plain.json"
    if not plain.exists():
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            error = quantize_plain(cache, name, batches)
        plain.write_text(json.dumps({"error": error, "batches": len(batches)}), encoding="utf-8")
    error = json.loads(plain.read_text())["error"]
    for share in shares:
        for searcher in searchers:
            to = _file(cache, name, searcher, share)
            if to.with_suffix(".json").exists():
                continue
            begin = time.perf_counter()
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                outcome = SEARCHERS[searcher](cache, name, to, batches, share * error)
            found = Found(
                model=name, searcher=searcher, share=share, budget=share * error,
                seconds=time.perf_counter() - begin, versions=int8_peers.versions(), **outcome,
            )  # fmt: skip
            to.with_suffix(".json").write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")
            print(f"{to.stem}: {found.seconds:.1f} s, {found.passes}, {found.stopped_by}", flush=True)


def _founds(cache: Path, name: str) -> Iterator[tuple[Path, Found]]:
    """The results of a model, the largest budget first, the searchers beside each other."""
    for path in sorted((cache / "frontier").glob(f"{name}.*.*.json")):
        record = json.loads(path.read_text())
        found = Found(**{**record, "passes": Passes(**record["passes"])})
        yield path.with_suffix(f".{_ENDINGS[found.searcher]}"), found


def _whole_runs(data: dict[str, np.ndarray], labels: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """As many samples as fill runs of `_SAMPLES_PER_RUN`."""
    count = len(labels) // _SAMPLES_PER_RUN * _SAMPLES_PER_RUN
    return {key: array[:count] for key, array in data.items()}, labels[:count]


def judge(cache: Path, name: str, rounds: int, sizes: Sequence[int]) -> tuple[list[Row], dict[int, dict[str, float]]]:
    """Errors on unseen data, and times by turns where there are rounds: those of FP32 and the plain result beside."""
    data, labels = _whole_runs(*int8_accuracy.read_held_out(cache, name, None))
    founds = sorted(_founds(cache, name), key=lambda pair: (-pair[1].share, pair[1].searcher))
    paths = {_EXACT: cache / f"{name}.onnx", _PLAIN: _file(cache, name, "plain", 1.0)}
    paths |= {f"{found.searcher} {found.share:g}": path for path, found in founds}
    # Where the batch is open OpenVINO rounds to BF16 wrongly (docs/how-to/openvino.md), so it is fixed.
    models = {label: runtimes.load("openvino", path, _SAMPLES_PER_RUN, _F32) for label, path in paths.items()}
    exact = runtimes.answers_of(models[_EXACT], data, _SAMPLES_PER_RUN)
    times: dict[int, dict[str, list[float]]] = {}
    for size in sizes if rounds else ():
        fixed = {label: runtimes.load("openvino", path, size, _F32) for label, path in paths.items()}
        times[size] = runtimes.time_by_turns(fixed, {key: array[:size] for key, array in data.items()}, rounds)
    medians = {size: {label: statistics.median(each) for label, each in of.items()} for size, of in times.items()}
    rows = []
    for _, found in founds:
        label = f"{found.searcher} {found.share:g}"
        answers = runtimes.answers_of(models[label], data, _SAMPLES_PER_RUN)
        kernels = models[label].kernels({key: array[:_SAMPLES_PER_RUN] for key, array in data.items()})
        measure, quality = runtimes.quality(answers, labels)
        rows.append(
            Row(
                found=found, error=runtimes.errors(answers, exact)[0], measure=measure, quality=quality,
                reference=runtimes.quality(exact, labels)[1], products=kernels.products,
                integer_products=kernels.integer_products,
                times={size: (medians[size][label], min(of[label])) for size, of in times.items()},
            )
        )  # fmt: skip
    return rows, medians


def show(console: Console, name: str, rows: Sequence[Row], medians: dict[int, dict[str, float]]) -> None:
    """A table for a model, a line for each budget and searcher."""
    beside = "; ".join(
        f"batch {size}: FP32 {of[_EXACT]:.3f} ms, NNCF plain {of[_PLAIN]:.3f}" for size, of in medians.items()
    )
    measure = f"{rows[0].measure}, {rows[0].reference:.4f} in FP32"
    table = Table(title=f"{name} ({measure}) {beside}, load of the machine {os.getloadavg()[0]:.1f}")
    for column in (
        "budget", "by", "unseen error", "of the budget", "quality", "INT8", "full passes", "partial", "samples",
        "all runs", "seconds", *(f"batch {size}: ms (least)" for size in medians),
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "by" else "right")
    for row in rows:
        found, passes = row.found, row.found.passes
        table.add_row(
            f"{found.budget:.2e}", found.searcher, f"{row.error:.2e}", f"{row.error / found.budget:.2f}",
            f"{row.quality:.4f}", f"{row.integer_products}/{row.products}", str(passes.full), str(passes.partial),
            f"{passes.samples:,}", f"{passes.calls:,}", f"{found.seconds:.1f}",
            *(f"{median:.3f} ({least:.3f})" for median, least in row.times.values()),
        )  # fmt: skip
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8"))
    parser.add_argument("--models", nargs="*", choices=int8_accuracy.MODELS, default=list(int8_accuracy.MODELS))
    parser.add_argument("--searchers", nargs="*", choices=list(SEARCHERS), default=list(SEARCHERS))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.25, 0.1], help="of NNCF's plain error")
    parser.add_argument("--batches", type=int, default=10, help="of data, for both")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="sizes that are timed")
    parser.add_argument("--rounds", type=int, default=0, help="timed calls of each file; none are timed unless given")
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    (given.cache / "frontier").mkdir(exist_ok=True)
    console, rows, others = Console(width=190), [], {}
    for name in given.models:
        search(given.cache, name, given.batches, given.shares, given.searchers)
        own, others[name] = judge(given.cache, name, given.rounds, given.batch)
        show(console, name, own, others[name])
        rows += own
    if given.json is not None:
        results = [asdict(row) for row in rows]
        document = {"environment": describe_environment("mezzo"), "medians_ms": others, "results": results}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
