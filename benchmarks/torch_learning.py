"""Whole trainings with mezzo.torch, beside FP32 and torch.compile with autocast: where they end, over seeds.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_learning.py --json out/torch-learning.json
    python benchmarks/torch_learning.py --networks vit --seeds 1 --steps 100        # does it work?

The networks of `int8_training.py`: a vision transformer and a residual network on scikit-learn's digits, and a small
language model over bytes on the sources of Python's standard library. A seed draws weights and batches, the same for
every way, and all ways make as many steps of AdamW, its rate falling to zero. "Held out" is the cross-entropy on data
that was not trained on, in nats of digits and bits per byte of text, evaluated in FP32; digits have their accuracy
beside it. A way is as good where its mean is within twice the spread of the seeds in FP32.
"""

import argparse
import json
import logging
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import int8_training as digits
import language_model_training as language
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional
from torch_speed import describe_torch_environment

import mezzo.torch

NETWORKS = ("vit", "residual", "language")
WAYS: Mapping[str, Mapping[str, object] | None] = {
    "FP32": None,
    "compile + autocast": None,
    "mezzo": {},
    "mezzo, memory 0.9": {"memory": 0.9},
    "mezzo, memory 1.0": {"memory": 1.0},
    "mezzo, masters": {"weight_update": "fp32", "weight_grad_reduce": "bf16"},
    "mezzo, gradients in BF16": {"weight_grad_reduce": "bf16"},
    "mezzo, tiles of 32": {"accumulate": "bf16", "tile": 32},
    "mezzo, sums in BF16": {"accumulate": "bf16"},
}
_RATES = {"vit": 1e-3, "residual": 2e-3, "language": 2e-3}
_CONTEXT, _ROWS = 128, 8
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(slots=True, kw_only=True)
class Row:
    """One training. `losses` are those of every step, `held_out` the loss on data that was not trained on."""

    network: str
    way: str
    seed: int
    held_out: float
    accuracy: float | None
    time_s: float
    losses: list[float] = field(default_factory=list)


class Task:
    """A network with its data."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "language":
            text = language.read_text()
            self.text = text.training
            held = language.cut(text.held_out, 32, seed=1)
            self.held_out = tuple(torch.from_numpy(held[key][:, :_CONTEXT]) for key in ("tokens", "targets"))
        else:
            found = digits.read_digits()
            self.images, self.labels = (torch.from_numpy(part) for part in found.training)
            self.held_out = tuple(torch.from_numpy(part) for part in found.held_out)

    def network(self, seed: int) -> Any:
        """A network with fresh weights."""
        if self.name == "language":
            made = language.make_model(language.Shape(layers=3, width=192))
        else:
            made = digits.make_network(self.name)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in made.parameters():
                weight.mul_(1 + 0.01 * torch.randn_like(weight))
        return made

    def batches(self, seed: int, steps: int) -> Iterator[Batch]:
        """What is trained on, step by step."""
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            if self.name == "language":
                places = rng.integers(0, len(self.text) - _CONTEXT - 1, _ROWS)
                rows = np.stack([self.text[place : place + _CONTEXT + 1] for place in places]).astype(np.int64)
                yield torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())
            else:
                chosen = rng.integers(0, len(self.images), digits.BATCH)
                down, right = (int(one) for one in rng.integers(-digits.SHIFT, digits.SHIFT + 1, 2))
                yield torch.roll(self.images[chosen], (down, right), (2, 3)), self.labels[chosen]

    def loss(self, made: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Cross-entropy in nats, of text in bits."""
        found = functional.cross_entropy(made.float().flatten(0, -2), wanted.flatten())
        return found / math.log(2) if self.name == "language" else found


def train(task: Task, way: str, seed: int, steps: int) -> Row:
    """Train in one way."""
    torch._dynamo.reset()
    network = task.network(seed).train()
    options = WAYS[way]
    run: Callable[[torch.Tensor], torch.Tensor]
    if options is None:
        run = network if way == "FP32" else torch.compile(network)
    else:
        run = mezzo.torch.compile(network, to="bf16", **options)
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATES[task.name], weight_decay=0.02)
    if "masters" in way:
        mezzo.torch.compile_update(optimizer)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATES[task.name], total_steps=steps)
    losses, begin = [], time.perf_counter()
    for given, wanted in task.batches(seed, steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16) if "autocast" in way else nullcontext():
            made = run(given)
        loss = task.loss(made, wanted)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    taken = time.perf_counter() - begin
    network.eval()
    with torch.no_grad():
        made = network(task.held_out[0])
    accuracy = None if task.name == "language" else float((made.argmax(1) == task.held_out[1]).double().mean())
    held_out = float(task.loss(made, task.held_out[1]))
    return Row(network=task.name, way=way, seed=seed, held_out=held_out, accuracy=accuracy, time_s=taken, losses=losses)


def show(console: Console, rows: Sequence[Row]) -> None:
    """A line for each way on each network."""
    table = Table(box=None)
    for column in ("network", "way", "held out", "of seeds", "from FP32", "in spreads", "accuracy", "last losses"):
        table.add_column(column, justify="left" if column in ("network", "way") else "right")
    for network in dict.fromkeys(row.network for row in rows):
        base = [row.held_out for row in rows if row.network == network and row.way == "FP32"]
        spread = statistics.stdev(base) if len(base) > 1 else math.nan
        for way in dict.fromkeys(row.way for row in rows):
            of = [row for row in rows if row.network == network and row.way == way]
            if not of:
                continue
            ends = [row.held_out for row in of]
            mean = statistics.fmean(ends)
            far = mean - statistics.fmean(base) if base else math.nan
            accuracy = [row.accuracy for row in of if row.accuracy is not None]
            last = statistics.fmean(statistics.fmean(row.losses[-20:]) for row in of)
            table.add_row(
                network, way, f"{mean:.4f}", f"{min(ends):.4f} to {max(ends):.4f}", f"{far:+.4f}",
                f"{far / spread:+.1f}" if spread else "-",
                f"{statistics.fmean(accuracy):.2%}" if accuracy else "-", f"{last:.4f}",
            )  # fmt: skip
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS)[:4])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--json", type=Path, help="write every figure here, with the loss of every step")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    console = Console(width=140)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    rows = []
    for name in given.networks:
        task = Task(name)
        for seed in range(1, given.seeds + 1):
            for way in given.ways:
                rows.append(train(task, way, seed, given.steps))
                print(f"{name}, {way}, seed {seed}: {rows[-1].held_out:.4f}, {rows[-1].time_s:.0f} s", file=sys.stderr)
    show(console, rows)
    if given.json is not None:
        document = {"environment": environment, "steps": given.steps, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
