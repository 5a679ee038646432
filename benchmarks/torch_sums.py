"""Trainings with long sums: where those in BF16, with and without tiles, end beside FP32 and mezzo's own.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_sums.py
    python benchmarks/torch_sums.py --networks autoencoder --seeds 1 --steps 20       # does it work?

On scikit-learn's digits of 32 by 32 pixels: a perceptron whose products sum over 1,024 pixels, and gradients of weights
over 2,048 images, and an autoencoder through 32 numbers, whose loss has no floor. A seed draws weights and batches, the
same for every way. Losses are of digits that were not trained on, in FP32.
"""

import argparse
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import int8_training as digits
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional
from torch_speed import describe_torch_environment

import mezzo.torch

WAYS: Mapping[str, Mapping[str, object] | None] = {
    "FP32": None,
    "mezzo": {},
    "mezzo, tiles of 32": {"accumulate": "bf16", "tile": 32},
    "mezzo, sums in BF16": {"accumulate": "bf16"},
}
_PIXELS, _RATE = 1024, 3e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A network, its loss of answers, images and labels, how many images a step has, and how many steps there are."""

    make: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    batch: int
    steps: int


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(_PIXELS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def _autoencoder() -> nn.Module:
    down, up = (nn.Linear(_PIXELS, 128), nn.GELU(), nn.Linear(128, 32)), (nn.Linear(32, 128), nn.GELU())
    return nn.Sequential(*down, *up, nn.Linear(128, _PIXELS))


KINDS = {
    "perceptron": Kind(
        make=_perceptron,
        loss=lambda answer, images, labels: functional.cross_entropy(answer, labels),
        batch=2048,
        steps=80,
    ),
    "autoencoder": Kind(
        make=_autoencoder,
        loss=lambda answer, images, labels: functional.mse_loss(answer, images),
        batch=256,
        steps=200,
    ),
}


def train(kind: Kind, way: str, seed: int, steps: int, data: digits.Digits) -> float:
    """The loss on images held out, after training one way."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    network, options = kind.make(), WAYS[way]
    run = network if options is None else mezzo.torch.compile(network, **options)
    (images, labels), held_out = (
        (torch.from_numpy(part[0]).flatten(1), torch.from_numpy(part[1])) for part in (data.training, data.held_out)
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(0, len(images), (kind.batch,), generator=generator)
        optimizer.zero_grad()
        kind.loss(run(images[chosen]).float(), images[chosen], labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float(kind.loss(network(held_out[0]), *held_out))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="in place of 80 and 200")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(given.threads)
    console, data = Console(width=120), digits.read_digits()
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    table = Table("network", "way", "mean", "of seeds", box=None)
    for name in given.networks:
        for way in given.ways:
            begin, kind = time.perf_counter(), KINDS[name]
            steps = given.steps or kind.steps
            ends = [train(kind, way, seed, steps, data) for seed in range(1, given.seeds + 1)]
            table.add_row(name, way, f"{statistics.fmean(ends):.4f}", f"{min(ends):.4f} to {max(ends):.4f}")
            print(f"{name}, {way}: {ends}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
