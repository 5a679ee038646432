"""Random small networks in INT8: what a runtime answers, beside what mezzo's emulation and FP32 say.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_answers.py --runtime openvino --seeds 0 200
    python benchmarks/int8_answers.py --runtime onnxruntime --mode full --seeds 0 200 --json out/int8-answers.json

Convolutions, products, activations, residual sums, pools, concatenations and numbers per channel or column are put
behind each other by chance, in FP32 [n, 8, 6, 6]. Each network is converted for the runtime, and run there on data that
no scale saw. It is wrong where the error is above three times the emulated one and a hundredth: a kernel that lost a
scale is far off, rounding ties are not. Networks that the runtime cannot load, or answers wrongly in FP32, are told so.
Exit code 1 where one is wrong or refused.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import int8_runtimes as runtimes
import numpy as np
import onnx
from conformance import describe_environment
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import mezzo

_CHANNELS, _SIDE, _SAMPLES, _BATCHES = 8, 6, 8, 6
_TIMES, _BESIDE = 3.0, 0.01
_FP32_NOISE = 1e-3


class Network:
    """One network being drawn: every value is [n, 8, 6, 6], so any operator fits any."""

    def __init__(self, seed: int) -> None:
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.values = ["x"]

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        held = array if array.dtype == np.int64 else array.astype(np.float32)
        self.constants.append(numpy_helper.from_array(held, name))
        return name

    def normal(self, *shape: int, share: float = 1.0) -> str:
        return self.constant(share * self.numbers.standard_normal(shape))

    def positive(self, *shape: int) -> str:
        return self.constant(self.numbers.uniform(0.5, 1.5, shape))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{len(self.nodes)}", **attributes))
        return name

    def any(self) -> str:
        """A value, one of the last by preference."""
        return self.pick.choice(self.values[-3:] if self.pick.random() < 0.8 else self.values)

    def draw(self) -> onnx.ModelProto:
        steps = [step for step, weight in STEPS.items() for _ in range(weight)]
        self.values.append(convolution(self, "x"))
        for _ in range(self.pick.randint(4, 12)):
            self.values.append(self.pick.choice(steps)(self, self.any()))
        results = dict.fromkeys([self.values[-1], *(self.values[-2:-1] if self.pick.random() < 0.3 else [])])
        shape: list[str | int | None] = ["n", _CHANNELS, _SIDE, _SIDE]
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", *results)]
        graph = helper.make_graph(self.nodes, "network", ports[:1], ports[1:], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolution(n: Network, x: str) -> str:
    bias = [n.normal(_CHANNELS, share=0.5)] if n.pick.random() < 0.4 else []
    kind = n.pick.choice(["point", "square", "depthwise", "transposed"])
    if kind == "depthwise":
        return n.add("Conv", x, n.normal(8, 1, 3, 3, share=0.3), *bias, group=_CHANNELS, pads=[1, 1, 1, 1])
    if kind == "square":
        return n.add("Conv", x, n.normal(8, 8, 3, 3, share=0.12), *bias, pads=[1, 1, 1, 1])
    return n.add("ConvTranspose" if kind == "transposed" else "Conv", x, n.normal(8, 8, 1, 1, share=0.35), *bias)


def weighted(n: Network, x: str) -> str:
    return n.add("MatMul", x, n.normal(_SIDE, _SIDE, share=0.4))


def product(n: Network, x: str) -> str:
    made = n.add("MatMul", x, n.any())
    return n.add("Mul", made, n.constant(np.array(0.3))) if n.pick.random() < 0.5 else made


def per_channel(n: Network, x: str) -> str:
    shape = n.pick.choice([(8, 1, 1), (6,), (6, 1), (1, 8, 1, 1), ()])
    return n.add(n.pick.choice(["Mul", "Add", "Sub", "Div"]), x, n.positive(*shape))


def norm(n: Network, x: str) -> str:
    shifts = [n.normal(_CHANNELS, share=0.3) for _ in range(2)]
    return n.add("BatchNormalization", x, n.positive(_CHANNELS), *shifts, n.positive(_CHANNELS))


def squeeze(n: Network, x: str) -> str:
    narrow = n.add("Conv", n.add("GlobalAveragePool", x), n.normal(8, 8, 1, 1, share=0.3))
    return n.add("Mul", x, n.add("Sigmoid", narrow))


def concatenated(n: Network, x: str) -> str:
    parts = [x, *(n.any() for _ in range(n.pick.randint(1, 2)))]
    return n.add("Conv", n.add("Concat", *parts, axis=1), n.normal(8, 8 * len(parts), 1, 1, share=0.25))


def halved(n: Network, x: str) -> str:
    ends = [[n.constant(np.array([end], np.int64)) for end in (start, start + 4, 1)] for start in (0, 4)]
    first, last = (n.add("Slice", x, *end) for end in ends)
    return n.add("Concat", last, activation(n, first), axis=1)


def centred(n: Network, x: str) -> str:
    return n.add("Add", x, n.add("ReduceMean", x, axes=[n.pick.choice([1, 2, 3])], keepdims=1))


def turned(n: Network, x: str) -> str:
    return n.add("Transpose", x, perm=[0, 1, 3, 2])


def reshaped(n: Network, x: str) -> str:
    flat = n.add("Reshape", x, n.constant(np.array([0, 8, 36], np.int64)))
    return n.add("Reshape", flat, n.constant(np.array([0, 8, 6, 6], np.int64)))


def pool(n: Network, x: str) -> str:
    counts = n.pick.choice([{}, {"count_include_pad": 0}, {"count_include_pad": 1}])
    op, more = ("AveragePool", counts) if n.pick.random() < 0.6 else ("MaxPool", {})
    return n.add(op, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], **more)


def activation(n: Network, x: str) -> str:
    op = n.pick.choice(["Relu", "Clip", "HardSwish", "Sigmoid", "LeakyRelu", "Tanh", "Gelu", "Softmax", "Silu"])
    if op == "Clip":
        return n.add("Clip", x, n.constant(np.array(0.0)), n.constant(np.array(6.0)))
    if op == "Gelu":
        inner = n.add("Add", n.add("Erf", n.add("Div", x, n.constant(np.sqrt(np.array(2.0))))), n.constant(np.ones(())))
        return n.add("Mul", n.add("Mul", x, inner), n.constant(np.array(0.5)))
    return n.add("Mul", x, n.add("Sigmoid", x)) if op == "Silu" else n.add(op, x)


def summed(n: Network, x: str) -> str:
    return n.add(n.pick.choice(["Add", "Add", "Mul"]), x, n.any())


STEPS: dict[Callable[[Network, str], str], int] = {
    convolution: 7, weighted: 3, product: 2, activation: 5, summed: 5, per_channel: 4, norm: 2, squeeze: 1,
    concatenated: 3, halved: 1, centred: 1, turned: 1, reshaped: 1, pool: 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One network: what was found, and the largest error of its outputs, emulated and of the runtime."""

    seed: int
    found: str  # right, wrong, refused, or what is wrong without mezzo
    emulated: float = 0.0
    error: float = 0.0
    integer_nodes: tuple[str, ...] = ()
    said: str = ""


