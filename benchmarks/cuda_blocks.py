"""Weights in blocks on ONNX Runtime's CUDA provider: which forms load, where they run, how exact and how fast they are.

    pip install onnxruntime-gpu[cuda,cudnn]
    python benchmarks/cuda_blocks.py --json out/cuda-blocks.json
    python benchmarks/cuda_blocks.py --provider CPUExecutionProvider --scale 8   # does the script work?

Checks: one operator per model (MatMulNBits, GatherBlockQuantized, and a DequantizeLinear with `block_size` before
MatMul or Gather), its kernels from the runtime's profile, its operators from the optimized graph, and its relative L2
error against FP64 on the decoded weight, beside that of a MatMul on the decoded weight in the same float type. Times:
a chain of matmuls whose weights together are larger than the GPU's cache, inputs and outputs on the GPU, without TF32;
microseconds per matmul, median of `--rounds` calls, as the runtime launches them and replayed as one CUDA graph.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from gpu import find_gpu
from onnx import TensorProto, helper

ROWS = (1, 16, 64, 512)
_CHECKED_ROWS = (1, 5, 16, 64)
_CHAIN_BYTES = 512 << 20  # of the chain's weights in FP32
_MOST_LAYERS = 32
_WARM = 8
_TABLE_ROWS = 4000
_PLAIN_BLOCK = 32  # at which the error of a plain MatMul is measured too
_NO_GRAPH = "-1"
_FLOATS: dict[str, tuple[Any, int]] = {
    "fp32": (np.float32, TensorProto.FLOAT),
    "fp16": (np.float16, TensorProto.FLOAT16),
    "bf16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A weight's storage and its reader. `form`: "plain", "fused", "standard". `op`: "MatMul" or "Gather"."""

    form: str
    op: str = "MatMul"
    bits: int = 0
    block: int = 0
    has_zeros: bool = False
    floats: str = "fp16"
    level: int = 0
    has_bias: bool = False
    k: int
    n: int

    @property
    def name(self) -> str:
        words = [self.form, self.op, self.floats, f"{self.k}x{self.n}"]
        if self.bits:
            words += [f"{self.bits} bits", f"blocks of {self.block}", "zero points" if self.has_zeros else "symmetric"]
        words += [f"level {self.level}"] * bool(self.level) + ["bias"] * self.has_bias
        return ", ".join(words)


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen of a case. Errors by rows; times in microseconds per matmul, by rows; `failure`: what it raised."""

    case: Case
    operators: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    errors: dict[int, float] = field(default_factory=dict)
    plain_errors: dict[int, float] = field(default_factory=dict)
    launched_us: dict[int, float] = field(default_factory=dict)
    replayed_us: dict[int, float] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Integers [N, blocks, block], scales and zero points [N, blocks] of a weight [N, K]."""

    integers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray
    k: int

    def decoded(self) -> np.ndarray:
        """The weight [N, K] that the integers stand for, in FP64."""
        steps = self.integers.astype(np.float64) - self.zeros[..., None]
        wide = steps * self.scales.astype(np.float64)[..., None]
        return wide.reshape(len(wide), -1)[:, : self.k]


