"""What a decomposition took apart computes in FP32, whatever it holds; what it hands on is of the planned type."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import without_code
from torch import fx, nn

from mezzo.torch import account, precision
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import wrap
from mezzo.torch.compiler.settings import read_settings


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Behind(nn.Module):
    """An operator between two products, all of them low."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.one, self.two, self.function = nn.Linear(16, 16), nn.Linear(16, 16), function

    def forward(self, x: Any) -> Any:
        with precision("bf16"):
            return self.two(self.function(self.one(x)))


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda y: nn.functional.layer_norm(y, (16,)), "native_layer_norm"),
        (lambda y: nn.functional.group_norm(y, 4), "native_group_norm"),
        (lambda y: nn.functional.softmax(y, -1), "_softmax"),
        (lambda y: nn.functional.batch_norm(y, torch.zeros(16), torch.ones(16)), "batch_norm"),
    ],
    ids=["layer_norm", "group_norm", "softmax", "batch_norm"],
)
def test_pieces_compute_in_fp32_behind_a_low_product(function: Callable[[Any], Any], op: str) -> None:
    graphs: list[fx.Graph] = []

    def noting(module: fx.GraphModule, inputs: object, **given: object) -> Any:
        graphs.append(module.graph)
        return without_code(module, inputs, **given)

    run = wrap(Behind(function).eval(), Backend(read_settings({}), noting))
    run(torch.randn(4, 16))
    plan = account(run).graphs[0].plan
    assert plan is not None
    assert [str(node.precision.compute) for node in plan.nodes if op in node.op] == ["bf16"]
    pieces = [node for node in graphs[0].nodes if op in str(node.meta.get("original_aten"))]
    made = [one for node in pieces for one in torch.utils._pytree.tree_leaves(node.meta["val"])]
    assert len(pieces) > 3 and {one.dtype for one in made} == {torch.float32}


def test_neighbouring_views_are_no_pieces_of_one_operator() -> None:
    """A backward transposes a gradient and a weight, one behind the other: two calls, and both may be low."""
    run = wrap(nn.Linear(16, 8, bias=False), Backend(read_settings({}), without_code))
    with torch.enable_grad():
        run(torch.randn(4, 16, requires_grad=True)).sum().backward()
    plan = account(run).graphs[0].plan
    assert plan is not None
    turned = [node for node in plan.nodes if node.op in ("t", "permute")]
    assert {(node.op, str(node.precision.compute)) for node in turned} == {("permute", "bf16")}
    assert sum(node.name.startswith("backward/") for node in turned) == 3