def judge(seed: int, runtime: str, mode: str, folder: Path) -> Case:
    """Draw a network, convert it, and run both files."""
    model, draw = Network(seed).draw(), np.random.default_rng(seed + 9999)
    shape = (_SAMPLES, _CHANNELS, _SIDE, _SIDE)
    data = [{"x": draw.standard_normal(shape).astype(np.float32)} for _ in range(_BATCHES + 1)]
    unseen, plain, quantized = data.pop(), folder / "plain.onnx", folder / "quantized.onnx"
    onnx.save(model, plain)
    exact = _answers("onnxruntime", plain, unseen)
    if not all(np.isfinite(answer).all() for answer in exact):
        return Case(seed=seed, found="not finite in FP32")
    made = mezzo.convert(
        plain, quantized, to="int8", target=f"{runtime}-cpu", data=data, quantize_mode=mode, overwrite=True
    )
    assert made.measured is not None and made.measured.comparison is not None, "there was data"
    emulated = max(output.relative_l2.estimate for output in made.measured.comparison.outputs)
    integer = tuple(
        node.name for node in made.plan.nodes if node.kind == "op" and str(node.precision.compute) == "int8"
    )
    try:
        if _largest(_answers(runtime, plain, unseen), exact) > _FP32_NOISE:
            return Case(seed=seed, found="answered wrong in FP32")
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        return Case(seed=seed, found="refused in FP32", said=str(error)[-300:])
    try:
        reached = _largest(_answers(runtime, quantized, unseen), exact)
    except Exception as refusal:  # noqa: BLE001  any of the runtime's own
        return Case(seed=seed, found="refused", integer_nodes=integer, said=str(refusal)[-300:])
    is_right = reached <= _TIMES * emulated + _BESIDE
    found = "right" if is_right else "wrong"
    return Case(seed=seed, found=found, emulated=emulated, error=reached, integer_nodes=integer)


def _answers(runtime: str, path: Path, feeds: runtimes.Feeds) -> list[np.ndarray]:
    return [np.asarray(answer) for answer in runtimes.load(runtime, path, _SAMPLES).answers(feeds)]


def _largest(answers: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest relative L2 of several outputs; infinite where one is not finite."""
    errors = [runtimes.errors(got, want)[0] for got, want in zip(answers, exact, strict=True)]
    return max(error if np.isfinite(error) else float("inf") for error in errors)


def _cases(given: argparse.Namespace) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(*given.seeds):
            yield judge(seed, given.runtime, given.mode, Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=runtimes.RUNTIMES, default="openvino")
    parser.add_argument("--mode", choices=("smart", "full"), default="smart")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FROM", "TO"))
    parser.add_argument("--json", type=Path, help="write every case here")
    given = parser.parse_args()
    console, environment, cases = Console(width=160), describe_environment("mezzo"), []
    console.print(f"CPU features: {' '.join(environment['cpu_features'])}")
    for case in _cases(given):
        cases.append(case)
        if case.found != "right":
            nodes = " ".join(case.integer_nodes)
            console.print(
                f"{case.seed}: {case.found}, emulated {case.emulated:.4f}, {case.error:.4f} {nodes} {case.said}"
            )
    counts = Counter(case.found for case in cases)
    console.print(f"{given.runtime}, {given.mode}: " + ", ".join(f"{count} {found}" for found, count in counts.items()))
    if given.json is not None:
        document = {"environment": environment, "mode": given.mode, "runtime": given.runtime}
        given.json.write_text(json.dumps(document | {"cases": [asdict(case) for case in cases]}, indent=1), "utf-8")
    return 1 if counts["wrong"] or counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
