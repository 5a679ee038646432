"""Measures what converting large weights costs in time and memory, against a plain copy of the same files.

    python benchmarks/weights.py --folder /a/folder/with/20/GB/free --peer-python /path/to/the/peers/bin/python
    python benchmarks/weights.py --models encoder --repeats 5

Two models with random weights: "decoder", 4.3 GB with external data, and "encoder", a single file of 255 MB shaped like
BERT. They are written piece by piece into a temporary folder inside --folder and removed at the end. Every measurement
is a process of its own, path in, path out, imports and a tiny conversion done before the clock starts; copying the
files with `cp` takes its turn among them. With --cache warm the input is in the page cache, with cold it is not.
"""

import argparse
import contextlib
import io
import json
import logging
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# onnx and numpy are loaded in the processes that need them: a child's peak memory starts at its parent's.

COPY = "cp"
# label: (converter, type)
TOOLS = {
    "mezzo fp16": ("mezzo", "fp16"),
    "mezzo bf16": ("mezzo", "bf16"),
    "mezzo int4": ("mezzo", "int4"),
    "onnxconverter-common": ("onnxconverter-common", "fp16"),
    "onnxruntime-float16": ("onnxruntime-float16", "fp16"),
}
CHUNK_ELEMENTS = 1 << 22
FLOAT, EXTERNAL = 1, 1  # of TensorProto.DataType and TensorProto.DataLocation
NOTE = (
    "s: median, conversion from path to path, or the copy; process s: all of it, imports included. Peaks are of whole "
    "processes. runs: those that succeeded, of those tried."
)


@dataclass(frozen=True, slots=True)
class Size:
    """A transformer. Peers hold a model several times in memory, so only mezzo converts the large one."""

    layers: int
    width: int
    inner: int
    words: int
    is_gated: bool
    is_external: bool
    tools: tuple[str, ...]


