"""Weights stored in FP16 or BF16 and read in FP32 (--to fp16w, bf16w): size, load time, memory, speed and answers.

    python benchmarks/low_float_weights.py
    python benchmarks/low_float_weights.py --python openvino=VENV/bin/python    # if another Python has it

The model is the "encoder" of benchmarks/weights.py: random weights, 12 layers shaped like BERT's. Each row is the
median of several processes, which load the file, run it on 1 x 64 words, and end. "MB held": what the process gained
between the imports and the end of its runs; "load": from the path to a session; "run": median of 20 in a process.
"error": relative L2 of the output against the FP32 file's on the same runtime.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WAYS = ("fp32", "fp16w", "bf16w", "fp16")
RUNTIMES = ("onnxruntime", "openvino")
BATCH, WORDS, RUNS = 1, 64, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A file on a runtime. `failure`: why there are no figures."""

    runtime: str
    way: str
    file_mb: float
    load_s: float = 0.0
    held_mb: float = 0.0
    run_ms: float = 0.0
    error: float = 0.0
    failure: str | None = None


# -- one measurement, in a process of its own: it needs numpy and the runtime alone -----------------------------------


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def open_file(runtime: str, path: str, threads: int) -> Callable[[Any], Any]:
    """The function that runs a file on one array."""
    if runtime == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda ids: session.run(None, {"ids": ids})[0]
    import openvino  # type: ignore[import-not-found]  # of another Python, perhaps

    # Without the hint OpenVINO rounds FP32 to BF16 on CPUs that have it.
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda ids: next(iter(compiled({"ids": ids}).values()))


def run_child(runtime: str, path: str, answer_path: str, threads: str) -> int:
    import numpy

    __import__(runtime)
    ids = numpy.random.default_rng(0).integers(0, 1000, (BATCH, WORDS))
    before_mb, begin = resident_mb(), time.perf_counter()
    run = open_file(runtime, path, int(threads))
    load_s = time.perf_counter() - begin
    numpy.save(answer_path, run(ids))
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run(ids)
        times.append(time.perf_counter() - begin)
    row = {"load_s": load_s, "held_mb": resident_mb() - before_mb, "run_ms": statistics.median(times) * 1e3}
    print(json.dumps(row))
    return 0


# -- the table --------------------------------------------------------------------------------------------------------


def make_files(folder: Path) -> dict[str, Path]:
    """The model, and what mezzo makes of it."""
    from weights import MODELS, write_model

    import mezzo

    files = {way: folder / f"{way}.onnx" for way in WAYS}
    write_model(MODELS["encoder"], files["fp32"])
    for way in WAYS[1:]:
        mezzo.convert(files["fp32"], files[way], to=way, check=False)
    return files


def measure(runtime: str, way: str, path: Path, python: str, repeats: int, threads: int) -> Row:
    """The row of one file on one runtime."""
    import numpy

    answer_path = path.with_suffix(f".{runtime}.npy")
    file_mb = path.stat().st_size / 1e6
    command = [python, __file__, "--child", runtime, str(path), str(answer_path), str(threads)]
    answers: list[dict[str, Any]] = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return Row(runtime=runtime, way=way, file_mb=file_mb, failure=lines[-1][:200] if lines else "no reason")
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    medians = {key: statistics.median(answer[key] for answer in answers) for key in answers[0]}
    wanted = numpy.load(path.with_name(f"fp32.{runtime}.npy")).astype(numpy.float64)
    error = numpy.linalg.norm(numpy.load(answer_path) - wanted) / numpy.linalg.norm(wanted)
    return Row(runtime=runtime, way=way, file_mb=file_mb, error=float(error), **medians)


def print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Weights in a low float, operators in FP32")
    for heading in ("runtime", "to"):
        table.add_column(heading)
    for heading in ("MB", "load s", "MB held", "run ms", "error"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = [f"{row.load_s:.2f}", f"{row.held_mb:.0f}", f"{row.run_ms:.1f}", f"{row.error:.1e}"]
        table.add_row(row.runtime, row.way, f"{row.file_mb:.0f}", *(figures if row.failure is None else [row.failure]))
    (Console() if sys.stdout.isatty() else Console(width=120)).print(table)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--python", nargs="+", default=[], metavar="RUNTIME=PYTHON", help="interpreter of a runtime")
    parser.add_argument("--folder", type=Path, help="where the models go; a temporary folder by default")
    parser.add_argument("--repeats", type=int, default=5, help="processes per file and runtime")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("out/low_float_weights.json"))
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return run_child(*sys.argv[2:])
    options = _parse()
    pythons = dict(entry.split("=", 1) for entry in options.python)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="low-float-", dir=options.folder) as folder:
        files = make_files(Path(folder))
        for runtime in options.runtimes:
            python = pythons.get(runtime, sys.executable)
            for way, path in files.items():
                rows.append(measure(runtime, way, path, python, options.repeats, options.threads))
    from conformance import describe_environment

    environment = describe_environment("mezzo")
    print(f"{environment['cpu']}: {' '.join(environment['cpu_features'])}; Python {environment['python']}")
    print("; ".join(f"{name} {text}" for name, text in environment["versions"].items()))
    print_table(rows)
    report = {"environment": environment, "rows": [asdict(row) for row in rows]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
