"""The same networks from two exporters, with fixed and open shapes: what becomes of them in INT8 on ONNX Runtime.

    python benchmarks/exporters.py --export out/exporters      # with a Python that has torch, torchvision, transformers
    python benchmarks/exporters.py --models out/exporters --json out/exporters.json
    python benchmarks/exporters.py --models out/exporters --fuse none --no-check     # as it was before

Files are called NETWORK.EXPORTER.SHAPES.onnx, `ts` is TorchScript at opset 17, `dynamo` torch.onnx.export(dynamo=True)
at its own, weights are random. Five of eight drawn samples calibrate. Columns: nodes as they came; the share of
products and convolutions that the plan runs in INT8; kernels on integers, and operators that dequantize weights at
each run, in the graph that ONNX Runtime makes of the file; the relative error of one answer; the file's bytes over
FP32's; the speed over FP32's, median of the ratios of rounds in turns, two threads.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

_HEAVY = frozenset({"Conv", "Gemm", "MatMul"})
_ON_INTEGERS = ("QLinear", "QGemm", "MatMulInteger", "ConvInteger", "DynamicQuantize")
_SAMPLES = 8
_ROUNDS = 12


@dataclass(frozen=True, kw_only=True)
class Row:
    """One file."""

    name: str
    nodes: int
    share_low: float
    kernels: Mapping[str, int]
    error: float
    size_ratio: float
    speed: float


def networks(torch: Any) -> Iterator[tuple[str, Any, tuple[Any, ...], list[str], dict[int, str]]]:
    """Name, module, one sample, names of its inputs and of their open axes."""
    import torchvision
    import transformers

    def tokens(length: int) -> Any:
        return torch.randint(0, 30000, (1, length))

    image, text = torch.randn(1, 3, 224, 224), {0: "batch", 1: "sequence"}
    yield "mobilenet", torchvision.models.mobilenet_v2(), (image,), ["image"], {0: "batch"}
    yield "resnet", torchvision.models.resnet50(), (image,), ["image"], {0: "batch"}
    bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=6, attn_implementation="eager"))
    mask = torch.ones(1, 128, dtype=torch.long)
    yield "bert", bert, (tokens(128), mask), ["input_ids", "attention_mask"], text
    padded = transformers.MobileNetV2Model(transformers.MobileNetV2Config())  # pads as TensorFlow does
    yield "mobilenetpad", padded, (image,), ["image"], {0: "batch"}
    vit = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=6, attn_implementation="eager"))
    yield "vit", vit, (image,), ["image"], {0: "batch"}
    config = transformers.GPT2Config(n_layer=4, attn_implementation="eager", use_cache=False)
    yield "gpt2", transformers.GPT2LMHeadModel(config), (tokens(64),), ["input_ids"], text


def export(folder: Path) -> None:
    """Write each network as each exporter writes it; what one cannot write is told."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, module, sample, names, axes in networks(torch):
        wrapped = _wrapped(torch, module, len(sample)).eval()
        np.savez(folder / f"{name}.npz", **{n: _drawn(torch, n, s) for n, s in zip(names, sample, strict=True)})
        for shapes in ("fixed", "open"):
            is_open = shapes == "open"
            old = {"dynamic_axes": dict.fromkeys((*names, "out"), axes)} if is_open else {}
            new = (
                {"dynamic_shapes": tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for _ in names)}
                if is_open
                else {}
            )
            pair = tuple(torch.cat([s, s]) for s in sample) if is_open else sample  # one sample would be specialised
            ways = (
                ("ts", sample, {"dynamo": False, "opset_version": 17} | old),
                ("dynamo", pair, {"dynamo": True, "external_data": False} | new),
            )
            for exporter, args, how in ways:
                path = folder / f"{name}.{exporter}.{shapes}.onnx"
                try:
                    torch.onnx.export(wrapped.eval(), args, path, input_names=names, output_names=["out"], **how)
                except Exception as error:  # noqa: BLE001  exporters raise what they like
                    print(f"{path.name}: {type(error).__name__}")


