"""Compile the digit classifier with mezzo.torch in BF16, and in INT8 with BF16, show what runs in what and why, and
export it in BF16.

Run: make demo-torch
"""

import os
import sys
import time
import warnings
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from rich.console import Console, RenderableType
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import mezzo
import mezzo.torch
from mezzo.common.machine import find_machine
from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.conversion.results import Converted
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.parts import blank, heading, make_table
from mezzo.torch.inspect.accounts import GraphAccount

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
DATA = MODEL.with_name("heldout.npz")
OUT = ROOT / "out" / "demo-torch"
PROGRAM = OUT / "digits.bf16.pt2"
PLAN = OUT / "digits.int8-bf16.json"
REPORT = OUT / "report.html"
WANTED_ACCURACY = 0.97
CALIBRATED = 180  # digits that INT8 scales are from
ASKED = "norm/_native_batch_norm_legit_no_training"
FASTER_WITH = ("amx_bf16", "avx512_bf16", "bf16")


class ResidualBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(functional.relu(self.conv1(functional.relu(self.norm(x)))))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        seen = functional.scaled_dot_product_attention(query, key, value)
        return self.out(seen.transpose(1, 2).flatten(-2))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.expand, self.contract = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


class DigitNet(nn.Module):
    """Convolutions see strokes, attention over the 16 patches sees the digit: [N, 1, 8, 8] to logits [N, 10]."""

    def __init__(self, channels: int = 32, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(1, channels, 3, padding=1), ResidualBlock(channels)
        self.norm, self.patches = nn.BatchNorm2d(channels), nn.Conv2d(channels, width, 2, stride=2)
        self.position = nn.Parameter(torch.zeros(1, 16, width))
        self.encoder = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.head_norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.block(self.stem(image))))
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for layer in self.encoder:
            x = layer(x)
        return self.head(self.head_norm(x).mean(dim=1))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `error` is the relative L2 error of the logits against FP64."""

    label: str
    accuracy: float
    error: float
    output: str


def load_model() -> DigitNet:
    """The network with the weights that its ONNX file holds, under the names that they have here."""
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(MODEL).graph.initializer}
    model = DigitNet().eval()
    with torch.no_grad():
        for name, weight in (*model.named_parameters(), *model.named_buffers()):
            if name in held:  # ONNX multiplies by the transposed weights of dense layers
                is_turned = name.startswith("encoder.") and weight.dim() == 2
                weight.copy_(torch.from_numpy(held[name].T.copy() if is_turned else held[name].copy()))
            elif weight.is_floating_point():
                raise SystemExit(f"{relative(MODEL)} has no {name!r}; make it again: examples/digits/train.py")
    return model


def judge(label: str, call: Callable[[Tensor], Tensor], image: Tensor, digits: Tensor, exact: Tensor) -> Row:
    logits = call(image)
    accuracy = float((logits.argmax(dim=1) == digits).double().mean())
    return Row(label, accuracy, float((logits.double() - exact).norm() / exact.norm()), str(logits.dtype))


def with_autocast(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def call(image: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(image)

    return call


def export(model: nn.Module, image: Tensor) -> Converted:
    """Export the module in FP32, and convert the program, judged on the digits. Its file is PyTorch's own."""
    program = torch.export.export(model, (image,))
    return mezzo.convert(program, PROGRAM, to="bf16", data={"image": image.numpy()}, overwrite=True)


def open_report() -> None:
    """Show the page where somebody sits before a screen."""
    has_screen = sys.platform in ("darwin", "win32") or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if sys.stdout.isatty() and has_screen:
        webbrowser.open(REPORT.as_uri())


def make_comparison(layout: Layout, rows: Iterable[Row]) -> Table:
    table = make_table(layout, "", "accuracy", "error", "returns", right=("accuracy", "error"))
    for row in rows:
        table.add_row(row.label, f"{row.accuracy:.2%}", f"{row.error:.1e}", row.output.removeprefix("torch."))
    return table


