"""How fast INT8 is: FP32, what each quantizer made, and mezzo's column, side by side in one run on two runtimes.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_topologies.py --cache out/int8-speed      # with a Python that has torch, timm, transformers
    python benchmarks/int8_peers.py --cache out/int8-speed --batches 5       # with a Python that has nncf, or quark
    python benchmarks/int8_speed.py --cache out/int8-speed --batch 1 16

    python benchmarks/int8_speed.py --cache out/int8-speed --part answers --json a.json     # any time
    python benchmarks/int8_speed.py --cache out/int8-speed --part times --json t.json       # on a quiet machine
    python benchmarks/int8_speed.py --read a.json t.json                                    # both in one table

The same command goes on where its --json ended, and with --stop-after SECONDS it ends in between: for a machine that is
quiet for minutes only. `exporters.py` makes a folder of other models.

Two threads. Files of a model take turns; before each timed call stand 20 ms of rest and an untimed call. Columns are
the median and the least in ms, the speed by medians as a multiple of FP32's, and half of the middle half of the times
as a share of the median: the machine was busy where that is large. FP32 is OpenVINO's hint f32; all else runs as the
runtime decides by default, which on a CPU with BF16 is BF16 for what is not quantized; there the hint alone and INT8
beside BF16 stand beside it. A CPU without those instructions times no BF16: it would be an emulation. Shares are
of the time of one call by
OpenVINO's runtime graph; ONNX Runtime's kernels are those of its optimized graph. Errors are of random weights on
inputs that no quantizer saw, over what varies between them.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
_WRONG = 4
_JUDGED = 16  # samples, a multiple of each batch
_OURS = "mezzo-int8"
_SHOWN = ("nncf", "ort-default", "ort-best", "ort-reduced", "ort-linear", "ort-dynamic", "quark-a8w8", "quark-u8s8")
_BF16 = {"INFERENCE_PRECISION_HINT": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A file on a runtime at a batch size. `spread` is a share of the median; None is what was not asked for."""

    model: str
    runtime: str
    batch: int
    quantizer: str
    median_ms: float | None = None
    least_ms: float | None = None
    spread: float | None = None
    speed: float | None = None  # as a multiple of FP32's median
    varying_error: float | None = None
    kernels: runtimes.Kernels | None = None
    size: float | None = None  # the file's bytes over FP32's
    making_s: float | None = None  # what the quantizer took, and the most memory of its process
    making_bytes: int | None = None
    load: float | None = None  # of the machine, in processes over the last minute, where it was timed


def read_held_out(cache: Path, name: str) -> dict[str, np.ndarray]:
    """Inputs that no quantizer saw."""
    with np.load(cache / f"{name}.held_out.npz") as stored:
        return {key: stored[key][:_JUDGED] for key in stored.files if key != "labels"}


def load_all(
    cache: Path, name: str, runtime: str, batch: int, *, quantizers: Sequence[str], has_bf16: bool
) -> dict[str, runtimes.Loaded]:
    """Every variant of a model; those that the runtime refuses are told and left out."""
    plain = cache / f"{name}.onnx"
    loaded = {_EXACT: runtimes.load(runtime, plain, batch, _F32)}
    if has_bf16 and runtime == "openvino":
        loaded[_HINT] = runtimes.load(runtime, plain, batch, _BF16)
    for quantizer, (path, _) in _quantized(cache, name).items():
        is_other = quantizer.startswith("mezzo") and runtime not in quantizer
        is_emulated = "bf16" in quantizer and not (has_bf16 and runtime == "openvino")
        if is_other or is_emulated or (quantizers and not quantizer.startswith(tuple(quantizers))):
            continue
        try:
            loaded[quantizer] = runtimes.load(runtime, path, batch)
        except Exception as error:  # noqa: BLE001  any of the runtime's own
            print(f"{path.stem} on {runtime}: {str(error)[:200]}", file=sys.stderr)
    return loaded


