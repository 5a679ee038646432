"""The same networks with INT8 through both front ends: compiled by mezzo.torch.compile for torch-cpu, and exported to
ONNX and converted for onnxruntime-cpu. Scales are from the same data.

    pip install "mezzo[torch]" onnxscript onnxruntime
    python benchmarks/torch_int8_both.py

The table has the matmuls and convolutions that run in INT8 in each, why the others do not, and errors on another batch,
relative L2 to eager FP32.
"""

import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import int8_training as digits
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import mezzo
import mezzo.torch

PRODUCTS = frozenset({"addmm", "bmm", "convolution", "mm", "Conv", "Gemm", "MatMul"})
BATCHES, ROWS = 8, 4


def _perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 16))


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (_perceptron, (ROWS, 64)),
    "cnn": (lambda: digits.make_network("cnn"), (ROWS, 1, digits.SIZE, digits.SIZE)),
    "residual, norms": (lambda: digits.make_network("residual"), (ROWS, 1, digits.SIZE, digits.SIZE)),
    "vit": (lambda: digits.make_network("vit"), (ROWS, 1, digits.SIZE, digits.SIZE)),
}


def count(plan: mezzo.Plan) -> tuple[str, str]:
    """The products in INT8, of all, and why the others are not."""
    products = [node for node in plan.nodes if node.kind == "op" and node.op in PRODUCTS]
    others = Counter(node.rule for node in products if str(node.precision.compute) != "int8")
    reasons = ", ".join(f"{rule} {times}" for rule, times in others.items())
    return f"{len(products) - others.total()} of {len(products)}", reasons


def error(answer: torch.Tensor, right: torch.Tensor) -> str:
    return f"{float((answer - right).norm() / right.norm()):.2e}"


def compare(make: Callable[[], nn.Module], sizes: tuple[int, ...], folder: Path) -> tuple[str, ...]:
    import onnxruntime

    network, draw = make().eval(), torch.Generator().manual_seed(5)
    data = [torch.randn(sizes, generator=draw) for _ in range(BATCHES)]
    other = torch.randn(sizes, generator=draw)
    right = network(other)
    compiled = mezzo.torch.compile(network, to="int8", data=data)
    answer = compiled(other)
    (plan,) = compiled.plans
    torch.onnx.export(network, (other,), folder / "model.onnx", input_names=["x"], dynamo=True, verbose=False)
    converted = mezzo.convert(
        folder / "model.onnx", folder / "low.onnx", to="int8", target="onnxruntime-cpu",
        data=[{"x": batch.numpy()} for batch in data],
    )  # fmt: skip
    session = onnxruntime.InferenceSession(folder / "low.onnx")
    theirs = torch.from_numpy(session.run(None, {"x": other.numpy()})[0])
    return (*count(plan), error(answer, right), *count(converted.plan), error(theirs, right), error(answer, theirs))


def main() -> int:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    table = Table(box=None)
    for column in ("network", "torch", "others", "error", "ONNX", "others", "error", "apart"):
        table.add_column(column)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or NETWORKS:
            torch._dynamo.reset()
            table.add_row(name, *compare(*NETWORKS[name], Path(folder)))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
