"""Quantizes models by NNCF, ONNX Runtime's quantizer, AMD Quark and mezzo on the same batches; records what it took.

    pip install onnx onnxruntime nncf openvino rich
    python benchmarks/int8_peers.py --cache out/int8 --batches 5 20                 # every quantizer installed here
    python benchmarks/int8_peers.py --cache out/int8 --batches 5 --only 'quark*'    # with a Python that has amd-quark

Reads NAME.onnx and NAME.calibration.npz of a folder (`int8_training.py`, `int8_topologies.py`), writes
quantized/NAME.QUANTIZER.BATCHES.onnx and a .json beside it: seconds, the most memory of the process, runs of the model
or a part of it, samples run, versions. Each file is made in a process of its own, whose imports count. What is there is
not made again. Packages that do not go together are each run by their own Python; the tables (`int8_accuracy.py`,
`int8_speed.py`) read the folder. mezzo goes through its command line (`int8_mezzo.py`).
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cache, partial
from importlib import metadata, util
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apart
import int8_budget
import int8_mezzo
import numpy as np
import onnx

BATCH = 16  # samples of a calibration batch, where a model's data allow for it
TRANSFORMERS = frozenset({"vit", "language", "bert", "gpt2"})

Feeds = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Task:
    """One file to make: the model, its calibration batches, where it goes."""

    name: str
    model: Path
    data: Path
    batches: tuple[Feeds, ...]
    to: Path

    @property
    def is_transformer(self) -> bool:
        return self.name.partition(".")[0] in TRANSFORMERS


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Who quantizes. `package` has to be installed for it; one that needs no data is run once."""

    name: str
    package: str
    quantize: Callable[[Task], None]
    about: str
    needs_data: bool = True


@dataclass(slots=True)
class Runs:
    """Calls of ONNX Runtime sessions while something was quantized, and samples in them."""

    calls: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A line beside a quantized file."""

    model: str
    quantizer: str
    batches: int
    samples: int
    seconds: float
    processor_seconds: float
    peak_bytes: int
    runs: int | None  # unknown where another process ran the model
    samples_run: int | None
    versions: dict[str, str]


@contextmanager
def counted_runs() -> Iterator[Runs]:
    """Count what is run in ONNX Runtime sessions of this process: every quantizer here runs models by it."""
    import onnxruntime

    runs = Runs()
    original = onnxruntime.InferenceSession.run

    def run(self: Any, names: Any, feeds: Mapping[str, np.ndarray], *rest: Any, **options: Any) -> Any:
        runs.calls += 1
        runs.samples += max((len(array) for array in feeds.values() if np.ndim(array)), default=1)
        return original(self, names, feeds, *rest, **options)

    onnxruntime.InferenceSession.run = run
    try:
        yield runs
    finally:
        onnxruntime.InferenceSession.run = original


def _nncf(task: Task, **options: Any) -> None:
    import nncf

    nncf.set_log_level(logging.ERROR)
    kind = nncf.ModelType.TRANSFORMER if task.is_transformer else None
    data = nncf.Dataset(list(task.batches))
    made = nncf.quantize(onnx.load(task.model), data, model_type=kind, subset_size=len(task.batches), **options)
    onnx.save(made, task.to)


def _nncf_mixed(task: Task) -> None:
    import nncf

    _nncf(task, preset=nncf.QuantizationPreset.MIXED)


def _nncf_thorough(task: Task) -> None:
    import nncf

    _nncf(task, preset=nncf.QuantizationPreset.MIXED, fast_bias_correction=False)


def _budget(task: Task) -> float:
    plain = task.to.with_name(f"{task.name}.nncf.{len(task.batches)}.onnx")
    return int8_budget.budget_of(task.model, plain, task.batches)


def _nncf_control(task: Task) -> None:
    int8_budget.control_by_nncf(
        task.model, task.to, task.batches, _budget(task), is_transformer=task.is_transformer
    )  # fmt: skip


def _prepared(task: Task) -> onnx.ModelProto:
    """The model as ONNX Runtime's documents want it: norms folded, shapes inferred."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = task.to.with_suffix(".prepared")
    try:
        quant_pre_process(str(task.model), str(path), skip_symbolic_shape=True)
        return onnx.load(path)
    finally:
        path.unlink(missing_ok=True)


def _ort(task: Task, *, model: onnx.ModelProto | None = None, **options: Any) -> None:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
        def __init__(self) -> None:
            self._left = iter(task.batches)

        def get_next(self) -> Feeds | None:
            return next(self._left, None)

    quantize_static(_prepared(task) if model is None else model, str(task.to), Reader(), **options)


def _ort_best(task: Task, **options: Any) -> None:
    """Unsigned activations and signed weights per channel, in eight bits if no option says seven."""
    from onnxruntime.quantization import QuantType

    _ort(
        task, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True,
        **options,
    )  # fmt: skip


