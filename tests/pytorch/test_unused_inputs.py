"""Inductor sees empty inputs in place of low-precision weights that a plan does not use, as what is passed is empty:
PyTorch 2.11 asserts the sizes of all inputs.
"""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import fx, nn

from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.onednn.kernels import packs
from mezzo.torch.torch_internals import compile_fx_inner


class _Looking(nn.Module):
    """A table, which runs in FP32, and a matmul, which does not."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.product = nn.Embedding(50, 32), nn.Linear(32, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.product(self.table(ids))
        return result


def test_inputs_that_a_plan_does_not_use_are_traced_as_empty() -> None:
    seen: list[tuple[bool, tuple[int, ...]]] = []

    def watch(module: fx.GraphModule, examples: Sequence[Any], **options: Any) -> Any:
        nodes = module.graph.find_nodes(op="placeholder")
        seen.extend((bool(node.users), tuple(given.shape)) for node, given in zip(nodes, examples, strict=True))
        return compile_fx_inner(module, examples, **options)

    network = _Looking().eval()
    torch._dynamo.reset()
    compiled = torch.compile(network, backend=Backend(read_settings({}, None), watch))
    ids = torch.arange(6)
    with torch.no_grad():
        compiled(ids)
    assert (True, (50, 32)) in seen
    # The matmul reads its weight's copy, in place of the weight; of its bias too, where oneDNN packs no weight for it.
    unused = {(0,), (16, 32)} if packs(torch.bfloat16) else {(0,), (16, 32), (16,)}
    assert {shape for is_used, shape in seen if not is_used} == unused