def tell_graph(layout: Layout, model: nn.Module, graph: GraphAccount, plan: Plan) -> list[RenderableType]:
    """What was compiled: what runs in what by which rule, which weights are cast once, which casts are left."""
    by_rule: dict[tuple[str, str], Counter[str]] = {}
    for node in plan.nodes:
        if node.kind == "op":
            by_rule.setdefault((str(node.precision.compute), node.rule), Counter())[node.op] += 1
    table = make_table(layout, "in", "rule", "nodes", "operators", right=("nodes",))
    for (dtype, rule), ops in sorted(by_rule.items()):
        table.add_row(dtype, rule, str(ops.total()), ", ".join(f"{count} {op}" for op, count in ops.most_common()))
    weights = list(model.parameters())
    whole = sum(weight.numel() * weight.element_size() for weight in weights)
    return [
        heading("what was compiled"),
        table,
        f"weights cast once: {len(graph.shadows)} of {len(weights)}, {format_size(graph.shadow_bytes)} in bf16 beside "
        f"{format_size(whole)} in f32",
        f"other casts: {graph.casts} at every call, in kernels that Inductor writes where these read or make the value",
    ]


def describe_speed() -> str:
    """Whether this CPU gains by BF16 at all."""
    machine = find_machine()
    found = [feature for feature in FASTER_WITH if machine.has(feature)]
    if found:
        return f"this CPU multiplies BF16 by {found[0]}"
    if machine.features is None:
        return "this system does not tell whether the CPU has BF16 instructions"
    return "this CPU has no BF16 instructions, so BF16 gains no speed here"


def relative(path: Path) -> str:
    """Spell a path from where the user stands."""
    return os.path.relpath(path)


def main() -> None:
    # PyTorch's own, as it copies its records of an exported program.
    warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
    console = Console(highlight=False)
    layout = Layout.TERMINAL if console.is_terminal else Layout.PLAIN
    OUT.mkdir(parents=True, exist_ok=True)
    console.print(f"[bold]mezzo {mezzo.__version__}[/bold], PyTorch {torch.__version__}")
    console.print(describe_speed())
    with np.load(DATA, allow_pickle=False) as file:
        image, digits = torch.from_numpy(file["image"]), torch.from_numpy(file["label"])
    model = load_model()
    console.print(f"the digit classifier of 'make demo' in PyTorch; {len(digits)} held-out digits, errors against FP64")
    console.print("compiling, which takes up to two minutes")
    with torch.no_grad():
        exact = load_model().double()(image.double())
        began = time.perf_counter()
        compiled = mezzo.torch.compile(model)
        compiled(image)
        quantized = mezzo.torch.compile(model, to="int8,bf16", data=[image[:CALIBRATED]])
        quantized(image)
        console.print(f"compiled twice in {time.perf_counter() - began:.0f} s\n")
        exported = export(model, image)
        rows = [
            judge("eager, FP32", model, image, digits, exact),
            judge("eager, torch.autocast", with_autocast(model), image, digits, exact),
            judge("mezzo.torch.compile", compiled, image, digits, exact),
            judge('... to="int8,bf16"', quantized, image[CALIBRATED:], digits[CALIBRATED:], exact[CALIBRATED:]),
            judge("mezzo.convert, exported", exported.model.module(), image, digits, exact),
        ]
    (graph,) = mezzo.torch.account(compiled).graphs
    assert graph.plan is not None, "an inference graph is planned"
    mezzo.torch.report(compiled, REPORT)
    in_int8 = mezzo.torch.account(quantized).graphs[-1].int8_products
    mezzo.torch.save_plan(quantized, PLAN)
    compared = mezzo.torch.compare(model, compiled, [image])
    before, after = exported.summary.size_before_bytes, exported.summary.size_after_bytes
    parts: list[RenderableType] = [
        make_comparison(layout, rows),
        f"int8: {in_int8} matmuls and convolutions, scales from {CALIBRATED} digits, judged on the others",
        blank(),
        *tell_graph(layout, model, graph, graph.plan),
        blank(),
        heading("where the error begins: mezzo.torch.compare(model, compiled, [image])"),
        str(compared),
        blank(),
        heading(f"why one of them: mezzo.torch.explain(compiled, {ASKED!r})"),
        str(mezzo.torch.explain(compiled, ASKED)),
        blank(),
        f"program: {relative(PROGRAM)}, for torch.export.load; weights {format_size(before)} -> {format_size(after)}",
        f"plan: {relative(PLAN)}, which mezzo.torch.compile(model, plan=...) replays in INT8 without data",
        f"report: {relative(REPORT)}, for any browser",
    ]
    for part in parts:
        console.print(part, crop=False)
    worst = min(row.accuracy for row in rows)
    if worst < WANTED_ACCURACY:
        raise SystemExit(f"accuracy {worst:.2%} of a model is below {WANTED_ACCURACY:.0%}: a bug in mezzo")
    open_report()


if __name__ == "__main__":
    main()