def store(case: Case, seed: int) -> Stored:
    """A random weight of K x N in blocks along K (for a table of N rows, along each row of K), rounded to nearest."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((case.n, case.k), np.float32) / np.float32(np.sqrt(case.k))
    blocks = -(-case.k // case.block)
    padded = np.zeros((case.n, blocks * case.block), np.float32)
    padded[:, : case.k] = weight
    padded = padded.reshape(case.n, blocks, case.block)
    most = (1 << case.bits) - 1
    middle = 1 << (case.bits - 1)
    if case.has_zeros:
        low, high = np.minimum(padded.min(-1), 0), np.maximum(padded.max(-1), 0)
        scales = (high - low) / most
    else:
        low, scales = None, np.abs(padded).max(-1) / max(middle - 1, 1)
    dtype = _FLOATS[case.floats][0]
    scales = np.where(scales == 0, 1, scales).astype(dtype)
    wide = scales.astype(np.float32)
    zeros = np.full(scales.shape, middle) if low is None else np.clip(np.rint(-low / wide), 0, most)
    integers = np.clip(np.rint(padded / wide[..., None]) + zeros[..., None].astype(np.float32), 0, most).astype(
        np.uint8
    )
    return Stored(integers=integers, scales=scales, zeros=zeros.astype(np.uint8), k=case.k)


def pack(integers: np.ndarray, bits: int) -> np.ndarray:
    """Integers of the last axis in bytes, the first of them in the low bits; a last byte may be filled with zeros."""
    each = 8 // bits
    missing = -integers.shape[-1] % each
    padded = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    groups = padded.reshape(*integers.shape[:-1], -1, each)
    packed = np.zeros(groups.shape[:-1], np.uint8)
    for place in range(each):
        packed |= groups[..., place] << (bits * place)
    return packed


def _tensor(name: str, dtype: int, dims: Sequence[int], array: np.ndarray) -> onnx.TensorProto:
    return helper.make_tensor(name, dtype, dims, np.ascontiguousarray(array).tobytes(), raw=True)


def _standard(case: Case, stored: Stored) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Integers, scales and zero points as DequantizeLinear reads them, and the integers' type."""
    integers = stored.integers.reshape(case.n, -1)[:, : case.k]
    scales, zeros = stored.scales, stored.zeros
    if case.op == "MatMul":
        integers, scales, zeros = integers.T, scales.T, zeros.T
    signed = not case.has_zeros
    if signed:  # in two's complement
        integers = (integers - (1 << (case.bits - 1))) & ((1 << case.bits) - 1)
    types = {4: (TensorProto.UINT4, TensorProto.INT4), 8: (TensorProto.UINT8, TensorProto.INT8)}
    return integers, scales, zeros, types[case.bits][signed]


def layer(case: Case, stored: Stored, data: str, result: str, at: int) -> tuple[list[Any], list[Any]]:
    """Nodes and initializers of one reader of one weight."""
    dtype, proto = _FLOATS[case.floats]
    weight, scale, zero, bias = (f"{word}{at}" for word in ("weight", "scale", "zero", "bias"))
    nodes: list[Any] = []
    tensors: list[Any] = []
    if case.form == "fused":
        is_table = case.op == "Gather"
        packed = pack(stored.integers, case.bits)
        zeros = pack(stored.zeros, case.bits)
        blocks = stored.scales.shape[1]
        if is_table:
            packed = pack(stored.integers.reshape(case.n, -1)[:, : case.k], case.bits)
        tensors.append(_tensor(weight, TensorProto.UINT8, packed.shape, packed))
        tensors.append(_tensor(scale, proto, (case.n, blocks), stored.scales))
        inputs = [weight, data, scale] if is_table else [data, weight, scale]
        if case.has_zeros:
            tensors.append(_tensor(zero, TensorProto.UINT8, zeros.shape, zeros))
            inputs.append(zero)
        if case.has_bias:
            tensors.append(_tensor(bias, proto, (case.n,), np.ones(case.n, dtype)))
            inputs += [*[""] * (5 - len(inputs)), bias]
        attributes: dict[str, int] = {"bits": case.bits, "block_size": case.block}
        if is_table:
            attributes |= {"gather_axis": 0, "quantize_axis": 1}
        else:
            attributes |= {"K": case.k, "N": case.n, "accuracy_level": case.level}
        op = "GatherBlockQuantized" if is_table else "MatMulNBits"
        nodes.append(helper.make_node(op, inputs, [result], domain="com.microsoft", **attributes))
        return nodes, tensors
    if case.form == "plain":
        decoded = stored.decoded() if case.op == "Gather" else stored.decoded().T
        tensors.append(_tensor(weight, proto, decoded.shape, decoded.astype(dtype)))
        operand = weight
    else:
        integers, scales, zeros, kind = _standard(case, stored)
        flat = integers.reshape(-1)
        tensors.append(_tensor(weight, kind, integers.shape, pack(flat, case.bits)))
        tensors.append(_tensor(scale, proto, scales.shape, scales))
        inputs = [weight, scale]
        if case.has_zeros:
            tensors.append(_tensor(zero, kind, zeros.shape, pack(np.ascontiguousarray(zeros).reshape(-1), case.bits)))
            inputs.append(zero)
        operand = f"decoded{at}"
        axis = 1 if case.op == "Gather" else 0
        nodes.append(helper.make_node("DequantizeLinear", inputs, [operand], axis=axis, block_size=case.block))
    operands = [operand, data] if case.op == "Gather" else [data, operand]
    nodes.append(helper.make_node(case.op, operands, [result]))
    return nodes, tensors