def _quantized(cache: Path, name: str) -> dict[str, tuple[Path, int8_peers.Made]]:
    """The file of each quantizer, of several numbers of batches the largest."""
    return {made.quantizer: (path, made) for path, made in int8_peers.files(cache, name)}


def describe_files(cache: Path, name: str) -> dict[str, dict[str, Any]]:
    """The size of each quantizer's file, and what it took to make it."""
    whole = (cache / f"{name}.onnx").stat().st_size
    return {
        quantizer: {
            "size": path.stat().st_size / whole,
            "making_s": made.processor_seconds,
            "making_bytes": made.peak_bytes,
        }
        for quantizer, (path, made) in _quantized(cache, name).items()
    }


def measure(given: argparse.Namespace, name: str, runtime: str, *, has_bf16: bool) -> Iterator[Timed]:
    """The rows of a model on a runtime."""
    data = read_held_out(given.cache, name)
    for batch in given.batch:
        loaded = load_all(given.cache, name, runtime, batch, quantizers=given.quantizers, has_bf16=has_bf16)
        models = run_all(loaded, data, batch)
        files = describe_files(given.cache, name)
        figures: dict[str, dict[str, Any]] = {each: dict(files.get(each, {})) for each in models}
        if given.part != "times":
            for each, found in judge(models, data, batch):
                figures[each] |= found
        if given.part != "answers":
            for each, found in clock(models, data, batch, rounds=given.rounds, seconds=given.seconds):
                figures[each] |= found
        for each, found in figures.items():
            yield Timed(model=name, runtime=runtime, batch=batch, quantizer=each, **found)


