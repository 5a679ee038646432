"""The backward of attention on CPUs: PyTorch's kernel, and the products of whole sequences that mezzo writes for it.

    pip install "mezzo[torch]"
    python benchmarks/torch_attention.py --json out/torch-attention.json

Query, key, value and what is pulled at the output are BF16, laid out as networks lay them out: heads beside places.
Both run several times within one call, products in code that Inductor has generated. They take turns, at 20 ms of rest
and one call that is not timed. Times are medians of a backward; errors are relative L2 norms against FP64, the largest
of the gradients of query, key and value. "Used" is where mezzo takes products.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch_speed import describe_torch_environment

from mezzo.torch.train.attention import is_short
from mezzo.torch.train.attention_formulas import AttentionOptions, backward_in_parts

_ATEN: Any = torch.ops.aten
_FORWARD: Any = _ATEN._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD: Any = _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
_AT_ONCE, _PAUSE_S = 4, 0.02
SIZES = (  # batch, heads, places, width
    (2, 4, 32, 16), (2, 8, 64, 32), (1, 12, 128, 64), (4, 12, 128, 64), (16, 12, 128, 64), (1, 12, 197, 64),
    (4, 12, 197, 64), (4, 12, 256, 64), (1, 12, 512, 64), (4, 12, 512, 64),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One size. Times are in milliseconds, of one backward."""

    batch: int
    heads: int
    places: int
    width: int
    kernel_ms: float
    products_ms: float
    kernel_error: float
    products_error: float
    is_used: bool


def draw(batch: int, heads: int, places: int, width: int, seed: int) -> list[Tensor]:
    """What a backward is given: pulled, query, key, value, output, logarithms of sums."""
    draws = torch.Generator().manual_seed(seed)
    pulled, *operands = (
        torch.randn(batch, places, heads, width, generator=draws).bfloat16().transpose(1, 2) for _ in range(4)
    )
    return [pulled, *operands, *_FORWARD(*operands, 0.0, False)]


def exact(given: Sequence[Tensor]) -> Sequence[Tensor]:
    """The gradients in FP64."""
    pulled, *operands = (one.double() for one in given[:4])
    leaves = [one.detach().requires_grad_() for one in operands]
    return torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(*leaves), leaves, pulled)


def by_kernel(calls: Sequence[Sequence[Tensor]]) -> list[Sequence[Tensor]]:
    return [_BACKWARD(*given, 0.0, False) for given in calls]


def by_products(calls: Sequence[Sequence[Tensor]]) -> list[Sequence[Tensor]]:
    return [
        backward_in_parts(given, None, AttentionOptions(False, 1 / math.sqrt(given[1].shape[-1])), given[1:4])
        for given in calls
    ]


def measure(size: tuple[int, int, int, int], rounds: int) -> Row:
    """Time both ways at one size, in turns."""
    torch._dynamo.reset()
    calls = [draw(*size, seed) for seed in range(_AT_ONCE)]
    ways: Mapping[str, Callable[..., list[Sequence[Tensor]]]] = {
        "kernel": by_kernel,
        "products": torch.compile(by_products, dynamic=False),
    }
    right = exact(calls[0])
    errors = {name: _error(way(calls)[0], right) for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            time.sleep(_PAUSE_S)
            way(calls)
            begin = time.perf_counter()
            way(calls)
            times[name].append((time.perf_counter() - begin) * 1e3 / _AT_ONCE)
    batch, heads, places, width = size
    return Row(
        batch=batch, heads=heads, places=places, width=width,
        kernel_ms=statistics.median(times["kernel"]), products_ms=statistics.median(times["products"]),
        kernel_error=errors["kernel"], products_error=errors["products"],
        is_used=is_short(batch, heads, places, places),
    )  # fmt: skip


def _error(found: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    return max(float((one.double() - two).norm() / two.norm()) for one, two in zip(found, right, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    console, environment = Console(width=120), describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    rows = [measure(size, given.rounds) for size in SIZES]
    table = Table(box=None)
    titles = (
        "batch",
        "heads",
        "places",
        "width",
        "kernel, ms",
        "products, ms",
        "speed",
        "kernel errs",
        "products",
        "used",
    )
    for title in titles:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            *map(str, (row.batch, row.heads, row.places, row.width)), f"{row.kernel_ms:.2f}", f"{row.products_ms:.2f}",
            f"{row.kernel_ms / row.products_ms:.2f}", f"{row.kernel_error:.2e}", f"{row.products_error:.2e}",
            "yes" if row.is_used else "",
        )  # fmt: skip
    console.print(table)
    if given.json is not None:
        document = {"environment": environment, "threads": given.threads, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
