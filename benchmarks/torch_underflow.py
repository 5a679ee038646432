"""A training whose gradients are too small for FP16, with and without a scale of the loss, beside FP32.

    pip install "mezzo[torch]"
    python benchmarks/torch_underflow.py --json out/torch-underflow.json

An autoencoder of images, drawn from a seed: eight shapes in varying strength, 32 by 32 pixels, a ten-thousandth large.
Its loss is the mean square over all pixels of 64 images, so that the gradient of a pixel is its error times 30
millionths. Adam divides by what gradients are, so FP32 learns all the same. `gradient_ranges` says what FP16 loses of
them and which scale keeps them; that scale is GradScaler's first.
"""

import argparse
import json
import logging
import math
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_speed import describe_torch_environment

import mezzo.torch

SIDE, IMAGES, SHAPES, STRENGTH = 32, 64, 8, 1e-4
WAYS = ("FP32", "mezzo, fp16", "mezzo, fp16, scaled")


@dataclass(slots=True, kw_only=True)
class Row:
    """One training. `lost` is the largest share of a gradient that FP16 has no number for at the start, with the loss
    times `scale`, both None in FP32; `losses` are those of every step.
    """

    way: str
    seed: int
    scale: float | None
    lost: float | None
    held_out: float
    losses: list[float] = field(default_factory=list)


class Autoencoder(nn.Module):
    """Images through 16 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(SIDE * SIDE, 16, bias=False), nn.Linear(16, SIDE * SIDE, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.decode(self.encode(images))
        return made


def draw_images(seed: int, number: int) -> torch.Tensor:
    """Flat images, [number, SIDE * SIDE]. The shapes are the same for all seeds."""
    shapes = torch.randn(SHAPES, SIDE * SIDE, generator=torch.Generator().manual_seed(0))
    strengths = torch.randn(number, SHAPES, generator=torch.Generator().manual_seed(seed))
    return STRENGTH * strengths @ shapes / SHAPES**0.5


def train(way: str, seed: int, steps: int) -> Row:
    """Train in one way."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    model, images = Autoencoder(), draw_images(seed, IMAGES)

    def loss_of(made: torch.Tensor, wanted: torch.Tensor = images) -> torch.Tensor:
        return nn.functional.mse_loss(made, wanted.to(made))

    bare = mezzo.torch.gradient_ranges(model, [images], loss=loss_of)
    scale = bare.proposed if "scaled" in way else 1.0
    ranges = mezzo.torch.gradient_ranges(model, [images], loss=loss_of, scale=scale)
    run: Any = model if way == "FP32" else mezzo.torch.compile(model, to="fp16")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-20)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled="scaled" in way)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(run(images))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss.detach()))
    unseen = draw_images(1000 + seed, IMAGES)
    with torch.no_grad():
        held_out = float(loss_of(model(unseen), unseen))
    is_low = way != "FP32"
    return Row(
        way=way,
        seed=seed,
        scale=scale if is_low else None,
        lost=max(one.below_smallest for one in ranges.every) if is_low else None,
        held_out=held_out,
        losses=losses,
    )


def show(console: Console, rows: Sequence[Row]) -> None:
    """A line for each way."""
    table = Table(box=None)
    for column in ("way", "scale", "lost at the start", "first loss", "last loss", "held out", "of seeds"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for way in dict.fromkeys(row.way for row in rows):
        of = [row for row in rows if row.way == way]
        ends = [row.held_out for row in of]
        scales = sorted(row.scale for row in of if row.scale is not None)
        lost = [row.lost for row in of if row.lost is not None]
        first, last = (statistics.fmean(row.losses[place] for row in of) for place in (0, -1))
        table.add_row(
            way, " to ".join(f"2^{math.log2(scale):g}" for scale in dict.fromkeys(scales)) or "-",
            f"{max(lost):.1%}" if lost else "-", f"{first:.3e}", f"{last:.3e}",
            f"{statistics.fmean(ends):.3e}", f"{min(ends):.3e} to {max(ends):.3e}",
        )  # fmt: skip
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write every figure here, with the loss of every step")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    console = Console(width=140)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    rows = [train(way, seed, given.steps) for seed in range(1, given.seeds + 1) for way in WAYS]
    show(console, rows)
    if given.json is not None:
        document = {"environment": environment, "steps": given.steps, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
