"""Measures what measuring ranges costs: time against the plain FP32 run of the same batches, memory over many batches.

    python benchmarks/ranges.py
    python benchmarks/ranges.py --batches 40 --memory-batches 1000 --json out/ranges.json

The plain run is ONNX Runtime as it comes, all optimisations on, outputs only; both take the same threads. Loading is
timed on its own. Each runs in processes of its own, which take turns: in one process the idle threads of either session
spin and rob the other. "ratio" is of medians of elapsed time; "CPU ratio" of the least processor time on one thread,
which other work disturbs less.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import unittest.mock
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from mezzo.api.ranges import ranges
from mezzo.numerics.ranges.ranges import Accumulator
from mezzo.onnx.measure.instruments import OnnxInstruments
from mezzo.onnx.opening import open_model

CPU_FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16")
Feeds = dict[str, Any]


class Maker:
    """Builds a graph node by node."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 0.02) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"{op}_{len(self.nodes)}", **attributes))
        return name

    def model(self, given: onnx.ValueInfoProto, result: str) -> onnx.ModelProto:
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [given], [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def transformer(layers: int, width: int, heads: int = 4, words: int = 1000) -> onnx.ModelProto:
    """A transformer in small operators, as exporters write it: LayerNorm and GELU are decomposed."""
    m = Maker()
    one, two, half, eps = (m.constant(np.float32(number)) for number in (1, 2, 0.5, 1e-5))
    split, merge = m.constant(np.array([0, 0, heads, width // heads])), m.constant(np.array([0, 0, width]))

    def norm(x: str) -> str:
        centred = m.add("Sub", x, m.add("ReduceMean", x, axes=[-1]))
        variance = m.add("ReduceMean", m.add("Pow", centred, two), axes=[-1])
        scaled = m.add("Div", centred, m.add("Sqrt", m.add("Add", variance, eps)))
        return m.add("Add", m.add("Mul", scaled, m.weight(width, scale=1)), m.weight(width))

    def linear(x: str, wide: int, deep: int) -> str:
        return m.add("Add", m.add("MatMul", x, m.weight(wide, deep)), m.weight(deep))

    x = m.add("Gather", m.weight(words, width, scale=1), "ids")
    for _ in range(layers):
        h = norm(x)
        q, k, v = (
            m.add("Transpose", m.add("Reshape", linear(h, width, width), split), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = m.add("Div", m.add("MatMul", q, k), m.constant(np.float32(np.sqrt(width / heads))))
        mixed = m.add("MatMul", m.add("Softmax", scores, axis=-1), v)
        merged = m.add("Reshape", m.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = m.add("Add", x, linear(merged, width, width))
        h = linear(norm(x), width, 4 * width)
        gate = m.add("Add", m.add("Erf", m.add("Div", h, m.constant(np.float32(2**0.5)))), one)
        x = m.add("Add", x, linear(m.add("Mul", m.add("Mul", h, gate), half), 4 * width, width))
    given = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])
    return m.model(given, m.add("MatMul", norm(x), m.weight(width, words)))


def convolutional(blocks: int, channels: int) -> onnx.ModelProto:
    """A residual network with BatchNormalization."""
    m = Maker()

    def block(x: str) -> str:
        made = m.add("Conv", x, m.weight(channels, channels, 3, 3, scale=0.05), pads=[1] * 4)
        statistics = [m.weight(channels, scale=1) for _ in range(3)]
        return m.add("BatchNormalization", made, *statistics, m.constant(np.ones(channels, np.float32)))

    x = m.add("Conv", "x", m.weight(channels, 3, 3, 3, scale=0.05), pads=[1] * 4, strides=[2, 2])
    for _ in range(blocks):
        x = m.add("Relu", m.add("Add", x, block(m.add("Relu", block(x)))))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 64, 64])
    flat = m.add("Flatten", m.add("GlobalAveragePool", x))
    return m.model(given, m.add("Gemm", flat, m.weight(channels, 10)))


def cases() -> dict[str, tuple[onnx.ModelProto, Callable[[int], Feeds]]]:
    def words(batch: int, length: int) -> Callable[[int], Feeds]:
        return lambda n: {"ids": np.random.default_rng(n).integers(0, 1000, (batch, length))}

    def images(batch: int) -> Callable[[int], Feeds]:
        return lambda n: {"x": np.random.default_rng(n).standard_normal((batch, 3, 64, 64)).astype(np.float32)}

    return {
        "transformer 4 x 256, batch 8 x 64": (transformer(4, 256), words(8, 64)),
        "transformer 4 x 256, batch 1 x 64": (transformer(4, 256), words(1, 64)),
        "transformer 6 x 384, batch 4 x 128": (transformer(6, 384), words(4, 128)),
        "residual network, batch 8": (convolutional(6, 32), images(8)),
        "residual network, batch 32": (convolutional(6, 32), images(32)),
    }


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure_work(model: onnx.ModelProto, given: Feeds, rounds: int = 7) -> float:
    """Processor time of measuring against that of the plain run, each the least of some rounds, on one thread."""
    real = onnxruntime.SessionOptions

    def on_one_thread() -> onnxruntime.SessionOptions:
        options = real()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        return options

    def least(call: Callable[[], Any]) -> float:
        found = []
        for _ in range(rounds):
            start = time.process_time()
            call()
            found.append(time.process_time() - start)
        return min(found)

    with unittest.mock.patch.object(onnxruntime, "SessionOptions", on_one_thread):
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), onnxruntime.SessionOptions(), providers=["CPUExecutionProvider"]
        )
        instruments = OnnxInstruments(open_model(model), given)
        accumulator = Accumulator(instruments.size)
        measured = least(lambda: accumulator.add(instruments.run(given, 0, 256), 0))
        return measured / least(lambda: session.run(None, given))


def time_plainly(model: onnx.ModelProto, feeds: Callable[[int], Feeds], batches: int) -> dict[str, float]:
    """Median time of a plain run, after two that do not count."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    load, session = timed(
        lambda: onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    )
    times = [timed(partial(session.run, None, feeds(number)))[0] for number in range(batches + 2)]
    return {"plain_ms": statistics.median(times[2:]) * 1e3, "plain_load_ms": load * 1e3}


def time_measuring(model: onnx.ModelProto, feeds: Callable[[int], Feeds], batches: int) -> dict[str, float]:
    """Median time of a measuring run and of adding up what it showed, after two that do not count."""
    load, instruments = timed(lambda: OnnxInstruments(open_model(model), feeds(0)))
    accumulator = Accumulator(instruments.size)
    sample = 128
    run_s, add_s = [], []
    for number in range(batches + 2):
        seconds, gathered = timed(partial(instruments.run, feeds(number), number, sample))
        run_s.append(seconds)
        add_s.append(timed(partial(accumulator.add, gathered, number))[0])
        # As mezzo.api.ranges chooses it.
        wanted = min(int(gathered.counts.sum()) // 128, 1 << 20) // instruments.size
        sample = min(max(1 << wanted.bit_length() >> 1, 128), 1024)
    run, add = (statistics.median(times[2:]) * 1e3 for times in (run_s, add_s))
    return {
        "values": len(instruments.values), "measuring_ms": run, "adding_ms": add, "load_ms": load * 1e3,
        "samples_per_value": sample,
    }  # fmt: skip


_WAYS = {"plain": time_plainly, "measuring": time_measuring}


def measure_time(name: str, batches: int, turns: int = 3) -> dict[str, float]:
    """Time both ways in processes that take turns; the medians of their medians."""
    found: dict[str, list[float]] = {}
    for _ in range(turns):
        for way in _WAYS:
            command = [sys.executable, __file__, "--batches", str(batches), "--one", name, way]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            for key, number in json.loads(answer.stdout).items():
                found.setdefault(key, []).append(number)
    row = {key: statistics.median(numbers) for key, numbers in found.items()}
    return {**row, "ratio": (row["measuring_ms"] + row["adding_ms"]) / row["plain_ms"]}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure_memory(model: onnx.ModelProto, feeds: Callable[[int], Feeds], batches: int) -> dict[str, float]:
    """Resident memory as the batches go by."""
    at: dict[int, float] = {}

    def data() -> Iterator[Feeds]:
        for number in range(batches):
            if number in (10, batches // 10, batches // 2, batches - 1):
                at[number] = resident_mb()
            yield feeds(number)

    ranges(model, data)
    return {f"after_{number}_mb": size for number, size in at.items()}


def environment() -> dict[str, Any]:
    fields: dict[str, str] = {}
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    return {
        "cpu": fields.get("model name", platform.processor()), "cores": os.cpu_count(),
        "cpu_features": [name for name in CPU_FEATURES if name in flags], "python": platform.python_version(),
        "onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__,
    }  # fmt: skip


def main() -> int:
    """Print a table; write the same as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--memory-batches", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        name, way = arguments.one
        print(json.dumps(_WAYS[way](*cases()[name], arguments.batches)))
        return 0
    found = environment()
    versions = ", ".join(f"{name} {found[name]}" for name in ("onnxruntime", "onnx", "numpy", "python"))
    print(f"{found['cpu']}, {found['cores']} cores: {' '.join(found['cpu_features'])}; {versions}")
    rows: dict[str, dict[str, float]] = {}
    print(f"{'model':36} values  plain ms  measuring ms  adding ms  ratio  CPU ratio  load ms (plain)")
    for name, (model, feeds) in cases().items():
        row = rows[name] = measure_time(name, arguments.batches)
        row["cpu_ratio"] = measure_work(model, feeds(0))
        print(f"{name:36} {row['values']:6.0f} {row['plain_ms']:9.1f} {row['measuring_ms']:13.1f} "
              f"{row['adding_ms']:10.1f} {row['ratio']:6.2f} {row['cpu_ratio']:10.2f} "
              f"{row['load_ms']:8.0f} ({row['plain_load_ms']:.0f})", flush=True)  # fmt: skip
    memory = measure_memory(transformer(2, 64), lambda n: {"ids": np.full((1 + n % 4, 16), n % 1000)},
                            arguments.memory_batches)  # fmt: skip
    print("resident memory: " + ", ".join(f"{name} {size:.1f}" for name, size in memory.items()))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"environment": found, "time": rows, "memory": memory}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
