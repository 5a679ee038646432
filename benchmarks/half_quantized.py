"""How many integer kernels a quantized model keeps when its float rest is converted, by the runtimes' own graphs.

    pip install onnx onnxruntime openvino nncf
    python benchmarks/half_quantized.py --cache out/architectures

Four exports that `architectures.py` left (a BERT, a ViT, a ResNet, a MobileNetV2) are quantized by ONNX Runtime
(static QDQ, U8S8 per channel; with quantizers on outputs, with quantizers on linear operators only and float outputs;
dynamic) and by NNCF, converted by mezzo, and loaded. Kernels of OpenVINO: layers of its runtime graph that compute in
i8 or u8, apart from those that move or convert; of ONNX Runtime: nodes of its optimized graph that compute in integers.
A cell reads "all/products". No time is taken.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.console import Console
from rich.table import Table

import mezzo

MODELS = ("bert-script13", "vit-export23", "beit-script16", "resnet-export18", "mobilenet-v2-export18")
_INTEGER_PRODUCTS = frozenset(
    {"ConvInteger", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "QAttention"}
    | {"QGemm", "QLinearConv", "QLinearMatMul"}
)
_PRODUCTS = frozenset({"Convolution", "FullyConnected", "MatMul"})
_MOVING = frozenset({"Input", "Output", "Const", "Constant", "Reorder", "Convert", "Transpose", "Reshape", "Result"})

Feeds = Mapping[str, np.ndarray]


class _Feeds(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    """A few samples like the stored one."""

    def __init__(self, samples: list[Feeds]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Feeds | None:
        return next(self._left, None)


@dataclass(frozen=True, slots=True)
class Quantizer:
    """How a file is quantized: reads one path, writes the other."""

    name: str
    quantize: Callable[[Path, Path, list[Feeds]], None]


def _static(path: Path, to: Path, samples: list[Feeds], **options: object) -> None:
    quantize_static(
        str(path),
        str(to),
        _Feeds(samples),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        **options,
    )


def _on_outputs(path: Path, to: Path, samples: list[Feeds]) -> None:
    _static(path, to, samples)


def _float_outputs(path: Path, to: Path, samples: list[Feeds]) -> None:
    linear = ["Conv", "Gemm", "MatMul"]
    extra = {"OpTypesToExcludeOutputQuantization": linear}
    _static(path, to, samples, op_types_to_quantize=linear, extra_options=extra)


def _dynamic(path: Path, to: Path, samples: list[Feeds]) -> None:
    quantize_dynamic(str(path), str(to), weight_type=QuantType.QInt8)


def _nncf(path: Path, to: Path, samples: list[Feeds]) -> None:
    import nncf

    nncf.set_log_level(logging.ERROR)
    kind = nncf.ModelType.TRANSFORMER if {"bert", "vit"} & set(path.stem.split("-")) else None
    quantized = nncf.quantize(onnx.load(path), nncf.Dataset(samples), model_type=kind, subset_size=len(samples))
    onnx.save(quantized, to)


QUANTIZERS = (
    Quantizer("ORT static", _on_outputs),
    Quantizer("ORT static, float outputs", _float_outputs),
    Quantizer("ORT dynamic", _dynamic),
    Quantizer("NNCF", _nncf),
)


def samples_of(path: Path) -> list[Feeds]:
    """The stored example, and what is like it: floats with noise of their own size."""
    rng = np.random.default_rng(3)
    with np.load(path.with_suffix(".npz")) as stored:
        names = {port.name for port in onnx.load(path).graph.input}
        feeds = {name: stored[f"in:{name}"] for name in names if f"in:{name}" in stored.files}

    def vary(array: np.ndarray) -> np.ndarray:
        is_float = array.dtype == np.float32
        return (array + rng.standard_normal(array.shape) * array.std()).astype(np.float32) if is_float else array

    return [feeds, *({name: vary(array) for name, array in feeds.items()} for _ in range(3))]


def integer_kernels_of_openvino(path: Path) -> tuple[int, int]:
    """Layers of the runtime graph that compute in integers of 8 bits, and those of them that multiply."""
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"})
    layers = [layer.get_rt_info() for layer in compiled.get_runtime_model().get_ordered_ops()]
    kinds = [
        str(info["layerType"].astype(str))
        for info in layers
        if str(info["runtimePrecision"].astype(str)) in ("i8", "u8")
    ]
    return sum(kind not in _MOVING for kind in kinds), sum(kind in _PRODUCTS for kind in kinds)


def integer_kernels_of_onnxruntime(path: Path) -> tuple[int, int]:
    """Nodes of the optimized graph that compute in integers, and those of them that multiply."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = f"{folder}/optimized.onnx"
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        ops = Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)
    products = sum(count for op, count in ops.items() if op in _INTEGER_PRODUCTS)
    rest = sum(count for op, count in ops.items() if op.startswith("QLinear") and op not in _INTEGER_PRODUCTS)
    return products + rest, products


_COUNTS: Mapping[str, Callable[[Path], tuple[int, int]]] = {
    "OpenVINO": integer_kernels_of_openvino,
    "ONNX Runtime": integer_kernels_of_onnxruntime,
}


def count(read: Callable[[Path], tuple[int, int]], path: Path) -> str:
    """All integer kernels and those that multiply, or a dash where the runtime refuses the file."""
    try:
        return "/".join(map(str, read(path)))
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        print(f"{path.name}: refused: {str(error)[:150]}", file=sys.stderr)
        return "-"


def rows(cache: Path, folder: Path, models: list[str]) -> Iterator[tuple[str, ...]]:
    """Model, quantizer, then for each runtime the kernels of the quantized file, in BF16, in FP16."""
    for name in models:
        samples = samples_of(cache / f"{name}.onnx")
        plain, prepared = folder / f"{name}.onnx", folder / f"{name}-prepared.onnx"
        model = onnx.load(cache / f"{name}.onnx")
        onnx.save(model, plain)
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        for quantizer in QUANTIZERS:
            path = folder / f"{name}-{quantizer.name.replace(' ', '-').replace(',', '')}.onnx"
            quantizer.quantize(plain if quantizer.name == "NNCF" else prepared, path, samples)
            files = [path]
            for to in ("bf16", "fp16"):
                files.append(path.with_name(f"{path.stem}-{to}.onnx"))
                onnx.save(mezzo.convert(path, to=to).model, files[-1])
            yield (name, quantizer.name, *(count(read, file) for read in _COUNTS.values() for file in files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--keep", type=Path, help="a folder for the files, to look at")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table = Table("model", "quantizer", *(f"{r} {s}" for r in _COUNTS for s in ("INT8", "bf16", "fp16")))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for row in rows(options.cache, folder, options.models):
            table.add_row(*row)
            print(" | ".join(row), file=sys.stderr, flush=True)
    console = Console(width=140)
    console.print(table)


if __name__ == "__main__":
    main()
