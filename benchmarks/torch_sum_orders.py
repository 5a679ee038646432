"""Where sums in BF16 go wrong in one step of a training, and what other orders of summing would lose.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_sum_orders.py

The gradient of the head of the language model of `torch_sums.py`, after some steps in FP32, on 16,384 places: a product
whose sums have a term for each place, made of operands in BF16. Errors are relative L2 norms against FP64, of all and
of rows of bytes by how many places each is next in; the cosine is between both gradients. "Tiles" are what mezzo
emulates: so many terms in FP32, then one running sum. "Running sums" are as many beside each other, each with every
n-th term, as lanes of a vector have them, and "parts" as many stretches of the axis, as workers have them; both are
added up in BF16 one after the other.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator

import torch
import torch_sums
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch_speed import describe_torch_environment

from mezzo.torch.train.sums.tiles import PRODUCT

_BOUNDS = (0, 1, 16, 164, 1640, 1 << 30)  # places a byte is next in


def draw_operands() -> tuple[Tensor, Tensor, Tensor]:
    """What the head's gradient is a product of: [bytes, places] and [places, width], in BF16; and the bytes that are
    next, [places].
    """
    kind = torch_sums.KINDS["bytes"]
    _, network = torch_sums.train(kind, "FP32", seed=1, steps=torch_sums.WARM)
    given, wanted = kind.data().draw(torch.Generator().manual_seed(2), kind.batch)
    read: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].flatten(0, 1)))
    with torch.no_grad():
        pulls = network(given).flatten(0, 1).softmax(1)
    pulls[torch.arange(len(pulls)), wanted.flatten()] -= 1
    return (pulls / len(pulls)).bfloat16().T.contiguous(), read[0].bfloat16(), wanted.flatten()


def one_after_the_other(left: Tensor, right: Tensor, pieces: Iterable[Tensor]) -> Tensor:
    """The sum of the products of pieces of the axis, each by terms alone, in BF16."""
    parts: Iterator[Tensor] = (PRODUCT(left[:, at].contiguous(), right[at].contiguous(), 1) for at in pieces)
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def main() -> int:
    torch.set_num_threads(1)
    console, environment = Console(width=120), describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    left, right, wanted = draw_operands()
    exact, terms = left.double() @ right.double(), torch.arange(left.shape[1])

    def error(found: Tensor) -> str:
        return f"{float((found.double() - exact).norm() / exact.norm()):.3f}"

    low = PRODUCT(left, right, 1)
    orders = Table("order", "error", box=None)
    orders.add_row("terms alone", error(low))
    for tile in (2, 4, 8, 16, 32):
        orders.add_row(f"tiles of {tile}", error(PRODUCT(left, right, tile)))
    for count in (16, 64):
        lanes = [terms[lane::count] for lane in range(count)]
        orders.add_row(f"{count} running sums", error(one_after_the_other(left, right, lanes)))
        orders.add_row(f"{count} parts", error(one_after_the_other(left, right, terms.chunk(count))))
    console.print(orders)
    rows = Table("places", "bytes", "error", "share of the squared error", "cosine", box=None)
    counts, off = torch.bincount(wanted, minlength=len(left)), low.double() - exact
    for first, last in itertools.pairwise(_BOUNDS):
        here = (counts >= first) & (counts < last)
        if not here.any():
            continue
        mine, right_ones = low.double()[here], exact[here]
        cosine = float((mine * right_ones).sum() / (mine.norm() * right_ones.norm()))
        share = float(off[here].norm() ** 2 / off.norm() ** 2)
        relative = float(off[here].norm() / right_ones.norm())
        rows.add_row(f"{first} to {last - 1}", str(int(here.sum())), f"{relative:.2f}", f"{share:.2f}", f"{cosine:.2f}")
    console.print(rows)
    wide = right.double()
    alike = float(wide.mean(0).norm() / wide.norm(dim=1).mean())
    console.print(f"what is alike at all places of what the head reads: {alike:.2f} of its size", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