def judge(
    models: Mapping[str, runtimes.Loaded], data: runtimes.Feeds, batch: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Errors on inputs that nobody saw, and what the graphs say."""
    feeds = {name: array[:batch] for name, array in data.items()}
    exact = runtimes.answers_of(models[_EXACT], data, batch)
    for name, model in models.items():
        wrong = runtimes.errors(runtimes.answers_of(model, data, batch), exact)[1]
        yield name, {"varying_error": wrong, "kernels": model.kernels(feeds)}


def clock(
    models: Mapping[str, runtimes.Loaded], data: runtimes.Feeds, batch: int, *, rounds: int, seconds: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Times by turns."""
    feeds = {name: array[:batch] for name, array in data.items()}
    times = runtimes.time_by_turns(models, feeds, rounds, seconds)
    for name, own in times.items():
        quarters, median = statistics.quantiles(own, n=4), statistics.median(own)
        yield (
            name,
            {
                "median_ms": median,
                "least_ms": min(own),
                "spread": (quarters[2] - quarters[0]) / 2 / median,
                "speed": statistics.median(times[_EXACT]) / median,
                "load": os.getloadavg()[0],
            },
        )


def run_all(models: Mapping[str, runtimes.Loaded], data: runtimes.Feeds, batch: int) -> dict[str, runtimes.Loaded]:
    """What runs at all: a file that fails as it runs is told, and out."""
    feeds, running = {name: array[:batch] for name, array in data.items()}, {}
    for name, each in models.items():
        try:
            each.answer(feeds)
            running[name] = each
        except Exception as error:  # noqa: BLE001  any of the runtime's own
            print(f"{name} fails as it runs: {str(error)[-200:]}", file=sys.stderr)
    return running


def show(console: Console, rows: Sequence[Timed], *, has_bf16: bool) -> None:
    """A table for a model on a runtime: a line for each quantizer, columns for each batch."""
    batches = sorted({row.batch for row in rows})
    load = max((row.load or 0.0 for row in rows), default=0.0)
    table = Table(title=f"{rows[0].model} on {rows[0].runtime}, load of the machine {load:.1f}")
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
            one = found.get((quantizer, batch))
            cells += (
                ["-"] * 4 if one is None else [*_numbers((one.median_ms, one.least_ms, one.speed)), _share(one.spread)]
            )
        row = next(found[quantizer, batch] for batch in batches if (quantizer, batch) in found)
        error = "-" if row.varying_error is None else f"{row.varying_error:.4f}"
        table.add_row(quantizer, *cells, error, *_kernel_cells(row.kernels))
    if not has_bf16:
        table.add_row("BF16, INT8 beside BF16", "no BF16 instructions: not timed")
    if not any(row.quantizer.startswith(_OURS) for row in rows):
        table.add_row("mezzo", int8_mezzo.NOT_YET)
    console.print(table)


def _numbers(values: Sequence[float | None], digits: int = 2) -> list[str]:
    return ["-" if value is None else f"{value:.{digits}f}" for value in values]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _kernel_cells(kernels: runtimes.Kernels | None) -> list[str]:
    if kernels is None:
        return ["-", "-", ""]
    shares = " ".join(f"{name} {share:.0%}" for name, share in (kernels.shares or {}).items() if share >= 0.005)
    products = f"{kernels.integer_products}/{kernels.products}"
    return [products, f"{kernels.integer_kernels}/{kernels.kernels}", shares]


def sum_up(rows: Sequence[Timed]) -> None:
    """Lines for a page: speeds over FP32, mezzo's over its peers' that answer right, errors, kernels, and what it
    took to make the files.
    """
    shown = [name for name in _SHOWN if any(row.quantizer == name for row in rows)]
    columns = (
        "model", "runtime", "batch", "FP32 ms", _HINT, *shown, "mezzo", "fastest peer", *_Ratios._fields,
        f"errors: {', '.join(shown)}, mezzo", "its INT8 products", "late weights", "size",
        "made in s: NNCF, mezzo", "MB",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    over: dict[tuple[str, int, str], list[float]] = {}
    groups: dict[tuple[str, str, int], dict[str, Timed]] = {}
    for row in rows:
        groups.setdefault((row.model, row.runtime, row.batch), {})[row.quantizer] = row
    for (model, runtime, batch), group in groups.items():
        ours = max((row for name, row in group.items() if name.startswith(_OURS)), key=_speed, default=None)
        best, ratios = _compare_speeds(group, ours)
        for peer, ratio in ratios._asdict().items():
            if ratio:
                over.setdefault((runtime, batch, peer), []).append(ratio)
        cells = [model, runtime, str(batch), *_numbers([group[_EXACT].median_ms], 1)]
        for one in (group.get(_HINT), *(group.get(name) for name in shown), ours):
            cells.append(f"{_numbers([None if one is None else one.speed])[0]}{' (*)' * _is_wrong(one, group)}")
        cells += [best.quantizer, *_numbers(ratios)]
        errors = [None if one is None else one.varying_error for one in (*map(group.get, shown), ours)]
        cells += [", ".join(_numbers(errors, 4)), *_making_cells(group.get("nncf"), ours)]
        print(f"| {' | '.join(cells)} |")
    print(f"\n(*) errs more than {_WRONG} times as much as the middle one of that line's: no peer")
    for (runtime, batch, peer), every in over.items():
        mean = math.exp(statistics.fmean(map(math.log, every)))
        who = f"{runtime}, batch {batch}: mezzo {peer}"
        print(f"{who}, geometric mean of {len(every)} models {mean:.3f}, least {min(every):.2f}")


class _Ratios(NamedTuple):
    """mezzo's speed as a multiple of others'; None where either was not timed."""

    over_fastest: float | None
    over_nncf: float | None
    over_quantizer: float | None  # the fastest of ONNX Runtime's settings
    over_bf16: float | None


def _compare_speeds(group: Mapping[str, Timed], ours: Timed | None) -> tuple[Timed, _Ratios]:
    """The fastest peer, and mezzo's speed over it and others."""
    peers = {name: row for name, row in group.items() if not name.startswith("mezzo") and not _is_wrong(row, group)}
    best = max(peers.values(), key=_speed)
    quantizer = max((row for name, row in peers.items() if name.startswith("ort-")), key=_speed, default=None)
    others = (best, group.get("nncf"), quantizer, group.get(_HINT))
    return best, _Ratios(*(_ratio(ours, other) for other in others))


def _ratio(ours: Timed | None, other: Timed | None) -> float | None:
    return None if ours is None or other is None or not (ours.speed and other.speed) else ours.speed / other.speed


def _making_cells(nncf: Timed | None, ours: Timed | None) -> list[str]:
    """What mezzo's file holds, and what both took to make theirs."""
    kernels = None if ours is None else ours.kernels
    cells = ["-", "-"] if kernels is None else [_kernel_cells(kernels)[0], str(kernels.late_products)]
    cells.append(_share(None if ours is None else ours.size))
    both = [row for row in (nncf, ours) if row is not None]
    cells.append(", ".join(_numbers([row.making_s for row in both], 1)))
    cells.append(", ".join(_numbers([row.making_bytes and row.making_bytes / 1e6 for row in both], 0)))
    return cells


def _speed(row: Timed) -> float:
    return row.speed or 0.0


def _is_wrong(row: Timed | None, group: Mapping[str, Timed]) -> bool:
    """Whether a file answers something else, as the runtime takes it."""
    known = [each.varying_error for each in group.values() if each.varying_error]
    if row is None or row.varying_error is None or not known:
        return False
    return row.varying_error > _WRONG * statistics.median(known)


def read(paths: Sequence[Path]) -> list[Timed]:
    """The rows of several files as one: what a later one knows of a row is added to what an earlier one does.

    An error that is known of one batch size stands for the others.
    """
    rows: dict[tuple[str, str, int, str], dict[str, Any]] = {}
    for path in paths:
        for result in json.loads(path.read_text())["results"]:
            place = (result["model"], result["runtime"], result["batch"], result["quantizer"])
            known = {key: value for key, value in result.items() if value is not None}
            rows[place] = {**rows.get(place, {}), **known}
    errors = {
        (model, runtime, quantizer): row["varying_error"]
        for (model, runtime, _, quantizer), row in rows.items()
        if "varying_error" in row
    }
    for (model, runtime, _, quantizer), row in rows.items():
        row.setdefault("varying_error", errors.get((model, runtime, quantizer)))
        if "kernels" in row:
            row["kernels"] = runtimes.Kernels(**row["kernels"])
    return [Timed(**row) for row in rows.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8-speed"))
    parser.add_argument("--models", nargs="*", default=[], help="names of models; every one of the folder by default")
    parser.add_argument("--quantizers", nargs="*", default=[], help="by the beginning of their names; all by default")
    parser.add_argument("--runtimes", nargs="+", choices=runtimes.RUNTIMES, default=list(runtimes.RUNTIMES))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--part", choices=("answers", "times", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each file")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of timing for a model, a runtime and a batch")
    parser.add_argument("--json", type=Path, help="write every figure here; what stands there is not measured again")
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, metavar="SECONDS", help="begin no model after them"
    )
    parser.add_argument("--read", type=Path, nargs="+", help="measure nothing: sum up what such files hold")
    given = parser.parse_args()
    environment = describe_environment("mezzo")
    features = environment["cpu_features"]
    has_bf16 = bool(_BF16_FEATURES.intersection(features))
    console = Console(width=190)
    if given.read:
        sum_up(read(given.read))
        return 0
    console.print(f"CPU features: {' '.join(features)}")
    rows = read([given.json]) if given.json is not None and given.json.exists() else []
    measured, begin = {(row.model, row.runtime) for row in rows}, time.monotonic()
    for name in given.models or sorted(path.stem for path in given.cache.glob("*.onnx")):
        for runtime in given.runtimes:
            if (name, runtime) in measured or time.monotonic() - begin > given.stop_after:
                continue
            own = list(measure(given, name, runtime, has_bf16=has_bf16))
            show(console, own, has_bf16=has_bf16)
            rows += own
            if given.json is not None:
                document = {"environment": environment, "results": [asdict(row) for row in rows]}
                given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    sum_up(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
