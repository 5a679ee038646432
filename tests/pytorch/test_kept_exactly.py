"""What `keep` keeps has the bits of eager PyTorch, forward and where it infers, whatever runs low around it."""

from collections.abc import Callable

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled
from torch import Tensor, nn
from torch.nn import functional as F

import mezzo.torch
from mezzo.torch.compiler import as_written
from mezzo.torch.compiler.compiled import account

_W = torch.randn(32, 32, generator=torch.Generator().manual_seed(1))


def _two_sum(x: Tensor) -> Tensor:
    """What is lost in a sum: nothing is left of it where an associative law is made use of."""
    y = x * 1e4
    total = x + y
    return (total - y) - x


_PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "rounds on purpose": lambda x: x.bfloat16().float(),
    "computes low": lambda x: (lambda y: (y * y + y * 1.1).float())(x.bfloat16()),
    "product, activation and sum, low": lambda x: (F.gelu(x.bfloat16() @ _W.bfloat16()) + 1).float(),
    "product and sum": lambda x: x @ _W + _W[0],
    "norm": lambda x: F.layer_norm(x, (32,)),
    "activation": F.gelu,
    "softmax": lambda x: F.softmax(x * 4, -1),
    "sums": lambda x: x.cumsum(0) / x.std(0) + x.mean(),
    "order of sums": _two_sum,
    "in place": lambda x: x.clone().mul_(3).add_(x).sin_(),
    "shapes": lambda x: torch.cat([x.T.reshape(-1, 32), x.flip(0)], 0).topk(3).values,
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
}


class _Around(nn.Module):
    def __init__(self, part: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.before, self.part, self.behind = nn.Linear(32, 32), part, nn.Linear(32, 32)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        read = self.before(x).relu()
        with mezzo.torch.keep():
            kept = self.part(read)
        return read, kept, self.behind(read)


@pytest.mark.parametrize("part", _PARTS.values(), ids=_PARTS.keys())
def test_kept_part_has_the_bits_of_eager_pytorch(part: Callable[[Tensor], Tensor]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, x = _Around(part), torch.randn(40, 32)
    run = compiled(model)
    with torch.no_grad():
        read, kept, _ = run(x)
        assert torch.equal(kept, part(read))
    read, kept, behind = run(x)
    with torch.no_grad():
        assert torch.equal(kept, part(read))
    (kept.sum() + behind.sum()).backward()
    weight = model.before.weight
    assert weight.grad is not None and bool(weight.grad.isfinite().all())
    assert len(account(run).graphs) == 2
    for graph in account(run).graphs:
        assert graph.plan is not None
        linears = [node for node in graph.plan.nodes if node.name.startswith("behind/addmm")]
        assert {str(node.precision.compute) for node in linears} == {"bf16"}


def test_disabled_autocast_is_compiled_as_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps types and no bits: kernels that the compiler writes are faster."""
    monkeypatch.setattr(as_written, "as_written", lambda *given: pytest.fail("it is kept to the bit"))

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return F.gelu(x).sin()

    torch._dynamo.reset()
    run = compiled(function)
    with torch.no_grad():
        run(torch.randn(8, 32))
    (graph,) = account(run).graphs
    assert graph.plan is not None
