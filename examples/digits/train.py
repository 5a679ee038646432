"""Train the demo network on scikit-learn's digits and export it to ONNX, with the held-out digits beside it.

This script alone needs torch, scikit-learn and onnxscript: pip install 'mezzo[train]'. Its results are committed, so
nothing else needs it. Two runs on one machine give the same network. Run: python examples/digits/train.py
"""

import ast
import re
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
SEED = 7
HELD_OUT_RATIO = 0.3
EPOCHS = 40
BATCH = 64
WANTED_ACCURACY = 0.97
OPSET = 18

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class ResidualBlock(nn.Module):
    """Adds two convolutions to their input. The norm reads what the sum reads too, so it cannot fold into a weight."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.conv1(functional.relu(self.norm(x)))
        return x + self.conv2(functional.relu(hidden))


class Attention(nn.Module):
    """Multi-head self-attention over [N, T, C], spelled out so that its products and its softmax are graph nodes."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens, width = x.shape[1], x.shape[2]

        def split_heads(y: Tensor) -> Tensor:
            return y.reshape(-1, tokens, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = split_heads(self.query(x)), split_heads(self.key(x)), split_heads(self.value(x))
        weights = torch.softmax(query @ key.transpose(-1, -2) * self.scale, dim=-1)
        return self.out((weights @ value).transpose(1, 2).reshape(-1, tokens, width))


class EncoderLayer(nn.Module):
    """A transformer encoder layer that normalises before attention and before its two dense layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.contract = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.contract(functional.gelu(self.expand(self.norm2(x))))


class DigitNet(nn.Module):
    """Convolutions see strokes, attention over the 16 patches sees the digit: [N, 1, 8, 8] to logits [N, 10]."""

    def __init__(self, channels: int = 32, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.block = ResidualBlock(channels)
        self.norm = nn.BatchNorm2d(channels)
        self.patches = nn.Conv2d(channels, width, 2, stride=2)
        self.position = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.encoder = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.head_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.block(self.stem(image))))
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for layer in self.encoder:
            x = layer(x)
        return self.head(self.head_norm(x).mean(dim=1))


def load_split() -> Split:
    """Return training and held-out images [n, 1, 8, 8] in about [-1, 1] and their labels, stratified by digit."""
    digits = load_digits()
    images = (digits.images[:, None].astype(np.float32) - 8.0) / 8.0
    labels = digits.target.astype(np.int64)
    train, held_out, train_labels, held_out_labels = train_test_split(
        images, labels, test_size=HELD_OUT_RATIO, random_state=SEED, stratify=labels
    )
    return train, train_labels, held_out, held_out_labels


def shift_images(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move the whole batch by up to one pixel each way; the border is background (-1)."""
    row, column = torch.randint(0, 3, (2,), generator=generator).tolist()
    return functional.pad(images, (1, 1, 1, 1), value=-1.0)[:, :, row : row + 8, column : column + 8]


def train_model(images: Tensor, labels: Tensor) -> DigitNet:
    """Train with AdamW and one cosine cycle; return the network ready for inference."""
    model = DigitNet()
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=EPOCHS * steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(images), generator=generator)[: steps * BATCH]
        for batch in order.split(BATCH):
            logits = model(shift_images(images[batch], generator))
            loss = functional.cross_entropy(logits, labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def find_module(node: onnx.NodeProto) -> str:
    """Return the dotted path of the module whose forward made the node; the network itself is ''."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            return str(ast.literal_eval(entry.value)[-2])
    return ""


def name_nodes(graph: onnx.GraphProto) -> None:
    """Name each node after its module and operator, /encoder.0/attention/MatMul, a number where that repeats."""
    counts: Counter[str] = Counter()
    for node in graph.node:
        module = re.sub(r"\.(?!\d)", "/", find_module(node))
        name = f"/{module}/{node.op_type}" if module else f"/{node.op_type}"
        node.name = f"{name}_{counts[name]}" if counts[name] else name
        counts[name] += 1


def name_weights(graph: onnx.GraphProto) -> None:
    """Name the transposed weights of the dense layers, which the exporter numbers, after their module."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            tensor = weights[node.input[1]]
            tensor.name = node.input[1] = f"{find_module(node)}.weight"


def drop_traces(model: onnx.ModelProto) -> None:
    """Remove the exporter's metadata: it holds the paths of the machine that exported the model."""
    graph = model.graph
    for owner in (model, graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output):
        del owner.metadata_props[:]


def export_model(model: DigitNet, path: Path) -> None:
    """Write one ONNX file with the weights inside and a symbolic batch."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.onnx"
        torch.onnx.export(
            model,
            (torch.zeros(2, 1, 8, 8),),
            raw,
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes={"image": {0: torch.export.Dim("batch")}},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
        )
        exported = onnx.load(raw)
    name_nodes(exported.graph)
    name_weights(exported.graph)
    drop_traces(exported)
    onnx.checker.check_model(exported, full_check=True)
    path.write_bytes(exported.SerializeToString(deterministic=True))


def main() -> None:
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    train, train_labels, held_out, held_out_labels = load_split()
    model = train_model(torch.from_numpy(train), torch.from_numpy(train_labels))
    path = HERE / "digits.onnx"
    export_model(model, path)
    np.savez_compressed(HERE / "heldout.npz", image=held_out, label=held_out_labels)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": held_out})
    accuracy = float((logits.argmax(axis=1) == held_out_labels).mean())
    print(f"{path.name}: {path.stat().st_size:,} bytes, {accuracy:.2%} of {len(held_out)} held-out digits right")
    if accuracy < WANTED_ACCURACY:
        raise SystemExit(f"accuracy {accuracy:.2%} is below the {WANTED_ACCURACY:.0%} this demo promises; train longer")


if __name__ == "__main__":
    main()