def _wrapped(torch: Any, module: Any, inputs: int) -> Any:
    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

    def first(answer: Any) -> Any:
        return answer if isinstance(answer, torch.Tensor) else answer[-1 if "pooler_output" in answer else 0]

    class One(Wrapped):
        def forward(self, a: Any) -> Any:
            return first(self.module(a))

    class Two(Wrapped):
        def forward(self, a: Any, b: Any) -> Any:
            return first(self.module(input_ids=a, attention_mask=b))

    return (One if inputs == 1 else Two)()


def _drawn(torch: Any, name: str, sample: Any) -> Any:
    shape = (_SAMPLES, *sample.shape[1:])
    if name == "input_ids":
        return torch.randint(0, 30000, shape).numpy()
    return (torch.ones(shape, dtype=torch.long) if name == "attention_mask" else torch.randn(shape)).numpy()


def measure(path: Path, fuse: str, *, is_checked: bool) -> Row:
    """Convert one file and look at what ONNX Runtime makes of it."""
    import onnx

    import mezzo

    data = dict(np.load(path.parent / f"{path.name.split('.')[0]}.npz").items())
    samples = [{name: array[at : at + 1] for name, array in data.items()} for at in range(5)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "int8.onnx"
        result = mezzo.convert(
            path, out, to="int8", target="onnxruntime-cpu", data=samples, correct="none", fuse=fuse, check=is_checked
        )
        levels = [str(node.precision.compute) for node in result.plan.nodes if node.op in _HEAVY]
        nodes = len(onnx.load(path, load_external_data=False).graph.node)
        error, speed = _beside(path, out, {name: array[-1:] for name, array in data.items()})
        return Row(
            name=path.stem,
            nodes=nodes,
            share_low=levels.count("int8") / max(len(levels), 1),
            kernels=_kernels(out, Path(folder) / "optimized.onnx"),
            error=error,
            size_ratio=out.stat().st_size / path.stat().st_size,
            speed=speed,
        )


def _session(path: Path, optimized: Path | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 4
    if optimized is not None:
        options.optimized_model_filepath = str(optimized)
        options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _kernels(path: Path, optimized: Path) -> Mapping[str, int]:
    """Kernels on integers, and floats that read weights which are dequantized at each run."""
    import onnx

    _session(path, optimized)
    graph = onnx.load(optimized, load_external_data=False).graph
    held = {tensor.name for tensor in graph.initializer}
    late = {n.output[0] for n in graph.node if n.op_type == "DequantizeLinear" and n.input[0] in held}
    counts = Counter(node.op_type for node in graph.node if node.op_type.startswith(_ON_INTEGERS))
    counts["dequantized at each run"] = sum(
        1 for node in graph.node if node.op_type in _HEAVY and not late.isdisjoint(node.input)
    )
    counts["Pad"] = sum(1 for node in graph.node if node.op_type == "Pad")
    return {name: count for name, count in sorted(counts.items()) if count}


def _beside(first: Path, second: Path, feeds: Mapping[str, Any]) -> tuple[float, float]:
    """The error of the second file's answer, and how many times as fast it is."""
    sessions = [_session(path) for path in (first, second)]
    fed = {port.name: feeds[port.name] for port in sessions[0].get_inputs()}
    wanted, found = (session.run(None, fed)[0] for session in sessions)
    ratios = []
    for _ in range(_ROUNDS):
        times = []
        for session in sessions:
            session.run(None, fed)
            start = time.perf_counter()
            session.run(None, fed)
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)), statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path, metavar="FOLDER")
    parser.add_argument("--models", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--fuse", default="standard")
    parser.add_argument("--no-check", action="store_true", help="leave the written file unchecked in ONNX Runtime")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.export is not None:
        export(asked.export)
    if asked.models is None:
        return
    from conformance import describe_environment

    paths = [path for path in sorted(asked.models.glob("*.onnx")) if not asked.only or path.stem in asked.only]
    rows = []
    print("| network | nodes | low | kernels | error | size | speed |")
    print("|---|---|---|---|---|---|---|")
    for path in paths:
        row = measure(path, asked.fuse, is_checked=not asked.no_check)
        rows.append(row)
        kernels = ", ".join(f"{count} {name}" for name, count in row.kernels.items())
        print(
            f"| {row.name} | {row.nodes} | {row.share_low:.0%} | {kernels} | {row.error:.4f} | {row.size_ratio:.0%} "
            f"| {row.speed:.2f} |",
            flush=True,
        )
    if asked.json is not None:
        document = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
        asked.json.write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
