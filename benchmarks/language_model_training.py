"""Trains a small byte-level transformer on the sources of Python's standard library, and exports it to ONNX.

Nothing is downloaded: every Python brings the text. Files, not lines, are held out, so that no sentence of the held-out
part was seen in training. The model reads like today's language models: pre-LayerNorm, causal attention with rotary
positions, GELU. So that minutes on two cores suffice, each position also sees the three bytes before it from the start,
contexts grow from short to full, and the matrices are trained with Muon (source: Jordan et al., "Muon: An optimizer for
hidden layers in neural networks", 2024), all else with AdamW. All arithmetic of the model is FP32.

Leaves in the folder: model.onnx ("tokens" int64 [batch, time] to "logits" [batch, time, 256]); tuning.npz, a part of
the training text, and held_out.npz, both with "tokens" and "targets"; training.json, how it was trained.
"""

import json
import math
import random
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = 256
CONTEXT = 256
LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings", "__pycache__"})
SEED = 20
BATCH_BYTES = 2048
TUNING_ROWS, HELD_OUT_ROWS = 64, 256


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the model: 5.05 million parameters, 4.7 of them in the blocks."""

    layers: int = 6
    width: int = 256
    heads: int = 4


@dataclass(frozen=True, slots=True)
class Text:
    """The two parts of the text as bytes, and how many files each has."""

    training: np.ndarray
    held_out: np.ndarray
    training_files: int
    held_out_files: int


@dataclass(frozen=True, slots=True)
class Training:
    """How a training went. Losses are in bits per byte of the held-out part's sample."""

    parameters: int
    steps: int
    tokens: int
    time_s: float
    losses: tuple[tuple[int, float], ...]
    training_bytes: int
    held_out_bytes: int


def read_text() -> Text:
    """Read the standard library's sources; every tenth file of a seeded shuffle is held out.

    Tests, tables of encodings and installed packages are left out: they differ from machine to machine or are no text.
    """
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(p for p in root.rglob("*.py") if not LEFT_OUT & set(p.relative_to(root).parts))
    random.Random(SEED).shuffle(paths)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for number, path in enumerate(paths):
        parts[number % 10 == 0].append(path.read_bytes().replace(b"\r\n", b"\n"))
    training, held_out = (np.frombuffer(b"\0".join(part), np.uint8) for part in parts)
    return Text(training, held_out, len(parts[0]), len(parts[1]))


