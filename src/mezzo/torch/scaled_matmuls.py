"""Matmuls of S8 by S8 whose sums are multiplied by scales: ATen's `_int_mm`, which cuBLASLt
computes on NVIDIA GPUs. Inductor makes the scaling a part of what follows.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from mezzo.aten.read.retype import CAST

_ATEN: Any = torch.ops.aten
INT_MM: Any = _ATEN._int_mm.default
# What cuBLASLt demands: more rows, and multiples of these features and inputs.
_FEWEST_ROWS, MULTIPLE = 17, 8


def multiply_integers(
    call: Callable[..., Any], x: Any, matrix: Any, scales: Any, rows: int | None
) -> Any:
    """The FP32 product of integers [rows, K] by integers [K, N], times a scale for each of N
    columns. `call` inserts an operator into a graph; `rows`: None if they differ from call to call.
    """
    added = _FEWEST_ROWS - 1 if rows is None else max(_FEWEST_ROWS - rows, 0)
    if added:
        x = call(_ATEN.constant_pad_nd.default, x, [0, 0, 0, added], 0)
    sums = call(CAST, call(INT_MM, x, matrix), torch.float32)
    if added:
        sums = call(_ATEN.slice.Tensor, sums, 0, 0, -added)
    # In this order: frozen, PyTorch 2.13 makes oneDNN's matmul of `sums * a * b`, on GPUs too.
    return call(_ATEN.mul.Tensor, scales, sums)


@functools.cache
def multiplies_integers() -> bool:
    """Whether `_int_mm` is right on the GPU of this machine; without one, on its CPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    integers = torch.arange(-128, 128, dtype=torch.int8).view(32, 8)
    exact = integers.int() @ integers.t().int()
    try:
        sums = INT_MM(integers.to(device), integers.to(device).t())
    except RuntimeError:
        return False
    return torch.equal(sums.cpu(), exact)
