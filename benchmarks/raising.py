"""Operators written out: is one operator in their place faster, and how many of them does each exporter's file have?

    python benchmarks/raising.py                                          # openvino too, if it is installed
    python benchmarks/architectures.py --cache out/architectures          # needs torch and transformers
    python benchmarks/raising.py --cache out/architectures

The first times attention, rotary embedding and group norm, written out as torch exports them and as one operator, on
the runtimes that are installed: one thread, by turns, the fastest run of each. "softmax in FP32" is written out with
casts around the softmax, as plans have it. The second counts what is raised, whatever the target, at opset 23.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.raising.search import raised_in
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_FORMATS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_HEADS, _CHANNELS = 8, 64
_SECONDS = 1.5  # of one model on one runtime

Run = Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class Row:
    """The fastest run of one model on one runtime, and its error against the first of its case."""

    case: str
    way: str
    format: str
    runtime: str
    time_ms: float
    error: float


def build(
    nodes: list[onnx.NodeProto], inputs: Mapping[str, list[int]], constants: Mapping[str, np.ndarray], kind: int
) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, kind, dims) for name, dims in inputs.items()]
    floats = helper.tensor_dtype_to_np_dtype(kind)
    tensors = [
        numpy_helper.from_array(array.astype(floats) if array.dtype == np.float32 else array, name)
        for name, array in constants.items()
    ]
    output = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(nodes, "g", ports, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def attention(way: str, kind: int, rows: int, *, masked: bool) -> onnx.ModelProto:
    inputs = {name: [1, _HEADS, rows, _CHANNELS] for name in "qkv"} | ({"m": [1, 1, rows, rows]} if masked else {})
    mask, scale = (["m"] if masked else []), _CHANNELS**-0.5
    if way == "one operator":
        return build([helper.make_node("Attention", [*"qkv", *mask], ["y"], scale=scale)], inputs, {}, kind)
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["a"]),
        helper.make_node("Mul", ["a", "s"], ["b"]),
    ]
    if masked:
        nodes.append(helper.make_node("Add", ["b", "m"], ["c"]))
    scores = "c" if masked else "b"
    if way == "softmax in FP32":
        nodes += [
            helper.make_node("Cast", [scores], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Softmax", ["wide"], ["weights"], axis=-1),
            helper.make_node("Cast", ["weights"], ["p"], to=kind),
        ]
    else:
        nodes.append(helper.make_node("Softmax", [scores], ["p"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["p", "v"], ["y"]))
    return build(nodes, inputs, {"s": np.float32(scale).reshape(())}, kind)


def rotary(way: str, kind: int, rows: int) -> onnx.ModelProto:
    angles = np.outer(np.arange(rows), 10_000 ** (-np.arange(0, 1, 2 / _CHANNELS))).astype(np.float32)
    inputs = {"x": [1, _HEADS, rows, _CHANNELS]}
    if way == "one operator":
        tables = {"c": np.cos(angles)[None], "s": np.sin(angles)[None]}
        return build([helper.make_node("RotaryEmbedding", ["x", "c", "s"], ["y"])], inputs, tables, kind)
    whole = np.concatenate([angles, angles], -1)[None, None]
    sizes = {"zero": 0, "half": _CHANNELS // 2, "end": _CHANNELS, "last": -1}
    constants = {"c": np.cos(whole), "s": np.sin(whole)} | {name: np.array([n]) for name, n in sizes.items()}
    nodes = [
        helper.make_node("Slice", ["x", "zero", "half", "last"], ["a"]),
        helper.make_node("Slice", ["x", "half", "end", "last"], ["b"]),
        helper.make_node("Neg", ["b"], ["n"]),
        helper.make_node("Concat", ["n", "a"], ["r"], axis=-1),
        helper.make_node("Mul", ["x", "c"], ["p"]),
        helper.make_node("Mul", ["r", "s"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["y"]),
    ]
    return build(nodes, inputs, constants, kind)


def group_norm(way: str, kind: int, side: int) -> onnx.ModelProto:
    groups, channels = 8, 64
    shape = [1, channels, side, side]
    scale, shift = np.random.default_rng(0).standard_normal((2, channels)).astype(np.float32)
    if way == "one operator":
        node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=groups)
        return build([node], {"x": shape}, {"s": scale, "b": shift}, kind)
    constants = {"one": np.ones(groups, np.float32), "nought": np.zeros(groups, np.float32)}
    constants |= {"s": scale.reshape(1, -1, 1, 1), "b": shift.reshape(1, -1, 1, 1)}
    constants |= {"grouped": np.array([0, groups, -1]), "whole": np.array(shape)}
    nodes = [
        helper.make_node("Reshape", ["x", "grouped"], ["g"]),
        helper.make_node("InstanceNormalization", ["g", "one", "nought"], ["i"]),
        helper.make_node("Reshape", ["i", "whole"], ["u"]),
        helper.make_node("Mul", ["u", "s"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    return build(nodes, {"x": shape}, constants, kind)


_WAYS = ("written out", "one operator")
_ATTENTION_WAYS = ("written out", "softmax in FP32", "one operator")
_CASES: dict[str, tuple[Callable[[str, int], onnx.ModelProto], tuple[str, ...]]] = {
    **{
        f"attention, {rows} rows{', mask' if masked else ''}": (
            partial(attention, rows=rows, masked=masked),
            _ATTENTION_WAYS,
        )
        for rows in (64, 256, 512)
        for masked in (False, True)
    },
    **{f"rotary, {rows} rows": (partial(rotary, rows=rows), _WAYS) for rows in (64, 512)},
    **{f"group norm, {side} x {side}": (partial(group_norm, side=side), _WAYS) for side in (16, 64)},
}


def run_in_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)[0]


def run_in_openvino(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Run:
    import openvino

    core = openvino.Core()
    hints = {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_NUM_THREADS": 1}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", hints)
    request = compiled.create_infer_request()
    tensors = {
        port.any_name: openvino.Tensor(port.element_type, feeds[port.any_name].shape) for port in compiled.inputs
    }
    for name, tensor in tensors.items():
        tensor.data[:] = feeds[name].view(tensor.data.dtype)
    dtype = next(iter(feeds.values())).dtype

    def run() -> np.ndarray:
        request.infer(tensors)
        result = request.get_output_tensor(0).data
        return result.view(dtype) if result.dtype.itemsize == dtype.itemsize else result

    return run


# With the formats that they have kernels for.
_RUNTIMES = {
    "onnxruntime": (run_in_onnxruntime, ("fp32", "fp16")),
    "openvino": (run_in_openvino, ("fp32", "fp16", "bf16")),
}


def measure(case: str, runtime: str, to: str, reference: np.ndarray | None) -> tuple[list[Row], np.ndarray | None]:
    """All ways of a case on one runtime, timed by turns, and the answer of the first."""
    make, ways = _CASES[case]
    rows, runs, kind = list[Row](), dict[str, Run](), _FORMATS[to]
    for way in ways:
        if way == "softmax in FP32" and to == "fp32":
            continue
        model = make(way, kind)
        numbers, floats = np.random.default_rng(1), helper.tensor_dtype_to_np_dtype(kind)
        shapes = {port.name: [dim.dim_value for dim in port.type.tensor_type.shape.dim] for port in model.graph.input}
        feeds = {name: numbers.standard_normal(shape).astype(floats) for name, shape in shapes.items()}
        try:
            runs[way] = _RUNTIMES[runtime][0](model, feeds)
        except ModuleNotFoundError:
            return [], reference
    best, end = dict.fromkeys(runs, np.inf), time.monotonic() + _SECONDS * len(runs)
    while time.monotonic() < end:
        for way, run in runs.items():
            begin = time.perf_counter()
            run()
            best[way] = min(best[way], time.perf_counter() - begin)
    for way, run in runs.items():
        answer = np.asarray(run()).astype(np.float64)
        reference = answer if reference is None else reference
        error = float(np.linalg.norm(answer - reference) / np.linalg.norm(reference))
        rows.append(Row(case, way, to, runtime, best[way] * 1e3, error))
    return rows, reference


def time_all(cases: list[str]) -> list[Row]:
    rows = list[Row]()
    for case in cases:
        reference: np.ndarray | None = None
        for to in _FORMATS:
            for runtime in (name for name, (_, formats) in _RUNTIMES.items() if to in formats):
                found, reference = measure(case, runtime, to, reference)
                rows += found
    return rows


def count(cache: Path) -> dict[str, Counter[str]]:
    """Operators raised in the exports of a folder, whatever the target, by exporter."""
    counts: dict[str, Counter[str]] = {"script": Counter(), "export": Counter()}
    for path in sorted(cache.glob("*.onnx")):
        opened = open_model(path)
        reading = opened.read(DType.FLOAT16, 23)
        view = FusionView(reading.graph, rows_of(reading.graph))

        def read(value: int, opened: Any = opened, reading: Any = reading) -> Any:
            return next((array for _, array in opened.weights(reading, [value])), None)

        found = raised_in(view, lambda op, since, attributes: True, (), read)
        exporter = counts["script" if "-script" in path.stem else "export"]
        exporter.update(each.op for each in found)
        exporter["models"] += 1
        exporter["softmaxes"] += sum(node.op == "Softmax" for node in reading.graph.nodes)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, help="count in the exported architectures, and time nothing")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of cases; all if left out")
    parser.add_argument("--json", type=Path, default=Path("out/raising.json"))
    given = parser.parse_args()
    console = Console(width=140)
    report: dict[str, object] = {"environment": describe_environment("mezzo")}
    if given.cache is not None:
        counts = count(given.cache)
        table = Table(title="raised")
        names = sorted({name for exporter in counts.values() for name in exporter})
        for name in ("exporter", *names):
            table.add_column(name)
        for exporter, found in counts.items():
            table.add_row(exporter, *(str(found[name]) for name in names))
        report["counts"] = counts
    else:
        rows = time_all([case for case in _CASES if not given.only or any(part in case for part in given.only)])
        table = Table("case", "format", "runtime", "way", "ms", "error", title="one thread, fastest run")
        for row in rows:
            table.add_row(row.case, row.format, row.runtime, row.way, f"{row.time_ms:.3f}", f"{row.error:.1e}")
        report["rows"] = [asdict(row) for row in rows]
    console.print(table)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
