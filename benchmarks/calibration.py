"""Calibrates a whole model by entropy on many batches: mezzo beside ONNX Runtime's calibrator, time and peak memory.

    python benchmarks/int8_topologies.py --cache out/int8-speed --only resnet-50      # with a Python that has torch
    python benchmarks/calibration.py --model out/int8-speed/resnet-50.onnx --batches 100

Each in a process of its own, one after the other, on noise that is drawn before, from the batches to the ranges of each
tensor that may be quantized for ONNX Runtime's CPU. mezzo holds every fourth batch back, so it is given a third more,
and its scales are from as many batches. "convert" is its whole conversion, with its planning, weights and check; of
ONNX Runtime only the calibrator stands here, at its default of 128 bins and at 2,048 bins for 255 integers, which is
what cuts anything off. Peaks are resident bytes of the process above those before it began.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

_KIB = 1024  # ru_maxrss is in these on Linux
_OPERATORS = ("Conv", "Gemm", "MatMul", "Add")  # what ONNX Runtime's quantizer makes integer of a ResNet-50

Feeds = dict[str, np.ndarray]
# Of a model, how many batches of which size, and a folder: what is timed, which may tell its seconds itself.
Prepare = Callable[[Path, int, int, Path], Callable[[], float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one tool took."""

    tool: str
    seconds: float
    peak_bytes: int
    load: float  # of the machine, in processes over the last minute


def draw(model: Path, batches: int, size: int) -> Iterator[Feeds]:
    """Noise for the model's one input, the same for every tool."""
    given = onnx.load(model, load_external_data=False).graph.input[0]
    shape = [size, *(dim.dim_value for dim in given.type.tensor_type.shape.dim[1:])]
    for number in range(batches):
        yield {given.name: np.random.default_rng(number).standard_normal(shape).astype(np.float32)}


def _calibrate(model: Path, batches: int, size: int, folder: Path) -> Callable[[], float | None]:
    """mezzo's step of a conversion, told apart by its own time."""
    from mezzo.quantize import calibration

    step, taken = calibration.calibrate, list[float]()

    def timed(model: Any, options: Any, dataset: Any, calibrator: Any, resume: Path | None = None) -> Any:
        assert sum(1 for _ in dataset) == batches, "scales are from as many batches as the other tool's"
        begin = time.perf_counter()
        try:
            return step(model, options, dataset, calibrator, resume)
        finally:
            taken.append(time.perf_counter() - begin)

    calibration.calibrate = timed
    convert = _convert(model, batches, size, folder)

    def run() -> float:
        convert()
        return sum(taken)

    return run


def _convert(model: Path, batches: int, size: int, folder: Path) -> Callable[[], float | None]:
    import mezzo

    for number, batch in enumerate(draw(model, batches + (batches - 1) // 3, size)):
        np.savez(folder / f"{number:04}.npz", **batch)  # type: ignore[arg-type]  # arrays by name

    def run() -> None:
        mezzo.convert(
            model,
            folder / "q.onnx",
            to="int8",
            target="onnxruntime-cpu",
            data=folder,
            calibrator="entropy",
            correct="none",
        )

    return run


def _onnxruntime(options: Mapping[str, int]) -> Prepare:
    def prepare(model: Path, batches: int, size: int, folder: Path) -> Callable[[], float | None]:
        data = iter([*draw(model, batches, size)])

        from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
        from onnxruntime.quantization.calibrate import create_calibrator

        class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
            def get_next(self) -> Feeds | None:
                return next(data, None)

        def run() -> None:
            calibrator = create_calibrator(
                model, _OPERATORS, str(folder / "augmented.onnx"), CalibrationMethod.Entropy, extra_options=options
            )
            calibrator.collect_data(Reader())
            calibrator.compute_data()

        return run

    return prepare


TOOLS: Mapping[str, Prepare] = {
    "mezzo": _calibrate,
    "mezzo, convert": _convert,
    "onnxruntime, 128 bins": _onnxruntime({}),
    "onnxruntime, 2048 bins": _onnxruntime({"num_bins": 2048, "num_quantized_bins": 255}),
}


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def run_here(tool: str, model: Path, batches: int, size: int) -> Run:
    """One tool in this process, which should be a fresh one."""
    with tempfile.TemporaryDirectory() as folder:
        run = TOOLS[tool](model, batches, size, Path(folder))
        before, begin = _peak(), time.perf_counter()
        own = run()
        elapsed = time.perf_counter() - begin
    seconds = elapsed if own is None else own
    return Run(tool=tool, seconds=seconds, peak_bytes=_peak() - before, load=os.getloadavg()[0])


def show(console: Console, runs: list[Run], batches: int, size: int) -> None:
    table = Table(title=f"entropy over {batches} batches of {size}")
    for column in ("tool", "seconds", "of mezzo's", "peak MB", "load"):
        table.add_column(column, justify="left" if column == "tool" else "right")
    first = runs[0].seconds
    for run in runs:
        peak = f"{run.peak_bytes / 1e6:,.0f}"
        table.add_row(run.tool, f"{run.seconds:.1f}", f"{run.seconds / first:.2f}", peak, f"{run.load:.1f}")
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("out/int8-speed/resnet-50.onnx"))
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument(
        "--size", type=int, default=1, help="samples of a batch; ONNX Runtime holds all batches' values"
    )
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(asdict(run_here(given.tools[0], given.model, given.batches, given.size))))
        return 0
    runs = []
    for tool in given.tools:
        asked = ["--model", str(given.model), "--batches", str(given.batches), "--size", str(given.size)]
        done = subprocess.run(
            [sys.executable, __file__, *asked, "--tools", tool, "--here"], stdout=subprocess.PIPE, text=True, check=True
        )
        runs.append(Run(**json.loads(done.stdout.splitlines()[-1])))
    environment = describe_environment("mezzo")
    console = Console(width=120)
    console.print(f"CPU features: {' '.join(environment['cpu_features'])}")
    show(console, runs, given.batches, given.size)
    if given.json is not None:
        document = {"environment": environment, "batches": given.batches, "size": given.size}
        given.json.write_text(json.dumps(document | {"results": [asdict(run) for run in runs]}, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
