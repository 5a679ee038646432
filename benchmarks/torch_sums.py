"""Trainings with long sums: where those in BF16, with and without tiles, end beside FP32 and mezzo's own.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_sums.py
    python benchmarks/torch_sums.py --networks bytes --gradients                      # where do sums lose?
    python benchmarks/torch_sums.py --networks autoencoder --seeds 1 --steps 20       # does it work?

On the sources of Python's standard library: four bytes' embeddings, a LayerNorm and a head that tells the byte after
them, on 16,384 places at a time, so that the gradient of the head sums 16,384 terms: for each byte a few large ones of
one sign, where it is next, and many small ones of the other. On scikit-learn's digits of 32 by 32 pixels: a perceptron
whose products sum over 1,024 pixels, and gradients of weights over 2,048 images, and an autoencoder through 32 numbers,
whose loss has no floor. A seed draws weights and batches, the same for every way. Losses are of data that was not
trained on, in FP32.
"""

import argparse
import functools
import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import int8_training as digits
import language_model_training as language
import numpy as np
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
_PIXELS, _CONTEXT, _BATCHES = 1024, 128, (256, 1024, 4096, 16384)
WARM = 40  # steps in FP32 before gradients are compared
Batch = tuple[Tensor, Tensor]


class Data(NamedTuple):
    """What a batch of so many terms of a gradient's sum is drawn from, and what is held out."""

    draw: Callable[[torch.Generator, int], Batch]
    held_out: Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A network, its loss of answers and what they should be, its data, how many terms the gradients of weights sum in
    a step, how many steps there are, and the rate of AdamW at its highest.
    """

    make: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    data: Callable[[], Data]
    batch: int
    steps: int
    rate: float = 3e-3


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(_PIXELS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def _autoencoder() -> nn.Module:
    down, up = (nn.Linear(_PIXELS, 128), nn.GELU(), nn.Linear(128, 32)), (nn.Linear(32, 128), nn.GELU())
    return nn.Sequential(*down, *up, nn.Linear(128, _PIXELS))


def _bytes() -> nn.Module:
    """The language model without a block between its embeddings and its head, which starts at small random numbers."""
    seed = torch.initial_seed()
    network: nn.Module = language.make_model(language.Shape(layers=0, width=64))
    torch.manual_seed(seed)
    for name, weight in network.named_parameters():
        if "weight" in name and weight.dim() == 2:
            nn.init.normal_(weight, std=0.5 if "embeddings" in name else 0.02)
    return network


def _cross_entropy(answer: Tensor, wanted: Tensor) -> Tensor:
    return functional.cross_entropy(answer.flatten(0, -2), wanted.flatten())


@functools.cache
def _images(*, are_their_own: bool) -> Data:
    """Digits with their labels, or with themselves."""
    data = digits.read_digits()
    pairs = [[torch.from_numpy(part) for part in parts] for parts in (data.training, data.held_out)]
    (images, wanted), held_out = [
        (images.flatten(1), images.flatten(1) if are_their_own else labels) for images, labels in pairs
    ]

    def draw(generator: torch.Generator, count: int) -> Batch:
        chosen = torch.randint(0, len(images), (count,), generator=generator)
        return images[chosen], wanted[chosen]

    return Data(draw, held_out)


@functools.cache
def _text() -> Data:
    """Pieces of text of 128 bytes, and the bytes after each of them."""
    text = language.read_text()
    windows = language.cut(text.held_out, 256, seed=1)

    def draw(generator: torch.Generator, count: int) -> Batch:
        pieces = max(count // _CONTEXT, 1)
        places = torch.randint(0, len(text.training) - _CONTEXT - 1, (pieces,), generator=generator)
        rows = np.stack([text.training[place : place + _CONTEXT + 1] for place in places.tolist()]).astype(np.int64)
        return torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())

    return Data(draw, (torch.from_numpy(windows["tokens"]), torch.from_numpy(windows["targets"])))


KINDS = {
    "bytes": Kind(make=_bytes, loss=_cross_entropy, data=_text, batch=16384, steps=100, rate=1e-2),
    "perceptron": Kind(
        make=_perceptron,
        loss=_cross_entropy,
        data=functools.partial(_images, are_their_own=False),
        batch=2048,
        steps=80,
    ),
    "autoencoder": Kind(
        make=_autoencoder,
        loss=functional.mse_loss,
        data=functools.partial(_images, are_their_own=True),
        batch=256,
        steps=200,
    ),
}


def train(kind: Kind, way: str, seed: int, steps: int) -> tuple[float, nn.Module]:
    """The loss on what is held out after training one way, and the network."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    network, options, data = kind.make(), WAYS[way], kind.data()
    run = network if options is None else mezzo.torch.compile(network, **options)
    optimizer = torch.optim.AdamW(network.parameters(), lr=kind.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, kind.rate, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        given, wanted = data.draw(generator, kind.batch)
        optimizer.zero_grad()
        kind.loss(run(given).float(), wanted).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return float(kind.loss(network(data.held_out[0]), data.held_out[1])), network


def compare(kind: Kind, table: Table, name: str) -> None:
    """A line for each size of batch: how far gradients are from FP64's in each way, all of them and the worst weight's.

    The network has had some steps in FP32, as gradients of fresh weights are like no later ones.
    """
    _, network = train(kind, "FP32", seed=1, steps=WARM)
    for count in _BATCHES:
        given, wanted = kind.data().draw(torch.Generator().manual_seed(2), count)
        cells = []
        for options in WAYS.values():
            if options is None:
                continue
            torch._dynamo.reset()
            errors = mezzo.torch.compare_gradients(
                network,
                mezzo.torch.compile(network, **options),
                [given],
                loss=functools.partial(lambda wanted, answer: kind.loss(answer, wanted), wanted),
            )
            worst = max(errors.weights, key=lambda one: one.error)
            cells.append(f"{errors.error:.3f}, {worst.error:.3f} of {worst.name}")
        table.add_row(name, str(count), *cells)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="in place of 100, 80 and 200")
    parser.add_argument("--gradients", action="store_true", help="compare gradients at many sizes, and train nothing")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(given.threads)
    console = Console(width=160)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    if given.gradients:
        table = Table("network", "terms", *list(WAYS)[1:], box=None)
        for name in given.networks:
            compare(KINDS[name], table, name)
        console.print(table)
        return 0
    table = Table("network", "way", "mean", "of seeds", box=None)
    for name in given.networks:
        for way in given.ways:
            begin, kind = time.perf_counter(), KINDS[name]
            steps = given.steps or kind.steps
            ends = [train(kind, way, seed, steps)[0] for seed in range(1, given.seeds + 1)]
            table.add_row(name, way, f"{statistics.fmean(ends):.4f}", f"{min(ends):.4f} to {max(ends):.4f}")
            print(f"{name}, {way}: {ends}, {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