MODELS = {
    "decoder": Size(4, 4096, 11008, 32000, True, True, ("mezzo fp16", "mezzo bf16", "mezzo int4")),
    "encoder": Size(12, 576, 2304, 27648, False, False, tuple(TOOLS)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One tool on one model. `failure` is the first failed run's last line, though other runs may have succeeded."""

    model: str
    size_mb: float
    tool: str
    seconds: float
    to_copy: float | None
    process_s: float
    peak_mb: float
    size_after_mb: float
    runs: int
    succeeded: int
    failure: str | None = None


# -- models -----------------------------------------------------------------------------------------------------------


class Writer:
    """Collects a graph whose weights are drawn when they are written."""

    def __init__(self) -> None:
        import onnx

        self.onnx = onnx
        self.nodes: list[Any] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.small: list[Any] = []

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name + "_out"], name=name, **attributes))
        return name + "_out"

    def weight(self, *shape: int) -> str:
        name = f"weight_{len(self.shapes)}"
        self.shapes[name] = shape
        return name

    def integers(self, name: str, numbers: Sequence[int]) -> str:
        if all(tensor.name != name for tensor in self.small):
            made = self.onnx.helper.make_tensor(name, self.onnx.TensorProto.INT64, [len(numbers)], list(numbers))
            self.small.append(made)
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x: str, width: int) -> str:
        return self.node("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1, epsilon=1e-5)


def describe(size: Size) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """A model without its large weights, and their shapes."""
    w = Writer()
    x = w.norm(w.node("Gather", w.weight(size.words, size.width), "ids"), size.width)
    heads, head = size.width // 64, 64
    split = w.integers("split", (0, 0, heads, head))
    joined = w.integers("joined", (0, 0, size.width))
    for _ in range(size.layers):
        q, k, v = (w.node("Reshape", w.linear(x, size.width, size.width), split) for _ in range(3))
        keys = w.node("Transpose", k, perm=[0, 2, 3, 1])
        scores = w.node("MatMul", w.node("Transpose", q, perm=[0, 2, 1, 3]), keys)
        mixed = w.node("MatMul", w.node("Softmax", scores, axis=-1), w.node("Transpose", v, perm=[0, 2, 1, 3]))
        mixed = w.node("Reshape", w.node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        x = w.norm(w.node("Add", x, w.linear(mixed, size.width, size.width)), size.width)
        wide = w.linear(x, size.width, size.inner)
        if size.is_gated:
            wide = w.node("Mul", wide, w.node("Sigmoid", w.linear(x, size.width, size.inner)))
        else:
            wide = w.node("Mul", wide, w.node("Erf", wide))
        x = w.norm(w.node("Add", x, w.linear(wide, size.inner, size.width)), size.width)
    if size.is_gated:
        x = w.node("MatMul", x, w.weight(size.width, size.words))
    helper, types = w.onnx.helper, w.onnx.TensorProto
    inputs = [helper.make_tensor_value_info("ids", types.INT64, ["batch", "sequence"])]
    outputs = [helper.make_tensor_value_info(x, types.FLOAT, ["batch", "sequence", None])]
    graph = helper.make_graph(w.nodes, "weights", inputs, outputs, w.small)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), w.shapes


def write_model(size: Size, path: Path) -> None:
    """Write a model, its weights drawn and written in pieces of 16 MiB."""
    model, shapes = describe(size)
    if size.is_external:
        write_external(model, shapes, path)
    else:
        write_inline(model, shapes, path)


def write_external(model: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    data_path = path.with_name(path.name + ".weights")
    offset = 0
    with data_path.open("wb") as data:
        for number, (name, shape) in enumerate(shapes.items()):
            tensor = model.graph.initializer.add(name=name, data_type=FLOAT, dims=shape, data_location=EXTERNAL)
            length = 4 * math.prod(shape)
            for key, value in (("location", data_path.name), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
            for chunk in _draw(shape, number):
                data.write(chunk)
            offset += length
    path.write_bytes(model.SerializeToString())


def write_inline(model: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    """Write protobuf by hand, so that no more than a piece of the weights is ever in memory."""
    headers = []
    for name, shape in shapes.items():
        length = 4 * math.prod(shape)
        tensor = model.graph.initializer.add(name=name, data_type=FLOAT, dims=shape)
        header = tensor.SerializeToString() + b"\x4a" + _varint(length)  # TensorProto.raw_data
        headers.append((b"\x2a" + _varint(len(header) + length) + header, shape))  # GraphProto.initializer
    del model.graph.initializer[-len(shapes) :]
    graph = model.graph.SerializeToString()
    size_bytes = len(graph) + sum(len(header) + 4 * math.prod(shape) for header, shape in headers)
    model.ClearField("graph")
    with path.open("wb") as file:
        file.write(model.SerializeToString() + b"\x3a" + _varint(size_bytes) + graph)  # ModelProto.graph
        for number, (header, shape) in enumerate(headers):
            file.write(header)
            for chunk in _draw(shape, number):
                file.write(chunk)


def _draw(shape: Sequence[int], number: int) -> Iterator[bytes]:
    """Random numbers, others for each weight: engines hold equal weights once."""
    import numpy

    random = numpy.random.default_rng(number)
    left = math.prod(shape)
    while left:
        step = min(left, CHUNK_ELEMENTS)
        yield (random.standard_normal(step, numpy.float32) * numpy.float32(0.02)).tobytes()
        left -= step


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# -- one measurement, in a process of its own -------------------------------------------------------------------------


def peak_mb(who: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def convert(tool: str, source: Path, target: Path) -> None:
    """Convert a file to a file, as a user of the tool would."""
    import onnx
    from converters import CONVERTERS, Settings

    name, to = TOOLS[tool]
    if name == "mezzo":
        import mezzo

        mezzo.convert(source, target, to=to)
        return
    onnx.save(CONVERTERS[name].convert(onnx.load(source), Settings(to)), target)


def run_child(job: str, *arguments: str) -> int:
    """Do what the parent asks and print the answer as JSON, alone on standard output."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    answer: dict[str, float] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        if job == "write":
            write_model(MODELS[arguments[0]], Path(arguments[1]))
        elif job == "tiny":
            write_model(Size(1, 64, 64, 64, False, False, ()), Path(arguments[0]))
        else:
            tool, source, target, tiny = arguments
            convert(tool, Path(tiny), Path(target).with_suffix(".tiny.onnx"))
            base = peak_mb()
            begin = time.perf_counter()
            convert(tool, Path(source), Path(target))
            answer = {"seconds": time.perf_counter() - begin, "peak_mb": peak_mb(), "base_mb": base}
    print(json.dumps(answer))
    return 0


def ask(python: str, *arguments: str) -> dict[str, Any]:
    """Run this script as a child. Returns its answer, or {"failure": why}."""
    begin = time.perf_counter()
    done = subprocess.run([python, __file__, "--child", *arguments], capture_output=True, text=True)
    process_s = time.perf_counter() - begin
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failure": lines[-1][:200] if lines else f"exit status {done.returncode}"}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer | {"process_s": process_s}


# -- the comparison ---------------------------------------------------------------------------------------------------


def prepare(files: Sequence[Path], cache: str) -> None:
    """Write out what earlier runs left behind, and put the input into the page cache or out of it."""
    os.sync()
    for path in files:
        with path.open("rb", buffering=0) as file:
            if cache == "cold":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                continue
            while file.read(1 << 24):
                pass


def copy(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    subprocess.run(["cp", *map(str, files), str(folder)], check=True)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "process_s": seconds, "peak_mb": 0.0}


def compare(options: argparse.Namespace, folder: Path, name: str) -> list[Row]:
    """Measure a copy and every tool on one model, in turns."""
    size = MODELS[name]
    tiny, source, out = folder / "tiny.onnx", folder / f"{name}.onnx", folder / "out"
    for answer in (ask(sys.executable, "tiny", str(tiny)), ask(sys.executable, "write", name, str(source))):
        if "failure" in answer:
            raise SystemExit(f"cannot write the model: {answer['failure']}")
    files = sorted(folder.glob(f"{name}.onnx*"))
    tools = [COPY, *(tool for tool in size.tools if tool in options.tools)]
    answers: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
    for turn in range(options.repeats_large if size.is_external else options.repeats):
        for tool in tools[turn % len(tools) :] + tools[: turn % len(tools)]:
            out.mkdir()
            prepare(files, options.cache)
            if tool == COPY:
                answer = copy(files, out)
            else:
                python = sys.executable if TOOLS[tool][0] == "mezzo" else options.peer_python
                answer = ask(python, "convert", tool, str(source), str(out / "result.onnx"), str(tiny))
            written = [path for path in out.iterdir() if ".tiny." not in path.name]
            answer["size_after"] = sum(path.stat().st_size for path in written)
            answers[tool].append(answer)
            print(f"{name} {tool}: {answer.get('failure') or format(answer['seconds'], '.2f') + ' s'}", file=sys.stderr)
            for path in out.iterdir():
                path.unlink()
            out.rmdir()
    size_mb = sum(path.stat().st_size for path in files) / 1e6
    for path in files:
        path.unlink()
    copied = statistics.median(answer["seconds"] for answer in answers[COPY])
    return [_row(name, size_mb, tool, answers[tool], copied) for tool in tools]


def _row(name: str, size_mb: float, tool: str, answers: Sequence[dict[str, Any]], copied: float) -> Row:
    good = [answer for answer in answers if "failure" not in answer]
    failure = next((str(answer["failure"]) for answer in answers if "failure" in answer), None)
    if not good:
        return Row(name, size_mb, tool, 0.0, None, 0.0, 0.0, 0.0, len(answers), 0, failure)
    seconds, process_s = (statistics.median(a[key] for a in good) for key in ("seconds", "process_s"))
    ratio = None if tool == COPY else seconds / copied
    peak = max(answer["peak_mb"] for answer in good)
    size_after_mb = good[0]["size_after"] / 1e6
    return Row(name, size_mb, tool, seconds, ratio, process_s, peak, size_after_mb, len(answers), len(good), failure)


def print_table(rows: Sequence[Row], cache: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=120)
    table = Table(title=f"Conversion from file to file, {cache} page cache", caption=NOTE)
    for heading in ("model", "tool"):
        table.add_column(heading)
    for heading in ("MB", "s", "to a copy", "process s", "peak MB", "MB after", "runs"):
        table.add_column(heading, justify="right")
    for row in rows:
        if row.tool == COPY:
            table.add_section()
        runs = f"{row.succeeded}/{row.runs}"
        if not row.succeeded:
            table.add_row(row.model, row.tool, f"{row.size_mb:.0f}", "failed", "", "", "", "", runs)
            continue
        ratio = "" if row.to_copy is None else f"{row.to_copy:.1f}"
        peak = f"{row.peak_mb:.0f}" if row.peak_mb else ""
        times = (f"{row.seconds:.2f}", ratio, f"{row.process_s:.2f}")
        table.add_row(row.model, row.tool, f"{row.size_mb:.0f}", *times, peak, f"{row.size_after_mb:.0f}", runs)
    console.print(table)
    for row in rows:
        if row.failure is not None:
            failed = row.runs - row.succeeded
            line = f"{row.model} {row.tool}: {failed} of {row.runs} runs failed: {row.failure}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--folder", type=Path, help="where the models go; a temporary folder by default")
    parser.add_argument("--cache", choices=("warm", "cold"), default="warm", help="is the input in the page cache?")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each tool on the single file")
    parser.add_argument("--repeats-large", type=int, default=1, help="runs of each tool on the model of 4.3 GB")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--json", type=Path, default=Path("out/weights.json"))
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return run_child(*sys.argv[2:])
    options = _parse()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="weights-", dir=options.folder) as folder:
        for name in options.models:
            rows += compare(options, Path(folder), name)
    from conformance import describe_environment

    environment = describe_environment("mezzo")
    print(f"{environment['cpu']}: {' '.join(environment['cpu_features'])}; Python {environment['python']}")
    print("; ".join(f"{name} {text}" for name, text in environment["versions"].items()))
    print_table(rows, options.cache)
    report = {"environment": environment, "cache": options.cache, "note": NOTE, "rows": [asdict(row) for row in rows]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row.failure for row in rows if row.tool.startswith("mezzo")) else 0


if __name__ == "__main__":
    sys.exit(main())
