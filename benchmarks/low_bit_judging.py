"""Runs files with low-bit weights in the low-bit benchmark: answers, sizes and times. No script.

A runtime is "onnxruntime" or "openvino", on the CPU as the file asks, or either with "-exact": activations are never
rounded to INT8 there (no `accuracy_level`, no dynamic quantization), which leaves the weights' error alone. OpenVINO
computes in FP32 in both, since its BF16 has nothing to do with a file's weights.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

RUNTIMES = ("onnxruntime", "onnxruntime-exact", "openvino", "openvino-exact")
_EXACT = "-exact"
_ROWS = 4  # of a call
_ROUNDS, _LEAST_ROUNDS, _TIMED_S = 60, 5, 20.0

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], np.ndarray]  # tokens by input name to the first output


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Errors of a file's answers on held-out text. `_se`: standard error over rows of text."""

    kl: float | None = None  # nats per token, FP32's next-token distribution to the file's
    kl_se: float | None = None
    agreement: float | None = None  # share of tokens whose likeliest next token is FP32's
    perplexity: float | None = None
    perplexity_se: float | None = None
    relative_l2: float | None = None  # of mean embeddings
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of a call, medians of interleaved rounds, and FP32's over the file's."""

    decode_ms: float  # one row of one token, without a past
    prefill_ms: float  # one row of 64 tokens
    decode_speedup: float
    prefill_speedup: float


def file_bytes(path: Path) -> int:
    """Bytes of a model's file and of the files with its weights."""
    beside = (path.with_suffix(".bin"), path.with_name(f"{path.name}.data"))
    return sum(part.stat().st_size for part in (path, *beside) if part.exists())


def load(path: Path, runtime: str, threads: int) -> Run:
    """Load a file in a runtime, with empty caches where it has inputs for them."""
    is_exact = runtime.endswith(_EXACT)
    if runtime.startswith("onnxruntime"):
        return _load_onnxruntime(path, is_exact, threads)
    return _load_openvino(path, is_exact, threads)


def _load_onnxruntime(path: Path, is_exact: bool, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    copy = path.with_name(f"exact-{path.name}")
    if is_exact:
        model = onnx.load(path, load_external_data=False)
        _drop_accuracy_levels(model)
        onnx.save(model, copy)  # where its external data lie
    session = onnxruntime.InferenceSession(str(copy if is_exact else path), options, ["CPUExecutionProvider"])
    if is_exact:
        copy.unlink()
    ports = {port.name: (port.shape, port.type) for port in session.get_inputs()}
    output = session.get_outputs()[0].name
    size = _head_size(path)
    return lambda feeds: np.asarray(session.run([output], _complete(ports, feeds, size))[0], np.float32)


def has_accuracy_levels(path: Path) -> bool:
    """Whether an ONNX file lets ONNX Runtime round activations."""
    graph = onnx.load(path, load_external_data=False).graph
    return any(entry.name == "accuracy_level" for node in graph.node for entry in node.attribute)


def _drop_accuracy_levels(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        kept = [entry for entry in node.attribute if entry.name != "accuracy_level"]
        if node.op_type == "MatMulNBits" and len(kept) < len(node.attribute):
            del node.attribute[:]
            node.attribute.extend(kept)


def _load_openvino(path: Path, is_exact: bool, threads: int) -> Run:
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
        **({"DYNAMIC_QUANTIZATION_GROUP_SIZE": 0} if is_exact else {}),
    }  # fmt: skip
    compiled = core.compile_model(core.read_model(str(path)), "CPU", settings)
    ports = {
        port.any_name: ([size.get_length() if size.is_static else None for size in port.partial_shape],
                        port.element_type.get_type_name())
        for port in compiled.inputs
    }  # fmt: skip
    size = _head_size(path)
    return lambda feeds: np.asarray(compiled(_complete(ports, feeds, size))[0], np.float32)


def _head_size(path: Path) -> int:
    """Numbers of a cached key, which onnxruntime-genai's files leave to the configuration beside them."""
    configuration = path.with_name("genai_config.json")
    if not configuration.exists():
        return 0
    return int(json.loads(configuration.read_text())["model"]["decoder"]["head_size"])


def _complete(ports: Mapping[str, tuple[Any, str]], feeds: Feeds, head_size: int) -> dict[str, np.ndarray]:
    """Feeds for all inputs: tokens, and for an exported generator a mask, positions and empty caches."""
    tokens = next(iter(feeds.values()))
    known = {
        "attention_mask": np.ones_like(tokens),
        "position_ids": np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape).copy(),
        **feeds,
    }
    complete = {}
    for name, (shape, kind) in ports.items():
        if name.startswith("past_key_values"):
            dtype = np.float16 if kind in ("tensor(float16)", "f16") else np.float32
            known[name] = np.zeros((len(tokens), shape[1], 0, head_size), dtype)
        complete[name] = known[name]
    return complete


