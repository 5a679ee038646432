"""Models loaded into OpenVINO and ONNX Runtime for the INT8 tables: answers, times, integer kernels. No script."""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx

THREADS = 2
REST_S = 0.02
_LEAST_ROUNDS = 3
_APART = frozenset({"Const", "Constant", "Input", "Output", "Result"})
_OPENVINO_PRODUCTS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
_ORT_INTEGER_PRODUCTS = frozenset(
    {"ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "QAttention"}
    | {"QGemm", "QLinearConv", "QLinearMatMul"}
)
_ORT_FLOAT_PRODUCTS = frozenset({"Conv", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "Attention"})
_INTEGERS = frozenset({"i8", "u8"})

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What a runtime's own graph says. Shares are of the time of one call, None where the runtime tells none.

    `operators`: kernels in integers by their operator, most first. `late_products`: products in floats that dequantize
    their weights at each call.
    """

    products: int
    integer_products: int
    low_products: int  # in integers or floats of 16 bits
    integer_kernels: int
    kernels: int
    operators: tuple[tuple[str, int], ...]
    shares: dict[str, float] | None
    late_products: int = 0


class Loaded(Protocol):
    """A model ready to run."""

    def answer(self, feeds: Feeds) -> np.ndarray: ...
    def answers(self, feeds: Feeds) -> list[np.ndarray]: ...
    def kernels(self, feeds: Feeds) -> Kernels: ...


class OpenVinoModel:
    """A model compiled for the CPU. A free batch axis is fixed to `batch` unless that is None."""

    def __init__(
        self, path: Path, batch: int | None = None, settings: Mapping[str, str] | None = None, threads: int = THREADS
    ) -> None:
        import openvino

        self._core = openvino.Core()
        self._model = self._core.read_model(str(path))
        if batch is not None:
            shapes = {port: port.get_partial_shape() for port in self._model.inputs}
            for shape in shapes.values():
                shape[0] = batch
            self._model.reshape(shapes)
        self._options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **(settings or {})}
        self._request = self._core.compile_model(self._model, "CPU", self._options).create_infer_request()

    def answer(self, feeds: Feeds) -> np.ndarray:
        """The first output."""
        return self.answers(feeds)[0]

    def answers(self, feeds: Feeds) -> list[np.ndarray]:
        """Every output."""
        self._request.infer(dict(feeds))
        return [np.array(tensor.data) for tensor in self._request.output_tensors]

    def kernels(self, feeds: Feeds) -> Kernels:
        """Layers of the runtime graph by precision, and their shares of the time of the last of five calls.

        The model is compiled once more for that, as counting costs time.
        """
        compiled = self._core.compile_model(self._model, "CPU", {**self._options, "PERF_COUNT": True})
        request = compiled.create_infer_request()
        for _ in range(5):
            request.infer(dict(feeds))
        times = {each.node_name: each.real_time.total_seconds() for each in request.profiling_info}
        layers = []
        for layer in compiled.get_runtime_model().get_ordered_ops():
            info = layer.get_rt_info()
            kind, precision = (str(info[key].astype(str)) for key in ("layerType", "runtimePrecision"))
            if kind not in _APART:
                layers.append((kind, precision.lower(), times.get(layer.get_friendly_name(), 0.0)))
        spent: Counter[str] = Counter()
        for _, precision, seconds in layers:
            spent["int8" if precision in _INTEGERS else precision] += seconds
        total = sum(spent.values())
        integers = Counter(kind for kind, precision, _ in layers if precision in _INTEGERS)
        return Kernels(
            products=sum(kind in _OPENVINO_PRODUCTS for kind, _, _ in layers),
            low_products=sum(kind in _OPENVINO_PRODUCTS and precision != "f32" for kind, precision, _ in layers),
            integer_products=sum(integers[kind] for kind in _OPENVINO_PRODUCTS),
            integer_kernels=sum(integers.values()),
            kernels=len(layers),
            operators=tuple(integers.most_common()),
            shares={name: seconds / total for name, seconds in spent.most_common()} if total else None,
        )


class OnnxRuntimeModel:
    """A model in a session on the CPU. A free batch axis is fixed to `batch` unless that is None."""

    def __init__(self, path: Path, batch: int | None = None, threads: int = THREADS) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        if batch is not None:
            for port in onnx.load(path, load_external_data=False).graph.input:
                axis = port.type.tensor_type.shape.dim[0]
                if axis.dim_param:
                    options.add_free_dimension_override_by_name(axis.dim_param, batch)
        with tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = f"{folder}/optimized.onnx"
            # The optimized graph names kernels only; weights past this size stay out of it.
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            graph = onnx.load(options.optimized_model_filepath, load_external_data=False).graph
        self._operators = Counter(node.op_type for node in graph.node)
        stored = {tensor.name for tensor in graph.initializer}
        late = {each.output[0] for each in graph.node if each.op_type == "DequantizeLinear" and each.input[0] in stored}
        self._late_products = sum(
            each.op_type in _ORT_FLOAT_PRODUCTS and not late.isdisjoint(each.input) for each in graph.node
        )

    def answer(self, feeds: Feeds) -> np.ndarray:
        """The first output."""
        return self.answers(feeds)[0]

    def answers(self, feeds: Feeds) -> list[np.ndarray]:
        """Every output."""
        found: list[np.ndarray] = self._session.run(None, dict(feeds))
        return found

    def kernels(self, feeds: Feeds) -> Kernels:
        """Nodes of the optimized graph that compute in integers. It tells no times."""
        operators = self._operators
        integers = Counter(
            {op: n for op, n in operators.items() if op in _ORT_INTEGER_PRODUCTS or op.startswith("QLinear")}
        )
        products = sum(integers[op] for op in _ORT_INTEGER_PRODUCTS)
        return Kernels(
            products=products + sum(operators[op] for op in _ORT_FLOAT_PRODUCTS),
            integer_products=products,
            low_products=products,
            integer_kernels=sum(integers.values()),
            kernels=sum(operators.values()),
            operators=tuple(integers.most_common()),
            shares=None,
            late_products=self._late_products,
        )


RUNTIMES: Mapping[str, Callable[..., Loaded]] = {"openvino": OpenVinoModel, "onnxruntime": OnnxRuntimeModel}


def load(
    runtime: str,
    path: Path,
    batch: int | None = None,
    settings: Mapping[str, str] | None = None,
    threads: int = THREADS,
) -> Loaded:
    """Load a file; settings are OpenVINO's."""
    if runtime == "openvino":
        return OpenVinoModel(path, batch, settings, threads)
    return RUNTIMES[runtime](path, batch, threads=threads)


def time_by_turns(
    models: Mapping[str, Loaded], feeds: Feeds, rounds: int, seconds: float = math.inf
) -> dict[str, list[float]]:
    """Milliseconds of each model's calls, taken by turns, each after a rest and a call that is not timed.

    After some seconds no turn begins, three aside.
    """
    times: dict[str, list[float]] = {name: [] for name in models}
    ends = time.monotonic() + seconds
    for turn in range(rounds):
        if turn >= _LEAST_ROUNDS and time.monotonic() > ends:
            break
        names = list(models)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            time.sleep(REST_S)
            models[name].answer(feeds)
            begin = time.perf_counter()
            models[name].answer(feeds)
            times[name].append((time.perf_counter() - begin) * 1e3)
    return times


def answers_of(model: Loaded, data: Feeds, size: int) -> np.ndarray:
    """The first output for every sample of some data, `size` samples a call."""
    count = len(next(iter(data.values())))
    parts = [
        model.answer({name: array[start : start + size] for name, array in data.items()})
        for start in range(0, count, size)
    ]
    return np.concatenate(parts)


def errors(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """Root mean square of the difference, over that of the whole answer and over that of what varies between samples.

    What varies is an answer less its mean over all axes but the last, so a constant that every sample shares counts
    for nothing.
    """
    want = want.astype(np.float64)
    difference = float(np.linalg.norm(got.astype(np.float64) - want))
    varying = want - want.mean(axis=tuple(range(want.ndim - 1)), keepdims=True)
    return difference / float(np.linalg.norm(want)), difference / float(np.linalg.norm(varying))


def quality(logits: np.ndarray, labels: np.ndarray) -> tuple[str, float]:
    """Top-1 of images; bits per byte of text, whose labels have an axis of time."""
    if labels.ndim == 1:
        return "top-1", float((logits.argmax(axis=-1) == labels).mean())
    scores = logits.astype(np.float64)
    top = scores.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    losses = np.log(np.exp(scores - top).sum(axis=-1)) + top[..., 0] - chosen
    return "bits/byte", float(losses.mean() / np.log(2))


def in_words(operators: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in operators)