def model(nodes: list[Any], tensors: list[Any], case: Case, last: str, width: int) -> bytes:
    """A model of these nodes, whose input is "x"."""
    proto = _FLOATS[case.floats][1]
    if case.op == "Gather":
        given = helper.make_tensor_value_info("x", TensorProto.INT64, ["rows"])
    else:
        given = helper.make_tensor_value_info("x", proto, ["rows", case.k])
    result = helper.make_tensor_value_info(last, proto, ["rows", width])
    graph = helper.make_graph(nodes, "g", [given], [result], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class Runner:
    """Sessions on one provider."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.is_gpu = provider == "CUDAExecutionProvider"

    def session(self, content: bytes, options: Any, *, is_replayed: bool = False) -> Any:
        options.log_severity_level = 4
        asked: Any = self.provider
        if self.is_gpu:
            asked = (self.provider, {"use_tf32": "0", "enable_cuda_graph": "1" if is_replayed else "0"})
        session = onnxruntime.InferenceSession(content, options, providers=[asked])
        if self.provider not in session.get_providers():
            raise RuntimeError(f"ONNX Runtime has no {self.provider} here")
        return session


def _as_fp32_io(content: bytes, case: Case) -> bytes:
    """The model with casts at its interface: NumPy has no BF16 that the runtime takes."""
    typed = onnx.load_from_string(content)
    graph = typed.graph
    proto = _FLOATS[case.floats][1]
    if case.op != "Gather":
        graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
        for node in graph.node:
            node.input[:] = ["x_low" if name == "x" else name for name in node.input]
        graph.node.insert(0, helper.make_node("Cast", ["x"], ["x_low"], to=proto))
    last = graph.output[0].name
    for node in graph.node:
        node.output[:] = ["y_low" if name == last else name for name in node.output]
    graph.node.append(helper.make_node("Cast", ["y_low"], [last], to=TensorProto.FLOAT))
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    return typed.SerializeToString()


def check(runner: Runner, case: Case) -> Row:
    """Load one reader of one weight, and see where it runs and how exact it is."""
    row = Row(case=case)
    stored = store(case, 1)
    rng = np.random.default_rng(2)
    dtype = _FLOATS[case.floats][0]
    is_table = case.op == "Gather"
    width = case.k if is_table else case.n
    decoded = stored.decoded()
    if is_table:
        data = rng.integers(0, case.n, max(_CHECKED_ROWS))
        exact = decoded[data]
    else:
        data = rng.standard_normal((max(_CHECKED_ROWS), case.k)).astype(dtype).astype(np.float32)
        exact = data.astype(np.float64) @ decoded.T + float(case.has_bias)
    nodes, tensors = layer(case, stored, "x", "y", 0)
    content = _as_fp32_io(model(nodes, tensors, case, "y", width), case)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(Path(folder, "optimized.onnx"))
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        session = runner.session(content, options)
        row.errors = _errors(session, data, exact)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        ran = [event["args"] for event in events if event.get("args", {}).get("provider")]
        row.kernels = sorted({f"{about['op_name']} on {about['provider']}" for about in ran})
        optimized = onnx.load(Path(folder, "optimized.onnx"), load_external_data=False)
        row.operators = [node.op_type for node in optimized.graph.node]
    if case.block == _PLAIN_BLOCK and not is_table:
        plain = Case(form="plain", floats=case.floats, k=case.k, n=case.n)
        nodes, tensors = layer(plain, stored, "x", "y", 0)
        content = _as_fp32_io(model(nodes, tensors, plain, "y", width), plain)
        session = runner.session(content, onnxruntime.SessionOptions())
        row.plain_errors = _errors(session, data, exact - float(case.has_bias))
    return row


def _errors(session: Any, data: np.ndarray, exact: np.ndarray) -> dict[int, float]:
    """Relative L2 errors by count of rows, as kernels differ by it."""
    errors = {}
    for rows in _CHECKED_ROWS:
        answer = np.asarray(session.run(None, {"x": data[:rows]})[0], np.float64)
        errors[rows] = float(np.linalg.norm(answer - exact[:rows]) / np.linalg.norm(exact[:rows]))
    return errors


def chain(case: Case, layers: int) -> bytes:
    """Matmuls one after another, each with a weight of its own; where K is not N, of K x N and N x K in turn."""
    turned = Case(**{**asdict(case), "k": case.n, "n": case.k})
    shapes = (case, turned) if case.k != case.n else (case,)
    stored = [store(one, 3 + place) for place, one in enumerate(shapes)]
    nodes: list[Any] = []
    tensors: list[Any] = []
    for at in range(layers):
        one, weight = shapes[at % len(shapes)], stored[at % len(shapes)]
        made, held = layer(one, weight, f"h{at}" if at else "x", f"h{at + 1}", at)
        nodes += made
        tensors += held
    nodes.append(helper.make_node("Identity", [f"h{layers}"], ["y"]))
    return model(nodes, tensors, case, "y", shapes[(layers - 1) % len(shapes)].n)


def time_case(runner: Runner, case: Case, rounds: int) -> Row:
    """Time a chain of matmuls at each count of rows."""
    row = Row(case=case)
    layers = min(_MOST_LAYERS, max(2, _CHAIN_BYTES // (4 * case.k * case.n)))
    layers -= layers % 2 if case.k != case.n else 0
    content = chain(case, layers)
    try:
        session = runner.session(content, onnxruntime.SessionOptions(), is_replayed=runner.is_gpu)
        for times in (row.launched_us, row.replayed_us) if runner.is_gpu else (row.launched_us,):
            for rows in ROWS:
                graph = str(rows) if times is row.replayed_us else _NO_GRAPH
                times[rows] = _time(runner, session, case, rows, rounds, graph) / layers
    except Exception as error:  # noqa: BLE001  what does not become a CUDA graph may run without
        row.failure = " ".join(str(error).split())[:300]
        row.launched_us, row.replayed_us = {}, {}
        session = runner.session(content, onnxruntime.SessionOptions())
        for rows in ROWS:
            row.launched_us[rows] = _time(runner, session, case, rows, rounds, _NO_GRAPH) / layers
    return row


def _time(runner: Runner, session: Any, case: Case, rows: int, rounds: int, graph: str) -> float:
    """Median time of a call in microseconds. `graph`: number under which it is captured and replayed."""
    width = session.get_outputs()[0].shape[1]
    dtype, proto = _FLOATS[case.floats]
    rng = np.random.default_rng(rows)
    data = rng.standard_normal((rows, case.k)).astype(np.float32).astype(dtype)
    values: list[Any] = [data, np.zeros((rows, width), dtype)]
    if runner.is_gpu:
        import torch

        kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[case.floats]
        values = [torch.from_numpy(array.astype(np.float32)).to("cuda", kind) for array in values]
        torch.cuda.synchronize()
    binding = session.io_binding()
    for value, bind, name in zip(values, (binding.bind_input, binding.bind_output), ("x", "y"), strict=True):
        pointer = value.data_ptr() if runner.is_gpu else value.ctypes.data
        bind(name, "cuda" if runner.is_gpu else "cpu", 0, proto, list(value.shape), pointer)
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", graph)
    taken = []
    for at in range(_WARM + rounds):
        begin = time.perf_counter()
        session.run_with_iobinding(binding, options)
        binding.synchronize_outputs()
        if at >= _WARM:
            taken.append(time.perf_counter() - begin)
    if runner.is_gpu and not (bool(values[1].float().isfinite().all()) and bool(values[1].float().abs().max() > 0)):
        raise ArithmeticError("the chain's result is zero or not finite")
    return statistics.median(taken) * 1e6


def checked(scale: int) -> Iterator[Case]:
    """What is loaded and compared."""
    k, n = 1024 // scale, 1024 // scale
    fused = [
        Case(form="fused", bits=bits, block=block, has_zeros=zeros, floats=floats, k=k, n=n)
        for floats in _FLOATS
        for bits in (4, 8, 2)
        for block in ((32, 16, 64, 128, 256) if bits > 2 else (32, 128))
        for zeros in (True, False)
    ]
    yield from fused
    for floats in _FLOATS:
        for bits in (4, 8):
            given = {"bits": bits, "block": 32, "has_zeros": True, "floats": floats}
            yield Case(form="fused", **given, level=4, k=k, n=n)
            yield Case(form="fused", **given, has_bias=True, k=k, n=n)
            yield Case(form="fused", **{**given, "block": 128}, k=576, n=1536 // scale)
            yield Case(form="fused", **given, k=1000 // scale, n=300)
            yield Case(form="fused", **given, k=64, n=33)
            for zeros in (True, False):
                yield Case(form="standard", **{**given, "has_zeros": zeros}, k=k, n=n)
                yield Case(form="standard", **{**given, "has_zeros": zeros, "block": 128}, k=k, n=n)
            for form in ("fused", "standard"):
                for block in (32, 16, 64, 128, 256):
                    for zeros in (True, False) if block == 32 else (True,):
                        table = {"bits": bits, "block": block, "has_zeros": zeros, "floats": floats}
                        yield Case(form=form, op="Gather", **table, k=576, n=_TABLE_ROWS // scale)


def timed(scale: int) -> Iterator[Case]:
    """What is timed, the most telling first."""
    sizes = [(2048, 2048), (4096, 4096), (576, 1536)]
    for k, n in sizes:
        for floats in _FLOATS:
            size = {"k": k // scale, "n": n // scale, "floats": floats}
            # A plain weight is decoded from eight bits.
            yield Case(form="plain", bits=8, block=32, **size)
            for bits in (4, 8):
                yield Case(form="fused", bits=bits, block=32, has_zeros=True, **size)
    for k, n in sizes[:2]:
        for floats in _FLOATS:
            size = {"k": k // scale, "n": n // scale, "floats": floats}
            for bits in (4, 8):
                yield Case(form="fused", bits=bits, block=128, has_zeros=True, **size)
                if k == 2048 or bits == 4:
                    yield Case(form="standard", bits=bits, block=32, has_zeros=True, **size)
                if k == 2048 and floats != "bf16":
                    yield Case(form="fused", bits=bits, block=32, **size)
                    yield Case(form="fused", bits=bits, block=32, has_zeros=True, level=4, **size)
                    yield Case(form="fused", bits=bits, block=64, has_zeros=True, **size)
        yield Case(form="fused", bits=2, block=32, has_zeros=True, floats="fp16", k=k // scale, n=n // scale)


def _show(row: Row) -> str:
    parts = [row.case.name]
    if row.errors:
        parts.append(f"{' '.join(row.operators)} | {'; '.join(row.kernels)}")
        parts.append("error " + " ".join(f"{rows}: {error:.1e}" for rows, error in row.errors.items()))
        parts.append("plain " + " ".join(f"{error:.1e}" for error in row.plain_errors.values()))
    for word, times in (("launched", row.launched_us), ("replayed", row.replayed_us)):
        if times:
            parts.append(word + " us " + " ".join(f"{value:.2f}" for value in times.values()))
    return " | ".join([*parts, *([f"FAILED {row.failure[:160]}"] if row.failure else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", default="CUDAExecutionProvider")
    parser.add_argument("--rounds", type=int, default=40, help="timed calls")
    parser.add_argument("--scale", type=int, default=1, help="divides every size")
    parser.add_argument("--seconds", type=float, default=600, help="stop after this long")
    parser.add_argument("--match", default="*", help="a glob on names of what is timed")
    parser.add_argument("--only", choices=("check", "time"), help="half of it")
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    if options.provider == "CUDAExecutionProvider":
        import torch  # brings CUDA's libraries; its tensors lie on the GPU

        print(f"{find_gpu()}; ONNX Runtime {onnxruntime.__version__}; torch {torch.__version__}", flush=True)
        onnxruntime.preload_dlls()
    onnxruntime.set_default_logger_severity(4)
    runner = Runner(options.provider)
    rows: list[Row] = []

    def record(row: Row) -> None:
        rows.append(row)
        print(_show(row), flush=True)

    def save() -> None:
        if options.json is not None:
            document = {
                "gpu": find_gpu(),
                "onnxruntime": onnxruntime.__version__,
                "rows": [asdict(row) for row in rows],
            }
            options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")

    if options.only != "time":
        for case in checked(options.scale):
            if time.monotonic() > end:
                break
            try:
                record(check(runner, case))
            except Exception as error:  # noqa: BLE001  likewise
                record(Row(case=case, failure=" ".join(str(error).split())[:300]))
        save()
    if options.only != "check":
        for case in (case for case in timed(options.scale) if fnmatchcase(case.name, options.match)):
            if time.monotonic() > end:
                print("out of time", file=sys.stderr)
                break
            try:
                record(time_case(runner, case, options.rounds))
            except Exception as error:  # noqa: BLE001  likewise
                record(Row(case=case, failure=" ".join(str(error).split())[:300]))
            save()
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