def _calls(tokens: Feeds, rows: int = _ROWS) -> Iterator[tuple[slice, Feeds]]:
    count = len(next(iter(tokens.values())))
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        yield part, {name: array[part] for name, array in tokens.items()}


def save_reference(run: Run, tokens: Feeds, path: Path) -> None:
    """Write FP32's first output for all rows, so that every file is judged against the same answers."""
    np.save(path, np.concatenate([run(feeds) for _, feeds in _calls(tokens)]))


def judge_language(run: Run, tokens: Feeds, reference: np.ndarray) -> Answers:
    """KL to FP32, agreement and perplexity on held-out text."""
    divergences, agreements, losses = [], [], []
    for part, feeds in _calls(tokens):
        low, exact = _log_softmax(run(feeds)), _log_softmax(reference[part])
        divergences.append((np.exp(exact) * (exact - low)).sum(-1).mean(-1))
        agreements.append((low.argmax(-1) == exact.argmax(-1)).mean(-1))
        following = next(iter(feeds.values()))[:, 1:, None]
        losses.append(-np.take_along_axis(low[:, :-1], following, -1).mean((-1, -2)))
    kl, kl_se = _mean(np.concatenate(divergences))
    loss, loss_se = _mean(np.concatenate(losses))
    perplexity = math.exp(loss)
    return Answers(
        kl=kl, kl_se=kl_se, agreement=_mean(np.concatenate(agreements))[0], perplexity=perplexity,
        perplexity_se=perplexity * loss_se,
    )  # fmt: skip


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def judge_encoder(run: Run, tokens: Feeds, reference: np.ndarray) -> Answers:
    """Relative L2 and mean cosine of the rows' mean embeddings."""
    low = np.concatenate([run(feeds).mean(1) for _, feeds in _calls(tokens)]).astype(np.float64)
    exact = np.asarray(reference, np.float64).mean(1)
    cosine = (low * exact).sum(-1) / np.linalg.norm(low, axis=-1) / np.linalg.norm(exact, axis=-1)
    return Answers(relative_l2=float(np.linalg.norm(low - exact) / np.linalg.norm(exact)), cosine=float(cosine.mean()))


def time_pair(exact: Run, low: Run, tokens: Feeds) -> Times:
    """Time a file and FP32 in turns."""
    medians = []
    for length in (1, next(iter(tokens.values())).shape[1]):
        feeds = {name: np.ascontiguousarray(array[:1, :length]) for name, array in tokens.items()}
        medians.append(_interleaved(lambda feeds=feeds: exact(feeds), lambda feeds=feeds: low(feeds)))
    (decode_exact, decode), (prefill_exact, prefill) = medians
    return Times(decode * 1e3, prefill * 1e3, decode_exact / decode, prefill_exact / prefill)


def _interleaved(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    rounds: list[tuple[float, float]] = []
    one(), other()
    begin = time.perf_counter()
    while len(rounds) < _LEAST_ROUNDS or (len(rounds) < _ROUNDS and time.perf_counter() - begin < _TIMED_S):
        times = []
        for call in (one, other):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        rounds.append((times[0], times[1]))
    first, second = np.median(np.asarray(rounds), axis=0)
    return float(first), float(second)