def cut(text: np.ndarray, count: int, seed: int) -> dict[str, np.ndarray]:
    """Cut `count` windows at seeded places that do not overlap: tokens and the bytes that follow them."""
    places = np.random.default_rng(seed).choice((len(text) - 1) // CONTEXT, count, replace=False) * CONTEXT
    rows = np.stack([text[place : place + CONTEXT + 1] for place in sorted(places)]).astype(np.int64)
    return {"tokens": rows[:, :-1].copy(), "targets": rows[:, 1:].copy()}


def make_model(shape: Shape) -> Any:
    """Make the model with fresh, seeded weights."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = shape.width
            self.before_attention = nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.project = nn.Linear(width, width, bias=False)
            self.before_mlp = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
            split = (x.shape[0], x.shape[1], shape.heads, shape.width // shape.heads)
            q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(self.before_attention(x)).chunk(3, dim=-1))
            mixed = F.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v, is_causal=True)
            x = x + self.project(mixed.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.before_mlp(x))))

    def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    class ByteModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(nn.Embedding(VOCABULARY, shape.width) for _ in range(4))
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm = nn.LayerNorm(shape.width)
            self.head = nn.Linear(shape.width, VOCABULARY, bias=False)
            half = shape.width // shape.heads // 2
            angles = torch.arange(CONTEXT)[:, None] * 1000.0 ** (-torch.arange(half) / half)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            time = tokens.shape[1]
            x = self.embeddings[0](tokens)
            for back in range(1, 4):  # the bytes before, without attention
                x = x + F.pad(self.embeddings[back](tokens), (0, 0, back, 0))[:, :time]
            for block in self.blocks:
                x = block(x, self.cos[:time], self.sin[:time])
            return self.head(self.norm(x))

    torch.manual_seed(SEED)
    model = ByteModel()
    for name, parameter in model.named_parameters():
        if "embeddings" in name:
            nn.init.normal_(parameter, std=0.5)
        elif name.endswith(("project.weight", "down.weight")) or name == "head.weight":
            nn.init.zeros_(parameter)
    return model


def train(shape: Shape, text: Text, minutes: float, say: Callable[[str], None]) -> tuple[Any, Training]:
    """Train for about so long; the learning rate follows the clock."""
    import torch
    from torch.nn import functional as F

    model = make_model(shape)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and name.startswith("blocks")]
    rest = [p for name, p in model.named_parameters() if not (p.ndim == 2 and name.startswith("blocks"))]
    optimizers = (
        torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(rest, lr=0.004, betas=(0.9, 0.98), weight_decay=0.0),
    )
    rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    sample = cut(text.held_out, 64, SEED)
    begin, step, tokens, losses, spoken = time.perf_counter(), 0, 0, [], 0.0
    for done, rows in _batches(text.training, 60 * minutes):
        factor = min(1.0, (step + 1) / 20, (1 - done) / 0.5)
        for optimizer, rate in zip(optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * max(factor, 0.02)
        batch = torch.from_numpy(rows.astype(np.int64))
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + batch[:, 1:].numel()
        if time.perf_counter() - begin - spoken > 30:
            spoken = time.perf_counter() - begin
            losses.append((step, bits_per_byte(model, sample)))
            say(f"{spoken:5.0f} s  step {step:5}  {tokens / 1e6:5.2f} M bytes  "
                f"training {loss.item() / math.log(2):.3f}  held out {losses[-1][1]:.3f} bits per byte")  # fmt: skip
    losses.append((step, bits_per_byte(model, sample)))
    time_s = time.perf_counter() - begin
    count = sum(p.numel() for p in model.parameters())
    record = Training(count, step, tokens, time_s, tuple(losses), len(text.training), len(text.held_out))
    say(f"{time_s:5.0f} s  step {step:5}  held out {losses[-1][1]:.3f} bits per byte, {count / 1e6:.2f} M parameters")
    return model.eval(), record


def _batches(text: np.ndarray, time_s: float) -> Iterator[tuple[float, np.ndarray]]:
    """Yield the share of the time that is over and random windows, until the time is over. Contexts grow."""
    random_numbers = np.random.default_rng(SEED)
    begin = time.perf_counter()
    while (done := (time.perf_counter() - begin) / time_s) < 1:
        length = 64 if done < 0.3 else 128 if done < 0.6 else CONTEXT
        places = random_numbers.integers(0, len(text) - length - 1, BATCH_BYTES // length)
        yield done, np.stack([text[place : place + length + 1] for place in places])


def bits_per_byte(model: Any, data: dict[str, np.ndarray]) -> float:
    """The model's loss on windows, in bits per byte."""
    import torch
    from torch.nn import functional as F

    with torch.no_grad():
        total = sum(
            F.cross_entropy(
                model(torch.from_numpy(data["tokens"][row : row + 16])).flatten(0, 1),
                torch.from_numpy(data["targets"][row : row + 16]).flatten(),
                reduction="sum",
            ).item()
            for row in range(0, len(data["tokens"]), 16)
        )
    return total / data["targets"].size / math.log(2)


def export(model: Any, path: Path) -> None:
    """Write the model as ONNX, batch and time symbolic."""
    import torch

    tokens = torch.zeros(2, 16, dtype=torch.int64)
    shapes = {"tokens": {0: torch.export.Dim("batch"), 1: torch.export.Dim("time", max=CONTEXT)}}
    torch.onnx.export(
        model, (tokens,), str(path), input_names=["tokens"], output_names=["logits"], opset_version=18, dynamo=True,
        dynamic_shapes=shapes, external_data=False, optimize=True, verbose=False,
    )  # fmt: skip


def make(folder: Path, minutes: float, say: Callable[[str], None], shape: Shape | None = None) -> None:
    """Train, export, write the data and the record into the folder. `shape` is for machines with less time."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    text = read_text()
    say(f"{text.training_files} files, {len(text.training) / 1e6:.2f} MB to train on; "
        f"{text.held_out_files} files, {len(text.held_out) / 1e6:.2f} MB held out")  # fmt: skip
    shape = Shape() if shape is None else shape
    model, record = train(shape, text, minutes, say)
    np.savez(folder / "tuning.npz", **cut(text.training, TUNING_ROWS, SEED + 1))
    np.savez(folder / "held_out.npz", **cut(text.held_out, HELD_OUT_ROWS, SEED + 2))
    export(model, folder / "model.onnx")
    about = {"torch": torch.__version__, "shape": asdict(shape), "training": asdict(record)}
    (folder / "training.json").write_text(json.dumps(about, indent=1))
