"""Typed models on a GPU: what mezzo's files gain in ONNX Runtime's CUDA provider, and whether emulation foretold it.

    pip install onnxruntime-gpu[cuda,cudnn]
    python benchmarks/bf16_hint_models.py --cache out/cuda --batch 16   # with a Python that has torch and transformers
    python benchmarks/cuda.py --cache out/cuda
    python benchmarks/cuda.py --cache out/architectures --every

Each model in one process as it is (FP32, without TF32), with TF32, as mezzo's FP16 and BF16 files for this target, and
as ONNX Runtime's own float16 tool makes it. Inputs and outputs lie on the GPU. Errors are relative L2 of the first
output against the FP32 run on the same GPU; "emulated" is what mezzo said of the same file without a GPU. "Off the GPU"
counts kernels that ran on the CPU, from the runtime's own profile. Models take turns, an untimed call before each timed
one. `--every` takes every model of a folder with the input beside it and sums up errors and answers.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from bf16_hint import read_feeds, relative_error
from conformance import describe_environment
from converters import CONVERTERS, Settings
from gpu import find_gpu
from rich.console import Console
from rich.table import Table

import mezzo

_TARGET = "onnxruntime-cuda"
_PROVIDER = "CUDAExecutionProvider"
_REST_S = 0.02
_REFERENCE = "fp32"
_FORMS = (_REFERENCE, "tf32", "mezzo fp16", "mezzo bf16", "onnxruntime fp16")
_ALIKE = 2.0  # errors apart by no more than this factor count as foretold
_ANY = 1e-5  # relative; what errs by less is not rounded anywhere that counts

Feeds = Mapping[str, np.ndarray]


@dataclass(slots=True, kw_only=True)
class Row:
    """One model. Everything is by form, see `_FORMS`; `refused` says why there is no such form."""

    model: str
    errors: dict[str, float]
    emulated: dict[str, float]
    times_ms: dict[str, float]
    kernels: dict[str, int]
    off_gpu: dict[str, list[str]]
    refused: dict[str, str]


class Variant:
    """A session on the GPU."""

    def __init__(self, model: onnx.ModelProto, feeds: Feeds, *, is_tf32: bool = False) -> None:
        self._model = model.SerializeToString()
        self._provider = (_PROVIDER, {"use_tf32": "1" if is_tf32 else "0"})
        self._session = self._load(onnxruntime.SessionOptions())
        taken = {port.name for port in self._session.get_inputs()}
        self._feeds = {name: value for name, value in feeds.items() if name in taken}
        self._first = self._session.get_outputs()[0].name
        self._binding = self._session.io_binding()
        for name, value in self._feeds.items():
            self._binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value, "cuda", 0))
        for port in self._session.get_outputs():
            self._binding.bind_output(port.name, "cuda")

    def _load(self, options: Any) -> Any:
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(self._model, options, providers=[self._provider])
        if _PROVIDER not in session.get_providers():
            raise RuntimeError("ONNX Runtime found no CUDA device")
        return session

    def answer(self) -> np.ndarray:
        """The first output, in FP64."""
        return np.asarray(self._session.run([self._first], self._feeds)[0], np.float64)

    def time_ms(self) -> float:
        """One call, after a rest and a call that is not timed."""
        time.sleep(_REST_S)
        self._run()
        begin = time.perf_counter()
        self._run()
        return (time.perf_counter() - begin) * 1e3

    def _run(self) -> None:
        self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()

    def kernels(self) -> tuple[int, list[str]]:
        """How many kernels a call runs, and the operators of those that run on the CPU."""
        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder, "profile"))
            session = self._load(options)
            session.run(None, self._feeds)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        ran = [event["args"] for event in events if event.get("args", {}).get("provider")]
        return len(ran), sorted(about["op_name"] for about in ran if about["provider"] != _PROVIDER)


def makers(model: onnx.ModelProto) -> Mapping[str, Callable[[], onnx.ModelProto]]:
    """How each form is made, but for TF32, which is a setting."""
    peer = CONVERTERS["onnxruntime-float16"]
    return {
        "mezzo fp16": lambda: mezzo.convert(model, to="fp16", target=_TARGET).model,
        "mezzo bf16": lambda: mezzo.convert(model, to="bf16", target=_TARGET).model,
        "onnxruntime fp16": lambda: peer.convert(model, Settings(to="fp16")),
    }


def measure(path: Path, rounds: int) -> Row:
    """Run one model in its forms. Raises what the runtime raises of the model as it is."""
    model = onnx.load(path)
    feeds = read_feeds(path, model)
    row = Row(model=path.stem, errors={}, emulated={}, times_ms={}, kernels={}, off_gpu={}, refused={})
    variants = {_REFERENCE: Variant(model, feeds), "tf32": Variant(model, feeds, is_tf32=True)}
    for name, make in makers(model).items():
        try:
            typed = make()
            variants[name] = Variant(typed, feeds)
            if name.startswith("mezzo"):
                outputs = mezzo.emulate(typed, feeds)
                emulated = np.asarray(outputs[typed.graph.output[0].name], np.float64)
                row.emulated[name] = relative_error(emulated, variants[_REFERENCE].answer())
        except Exception as error:  # noqa: BLE001  a tool's failure is its result
            row.refused[name] = " ".join(str(error).split())[:200]
    reference = variants[_REFERENCE].answer()
    for name, variant in variants.items():
        try:
            row.errors[name] = relative_error(variant.answer(), reference)
            row.kernels[name], row.off_gpu[name] = variant.kernels()
        except Exception as error:  # noqa: BLE001  likewise
            row.refused[name] = " ".join(str(error).split())[:200]
    times: dict[str, list[float]] = {name: [] for name in variants if name not in row.refused}
    for _ in range(rounds):
        for name, taken in times.items():
            taken.append(variants[name].time_ms())
    row.times_ms = {name: statistics.median(taken) for name, taken in times.items() if taken}
    return row


def show(console: Console, rows: Sequence[Row]) -> None:
    """Print errors, kernels off the GPU and speeds."""
    table = Table(title="time of a call in FP32 without TF32, and speed as a multiple of that")
    for column in ("model", "FP32 ms", *_FORMS[1:]):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        base = row.times_ms[_REFERENCE]
        speeds = [f"{base / row.times_ms[name]:.2f}" if name in row.times_ms else "refused" for name in _FORMS[1:]]
        table.add_row(row.model, f"{base:.2f}", *speeds)
    console.print(table)
    table = Table(title="error against FP32 (emulated), and kernels off the GPU")
    for column in ("model", *_FORMS[1:]):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        table.add_row(row.model, *(_spell_error(row, name) for name in _FORMS[1:]))
    console.print(table)


def _spell_error(row: Row, name: str) -> str:
    if name not in row.errors:
        return "refused"
    foretold = f" ({row.emulated[name]:.2e})" if name in row.emulated else ""
    return f"{row.errors[name]:.2e}{foretold}, {len(row.off_gpu.get(name, []))}"


def sum_up(console: Console, rows: Sequence[Row]) -> None:
    """Print how often what emulation said held on the GPU, and what runs off it."""
    console.print(f"{len(rows)} models")
    for name in _FORMS[1:]:
        ran = [row for row in rows if name in row.errors]
        finite = [row for row in ran if math.isfinite(row.errors[name])]
        off = sum(len(row.off_gpu.get(name, [])) for row in ran)
        base = sum(len(row.off_gpu.get(_REFERENCE, [])) for row in ran)
        console.print(
            f"{name}: {len(ran)} ran, {len(finite)} with finite answers; kernels off the GPU {off}, in FP32 {base}",
            markup=False,
        )
        pairs = [
            (row.model, row.errors[name], row.emulated[name])
            for row in finite
            if name in row.emulated and max(row.errors[name], row.emulated[name]) > _ANY
        ]
        if not pairs:
            continue
        ratios = [math.log(error / foretold) for _, error, foretold in pairs]
        alike = sum(abs(ratio) <= math.log(_ALIKE) for ratio in ratios)
        apart = [f"{model} {error:.2e} for {told:.2e}" for model, error, told in pairs if error > _ALIKE * told]
        console.print(
            f"  GPU's error over emulated: geometric mean {math.exp(statistics.fmean(ratios)):.2f}, "
            f"{alike} of {len(pairs)} within a factor of {_ALIKE:.0f}; larger by more: {'; '.join(apart) or 'none'}",
            markup=False,
        )


def _try(path: Path) -> Row | None:
    """A model's row without times; None where the runtime refuses the model as it is."""
    try:
        row = measure(path, 0)
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        print(f"{path.name}: {str(error)[:200]}", file=sys.stderr)
        return None
    print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/cuda"))
    parser.add_argument("--rounds", type=int, default=30, help="timed calls of each form")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--every", action="store_true", help="sum up errors; no times")
    given = parser.parse_args(arguments)
    if _PROVIDER not in onnxruntime.get_available_providers():
        print(f"this onnxruntime has no {_PROVIDER}: pip install onnxruntime-gpu[cuda,cudnn]", file=sys.stderr)
        return 2
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    onnxruntime.set_default_logger_severity(3)
    paths = sorted(given.cache.glob("*.onnx"))
    if not paths:
        print(f"{given.cache} holds no model: run benchmarks/bf16_hint_models.py", file=sys.stderr)
        return 2
    console = Console(width=130)
    if given.every:
        rows = [row for path in paths if (row := _try(path)) is not None]
        sum_up(console, rows)
    else:
        rows = [measure(path, given.rounds) for path in paths]
        show(console, rows)
    if given.json is not None:
        document = {
            "environment": describe_environment("mezzo") | {"gpu": find_gpu()},
            "results": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
