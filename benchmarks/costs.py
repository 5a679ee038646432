"""How well measured costs predict times, and whether plans from them are as fast as they promise.

Three models made here (an MLP, a transformer block, a convolutional net), each on the targets whose runtime is
installed. For each: FP32 as it is, mezzo's default plan for the target, and the plan of least measured cost; all are
timed in turns in one process. What the measured costs predict and what was timed are both set against FP32, each
against that of its own process: how fast a shared machine is changes from one minute to the next.

    python benchmarks/costs.py --targets openvino-cpu onnxruntime-cpu --threads 1 --json out/costs.json
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.contracts.options.request import Request
from mezzo.contracts.profiles import Effort
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.judged_model import judge_model
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.opening import open_model
from mezzo.onnx.profile.jobs import time_models
from mezzo.planner.options import read_options
from mezzo.tuning import measured_costs as measuring
from mezzo.tuning.costs import predict_ns

TO = {"openvino-cpu": "bf16", "onnxruntime-cpu": "fp16"}
PLANS = ("fp32", "table", "measured")


class Builder:
    """Nodes and weights of a model in the making; every method returns the name of what it adds."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(fan_in)))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def norm(self, x: str, width: int) -> str:
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        return self.add("LayerNormalization", x, self.constant(ones), self.constant(zeros), axis=-1)

    def linear(self, x: str, rows: int, columns: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def finish(self, output: str, shape: Sequence[int | str], result: Sequence[int | str]) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        made = [helper.make_tensor_value_info(output, TensorProto.FLOAT, result)]
        graph = helper.make_graph(self.nodes, "bench", ports, made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def mlp() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Eight layers of 1024 x 1024 with Relu and a Softmax at the end; batch 64."""
    b, x = Builder(1), "x"
    for _ in range(8):
        x = b.add("Relu", b.linear(x, 1024, 1024))
    return b.finish(b.add("Softmax", x, axis=-1), ["N", 1024], ["N", 1024]), (64, 1024)


def transformer() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Two blocks of width 384 with 6 heads over 128 positions, with Erf's Gelu; batch 2."""
    b, x, width, heads = Builder(2), "x", 384, 6
    split = b.constant(np.array([0, 0, heads, width // heads], np.int64))
    merge = b.constant(np.array([0, 0, width], np.int64))
    scale, root = b.constant(np.float32((width / heads) ** -0.5)), b.constant(np.float32(2**0.5))
    half, one = b.constant(np.float32(0.5)), b.constant(np.float32(1))
    for _ in range(2):
        n = b.norm(x, width)
        q, k, v = (b.add("Reshape", b.linear(n, width, width), split) for _ in range(3))
        q, v = (b.add("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
        scores = b.add("Mul", b.add("MatMul", q, b.add("Transpose", k, perm=[0, 2, 3, 1])), scale)
        mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
        mixed = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), merge)
        x = b.add("Add", x, b.linear(mixed, width, width))
        h = b.linear(b.norm(x, width), width, 4 * width)
        gate = b.add("Mul", b.add("Add", b.add("Erf", b.add("Div", h, root)), one), half)
        x = b.add("Add", x, b.linear(b.add("Mul", h, gate), 4 * width, width))
    return b.finish(b.norm(x, width), ["N", 128, width], ["N", 128, width]), (2, 128, width)


def convnet() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Six 3 x 3 convolutions with residuals on 56 x 56, pooled to 10 classes; batch 1."""
    b, x, width = Builder(3), "x", 64
    x = b.add("Relu", b.add("Conv", x, b.weight(width, 3, 3, 3), pads=[1, 1, 1, 1]))
    for _ in range(3):
        y = b.add("Relu", b.add("Conv", x, b.weight(width, width, 3, 3), pads=[1, 1, 1, 1]))
        y = b.add("Conv", y, b.weight(width, width, 3, 3), pads=[1, 1, 1, 1])
        x = b.add("Relu", b.add("Add", x, y))
    pooled = b.add("Flatten", b.add("GlobalAveragePool", x))
    return b.finish(b.add("Softmax", b.linear(pooled, width, 10), axis=-1), ["N", 3, 56, 56], ["N", 10]), (1, 3, 56, 56)


def small() -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """An MLP so small that casts cost more than anything gains: the plan has to be FP32."""
    b, x = Builder(4), "x"
    for _ in range(2):
        x = b.add("Relu", b.linear(x, 16, 16))
    return b.finish(x, ["N", 16], ["N", 16]), (1, 16)


MODELS: dict[str, Callable[[], tuple[onnx.ModelProto, tuple[int, ...]]]] = {
    "mlp": mlp, "transformer": transformer, "convnet": convnet, "small": small,
}  # fmt: skip


def judge_one(model: OnnxModel, shape: tuple[int, ...], target: str, effort: Effort) -> dict[str, Any]:
    """Plan one model three ways for one target; predict and time each plan."""
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    options = read_options(Request(to=TO[target], target=target))
    measured = measuring.measure(model, options, feeds, effort)
    judged = judge_model(model, options)[1]
    problem = replace(judged.problem, measured=measured.costs)
    judged = replace(judged, problem=problem)
    lows = {
        "fp32": [False] * len(problem.graph.nodes),
        "table": options.planning.strategy.assign(replace(problem, measured=None)),
        "measured": options.planning.strategy.assign(problem),
    }
    protos = [
        model.materialize(measuring.typed_model(model, judged, lows["fp32"])),
        model.materialize(convert_model(model, options, None)[1]),
        model.materialize(measuring.typed_model(model, judged, lows["measured"])),
    ]
    times = time_models(protos, options.planning.target, feeds, effort, profile=False)
    predicted = {name: predict_ns(problem, low, measured.high_ns) / measured.high_ns for name, low in lows.items()}
    result: dict[str, Any] = {"source": measured.table.source, "mapped_share": measured.mapped_share,
                              "notes": measured.notes}  # fmt: skip
    for name, timed in zip(PLANS, times, strict=True):
        ratios = sorted(low_ns / high_ns for low_ns, high_ns in zip(timed.rounds_ns, times[0].rounds_ns, strict=True))
        count = sum(low for node, low in zip(problem.graph.nodes, lows[name], strict=True) if node.kind.value == "op")
        result[name] = {
            "low_nodes": count,
            "measured_ms": median(timed.rounds_ns) / 1e6,
            "predicted_ratio": predicted[name],
            "measured_ratio": median(ratios),
            "ratio_middle_half": (ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=list(TO), choices=list(TO))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--runs", type=int, default=80)
    parser.add_argument("--threads", type=int, help="threads for the runtime; by default its own choice")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    effort = Effort(runs=given.runs, threads=given.threads)
    results: dict[str, dict[str, Any]] = {}
    for target in given.targets:
        for name in given.models:
            proto, shape = MODELS[name]()
            found = judge_one(open_model(proto), shape, target, effort)
            results[f"{name} on {target}"] = found
            print(f"{name} on {target}: {found['source']}; {found['mapped_share']:.1%} mapped")
            for note in found["notes"]:
                print(f"  note: {note}")
            print("  plan      low  measured ms  over fp32: predicted  measured  middle half")
            for plan in PLANS:
                row = found[plan]
                low, high = row["ratio_middle_half"]
                print(f"  {plan:8} {row['low_nodes']:4} {row['measured_ms']:12.3f} {row['predicted_ratio']:20.3f}"
                      f" {row['measured_ratio']:9.3f}  {low:.3f}-{high:.3f}", flush=True)  # fmt: skip
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
