"""The same networks with INT8 through both front ends: compiled by mezzo.torch.compile for torch-cpu, and exported to
ONNX and converted for onnxruntime-cpu. Scales are from the same data.

    pip install "mezzo[torch]" onnxscript onnxruntime transformers
    python benchmarks/torch_int8_both.py
    python benchmarks/torch_int8_both.py bert vit --to int8,bf16          # plans alone, for torch-cpu and openvino-cpu

The table has the matmuls and convolutions that run in INT8 in each, and errors on another batch, relative L2 to eager
FP32. Below it stand the products of a module whose precisions differ, with both reasons; the exporter keeps the path of
the module of each node. A product that only one graph has, as PyTorch's attention is one operator, is not compared.
"""

import argparse
import ast
import logging
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import int8_training as digits
import onnx
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import mezzo
import mezzo.torch
from mezzo.contracts.plans import PlannedNode

PRODUCTS = frozenset({"addmm", "bmm", "convolution", "conv2d", "linear", "mm", "Conv", "Gemm", "MatMul"})
SCOPES = "pkg.torch.onnx.name_scopes"
BATCHES, ROWS, TOKENS, VOCABULARY = 8, 4, 32, 500
Products = Mapping[str, list[PlannedNode]]  # by the path of their module


class Bert(nn.Module):
    """A small one of transformers."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        config = transformers.BertConfig(
            vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512
        )
        self.inner = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.inner(x, attention_mask=torch.ones_like(x)).last_hidden_state
        return answer


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 16))


def _rows(draw: torch.Generator) -> torch.Tensor:
    return torch.randn(ROWS, 64, generator=draw)


def _image(draw: torch.Generator) -> torch.Tensor:
    return torch.randn(ROWS, 1, digits.SIZE, digits.SIZE, generator=draw)


def _tokens(draw: torch.Generator) -> torch.Tensor:
    return torch.randint(VOCABULARY, (ROWS, TOKENS), generator=draw)


NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[torch.Generator], torch.Tensor]]] = {
    "perceptron": (_perceptron, _rows),
    "cnn": (lambda: digits.make_network("cnn"), _image),
    "residual": (lambda: digits.make_network("residual"), _image),
    "vit": (lambda: digits.make_network("vit"), _image),
    "bert": (Bert, _tokens),
}


@dataclass(frozen=True, slots=True)
class Both:
    """One network through both front ends: the products of each, and what stands in its row."""

    torch: Products
    onnx: Products
    errors: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return _count(self.torch), _count(self.onnx), *self.errors

    @property
    def differences(self) -> list[str]:
        """The products of modules that both have, and that are not of the same precision in both."""
        shared = [path for path in self.torch if len(self.torch[path]) == len(self.onnx.get(path, ()))]
        pairs = [pair for path in shared for pair in zip(self.torch[path], self.onnx[path], strict=True)]
        return [
            f"{ours.name}: PyTorch {_spell(ours)}\n    ONNX {theirs.name}: {_spell(theirs)}"
            for ours, theirs in pairs
            if ours.precision.compute is not theirs.precision.compute
        ]


def _count(products: Products) -> str:
    nodes = [node for of_module in products.values() for node in of_module]
    return f"{sum(str(node.precision.compute) == 'int8' for node in nodes)} of {len(nodes)}"


def _spell(node: PlannedNode) -> str:
    return f"{node.precision.compute} ({node.rule}: {node.because})"


def products_of(plan: mezzo.Plan, paths: Mapping[str, str] | None = None) -> Products:
    """The matmuls and convolutions. `paths`: of modules, by node; without them a name has the path itself."""
    by_path = defaultdict(list)
    for node in plan.nodes:
        if node.kind == "op" and node.op in PRODUCTS:
            path = node.name.rpartition("/")[0] if paths is None else paths.get(node.name, "")
            by_path[path].append(node)
    return by_path


def paths_of(file: Path) -> Mapping[str, str]:
    """The path of the module of each node, which the exporter has kept: scopes are the model, modules, the operator."""
    scopes = {
        node.name: ast.literal_eval(prop.value)
        for node in onnx.load(file, load_external_data=False).graph.node
        for prop in node.metadata_props
        if prop.key == SCOPES
    }
    return {name: inner[-2] if len(inner) > 1 else "" for name, inner in scopes.items()}


def error(answer: torch.Tensor, right: torch.Tensor) -> str:
    return f"{float((answer - right).norm() / right.norm()):.2e}"


def compare(name: str, to: str, folder: Path) -> Both:
    import onnxruntime

    make, give = NETWORKS[name]
    torch.manual_seed(0)
    network, draw = make().eval(), torch.Generator().manual_seed(5)
    data, other = [give(draw) for _ in range(BATCHES)], give(draw)
    arrays = [{"x": batch.numpy()} for batch in data]
    source, low = folder / "model.onnx", folder / "low.onnx"
    torch.onnx.export(network, (other,), source, input_names=["x"], dynamo=True, verbose=False)
    if to != "int8":
        program = torch.export.export(network, (other,))
        (given,) = program.graph_signature.user_inputs
        named = [{given: batch.numpy()} for batch in data]
        ours = mezzo.convert(program, to=to, target="torch-cpu", data=named, correct="none").plan
        theirs = mezzo.convert(source, to=to, target="openvino-cpu", data=arrays, correct="none").plan
        return Both(products_of(ours), products_of(theirs, paths_of(source)))
    right = network(other)
    compiled = mezzo.torch.compile(network, to=to, data=data)
    answer = compiled(other)
    (plan,) = compiled.plans
    assert plan is not None, "one graph was planned"
    converted = mezzo.convert(source, low, to=to, target="onnxruntime-cpu", data=arrays, correct="none")
    session = onnxruntime.InferenceSession(low)
    other_answer = torch.from_numpy(session.run(None, {"x": other.numpy()})[0])
    errors = error(answer, right), error(other_answer, right), error(answer, other_answer)
    return Both(products_of(plan), products_of(converted.plan, paths_of(source)), errors)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="in place of all")
    parser.add_argument("--to", default="int8", choices=["int8", "int8,bf16"])
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    table, differences = Table(box=None), []
    for column in ("network", "torch", "ONNX", "error, torch", "error, ONNX", "apart"):
        table.add_column(column)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for name in given.networks or NETWORKS:
            torch._dynamo.reset()
            both = compare(name, given.to, Path(folder))
            table.add_row(name, *both.cells)
            differences += [f"{name}: {difference}" for difference in both.differences]
    Console(width=120).print(table)
    print(*differences, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