def _ort_calibrated(method: str) -> Callable[[Task], None]:
    def quantize(task: Task) -> None:
        from onnxruntime.quantization import CalibrationMethod

        _ort_best(task, calibrate_method=CalibrationMethod[method])

    return quantize


def _ort_linear(task: Task) -> None:
    """Only products with weights, their outputs float."""
    linear = ["MatMul", "Gemm"]
    model = _prepared(task)
    weights = {tensor.name for tensor in model.graph.initializer}
    others = [node.name for node in model.graph.node if node.op_type in linear and node.input[1] not in weights]
    extra = {"OpTypesToExcludeOutputQuantization": linear}
    _ort_best(task, model=model, op_types_to_quantize=linear, nodes_to_exclude=others, extra_options=extra)


def _ort_dynamic(task: Task) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = _prepared(task)
    del model.graph.value_info[:]  # it turns Gemm's weights around and then refuses the shapes noted before
    options = {"weight_type": QuantType.QInt8, "per_channel": True, "op_types_to_quantize": ["MatMul", "Gemm"]}
    quantize_dynamic(model, str(task.to), extra_options={"MatMulConstBOnly": True}, **options)


def _quark(kind: str) -> Callable[[Task], None]:
    def quantize(task: Task) -> None:
        from onnxruntime.quantization import CalibrationDataReader
        from quark.onnx import ModelQuantizer
        from quark.onnx.quantization.config import Config, get_default_config

        class Reader(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
            def __init__(self) -> None:
                self._left = iter(task.batches)

            def get_next(self) -> Feeds | None:
                return next(self._left, None)

        source, to = task.model.resolve(), task.to.resolve()
        quantizer = ModelQuantizer(Config(global_quant_config=get_default_config(kind)))
        with TemporaryDirectory() as scratch, chdir(scratch):  # it leaves tables where it runs
            quantizer.quantize_model(str(source), str(to), Reader())

    return quantize


def _mezzo_tuned(target: str) -> Quantizer:
    to = int8_mezzo.LEVELS[-1]

    def quantize(task: Task) -> None:
        int8_mezzo.tune(task.model, task.to, task.batches, to=to, target=target, max_error=_budget(task))

    return Quantizer(int8_mezzo.name_of(to, target, "tuned"), "mezzo", quantize, int8_mezzo.spell_tuned(to, target))


def _mezzo(to: str, target: str, calibrator: str | None = None) -> Quantizer:
    name = int8_mezzo.name_of(to, target, calibrator)

    def quantize(task: Task) -> None:
        int8_mezzo.convert(task.model, task.to, task.batches, to=to, target=target, calibrator=calibrator)

    return Quantizer(name, "mezzo", quantize, int8_mezzo.spell(to, target, calibrator))


QUANTIZERS = (
    Quantizer("nncf", "nncf", _nncf, "NNCF, post-training, its defaults; transformers named as such"),
    Quantizer("nncf-mixed", "nncf", _nncf_mixed, "NNCF with preset MIXED"),
    Quantizer("nncf-thorough", "nncf", _nncf_thorough, "NNCF with preset MIXED and its slower bias correction"),
    Quantizer("nncf-control", "nncf", _nncf_control, "NNCF's accuracy control, half of the error allowed"),
    Quantizer("ort-default", "onnxruntime", _ort, "ONNX Runtime's quantize_static, its defaults (S8S8 per tensor)"),
    Quantizer("ort-best", "onnxruntime", _ort_best, "U8S8 per channel, min/max, no reduced range"),
    Quantizer("ort-reduced", "onnxruntime", partial(_ort_best, reduce_range=True), "the same, weights in seven bits"),
    Quantizer("ort-entropy", "onnxruntime", _ort_calibrated("Entropy"), "the same by entropy"),
    Quantizer("ort-percentile", "onnxruntime", _ort_calibrated("Percentile"), "the same by percentile"),
    Quantizer("ort-linear", "onnxruntime", _ort_linear, "U8S8 per channel, products with weights only, float outputs"),
    Quantizer("ort-dynamic", "onnxruntime", _ort_dynamic, "quantize_dynamic, products with weights", needs_data=False),
    Quantizer("quark-a8w8", "quark", _quark("A8W8"), "AMD Quark, default configuration A8W8"),
    Quantizer("quark-u8s8", "quark", _quark("U8S8_AAWS"), "AMD Quark, default configuration U8S8_AAWS"),
    *(_mezzo(to, target) for target in int8_mezzo.TARGETS for to in int8_mezzo.LEVELS),
    *(_mezzo_tuned(target) for target in int8_mezzo.TARGETS),
    *(
        _mezzo("int8", target, way)
        for target in int8_mezzo.TARGETS
        for way in (*int8_mezzo.CALIBRATORS, int8_mezzo.PLAIN)
    ),
)


def read_batches(path: Path, count: int, size: int = BATCH) -> tuple[Feeds, ...]:
    """The first batches of a folder's data."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    samples = min(map(len, arrays.values()))
    size = min(size, max(1, samples // count))
    starts = range(0, min(samples - size + 1, count * size), size)
    return tuple({name: array[start : start + size] for name, array in arrays.items()} for start in starts)


def file_of(cache: Path, name: str, quantizer: str, batches: int) -> Path:
    return cache / "quantized" / f"{name}.{quantizer}.{batches}.onnx"


def files(cache: Path, name: str) -> Iterator[tuple[Path, Made]]:
    """Quantized files of a model with what it took to make them, in the order of the quantizers."""
    order = {one.name: place for place, one in enumerate(QUANTIZERS)}
    paths = (cache / "quantized").glob(f"{name}.*.json")  # the line is written last, so what has one is whole
    records = [(path.with_suffix(".onnx"), json.loads(path.read_text())) for path in paths]
    for path, record in sorted(records, key=lambda pair: (order[pair[1]["quantizer"]], pair[1]["batches"])):
        yield path, Made(**record)


def make(quantizer: Quantizer, task: Task) -> Made:
    """Write one quantized file and the line beside it."""
    begin = time.perf_counter()
    with counted_runs() as runs, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        quantizer.quantize(task)
    seconds = time.perf_counter() - begin
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    batches = task.batches if quantizer.needs_data else ()
    is_seen = quantizer.package != "mezzo"
    made = Made(
        model=task.name,
        quantizer=quantizer.name,
        batches=len(batches),
        samples=sum(len(next(iter(batch.values()))) for batch in batches),
        seconds=seconds,
        processor_seconds=sum(each.ru_utime + each.ru_stime for each in used),
        peak_bytes=max(each.ru_maxrss for each in used) * 1024,
        runs=runs.calls if is_seen else None,
        samples_run=runs.samples if is_seen else None,
        versions=versions(),
    )
    task.to.with_suffix(".json").write_text(json.dumps(asdict(made), indent=1), encoding="utf-8")
    return made


@cache
def idle_bytes() -> int:
    """The most memory of an interpreter that imports ONNX Runtime and does nothing: what every quantizer pays."""
    code = "import onnxruntime, resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    # Started by an interpreter of its own: a process counts the peak of whoever started it as its own.
    starting = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    report = subprocess.run([sys.executable, "-c", starting], capture_output=True, text=True, check=True)
    return 1024 * int(report.stdout)


def versions() -> dict[str, str]:
    versions = {}
    for name in ("onnx", "onnxruntime", "nncf", "openvino", "amd-quark", "numpy", "mezzo"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def available(quantizer: Quantizer) -> bool:
    """Whether the quantizer can run here."""
    if quantizer.package == "mezzo":
        return int8_mezzo.is_there()
    return util.find_spec(quantizer.package) is not None


def tasks(cache: Path, names: Sequence[str], counts: Sequence[int], quantizer: Quantizer) -> Iterator[Task]:
    """What a quantizer has to make that is not there."""
    for name in names:
        for count in counts if quantizer.needs_data else counts[:1]:
            model, data = cache / f"{name}.onnx", cache / f"{name}.calibration.npz"
            to = file_of(cache, name, quantizer.name, count if quantizer.needs_data else 0)
            if not to.with_suffix(".json").exists():
                yield Task(name, model, data, read_batches(data, count), to)


def _make_apart(quantizer: Quantizer, task: Task) -> str:
    """Make one file in a process of its own, and say in words what came of it."""

    def work(_: Callable[[str], None]) -> str:
        try:
            made = make(quantizer, task)
        except Exception as error:  # noqa: BLE001  any of a package's own
            task.to.unlink(missing_ok=True)
            logging.getLogger(__name__).debug("%s", traceback.format_exc())
            return f"{type(error).__name__}: {str(error)[:200]}"
        beyond = made.peak_bytes - idle_bytes()
        memory = (
            f"{made.peak_bytes / 1e6:.0f} MB at most, {beyond / task.model.stat().st_size:.2f} times the model beyond "
            f"{idle_bytes() / 1e6:.0f} MB of an idle interpreter with onnxruntime"
        )
        return f"{made.seconds:.1f} s, {memory}, {made.runs} runs of {made.samples_run} samples"

    return apart.run_apart(work, "its process ended")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8"))
    parser.add_argument("--models", nargs="*", default=[], help="names of models; every one of the folder by default")
    parser.add_argument("--only", nargs="*", default=[], help="quantizers by name, or patterns such as 'quark*'")
    parser.add_argument("--batches", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--list", action="store_true", help="show the quantizers and stop")
    given = parser.parse_args()
    chosen = [one for one in QUANTIZERS if not given.only or any(fnmatch(one.name, name) for name in given.only)]
    if given.list:
        for one in chosen:
            print(f"{one.name:30} {'' if available(one) else '(not here) '}{one.about}")
        return 0
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    names = given.models or sorted(path.stem for path in given.cache.glob("*.onnx"))
    (given.cache / "quantized").mkdir(exist_ok=True)
    for one in filter(available, chosen):
        for task in tasks(given.cache, names, given.batches, one):
            print(f"{task.to.stem}: {_make_apart(one, task)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
