"""What an author computes under a disabled autocast stays as it is written, forward and backward."""

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import Tensor, nn

import mezzo
import mezzo.torch
import mezzo.torch.compiler.regions


class _Careful(nn.Module):
    """A product in low precision on both sides of one that its author keeps in FP32, in all ways to say so."""

    def __init__(self, *, is_nested: bool = False) -> None:
        super().__init__()
        self.before, self.inside, self.behind = (nn.Linear(32, 32) for _ in range(3))
        self.is_nested = is_nested

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x).relu()
        with torch.autocast("cpu", enabled=False):
            x = self.inside(x.float()).sin()
            if self.is_nested:
                with torch.autocast("cpu", torch.bfloat16):
                    x = x @ x.T @ x
        return self.behind(x.float())


def _formats(compiled: object) -> dict[str, str]:
    """What each product of the one compiled graph computes in, forward and backward."""
    (graph,) = mezzo.torch.account(compiled).graphs
    assert graph.plan is not None
    products = [node for node in graph.plan.nodes if node.op.split(".")[0] in ("mm", "addmm", "linear")]
    return {node.name: str(node.precision.compute) for node in products}


def test_product_under_a_disabled_autocast_stays_in_fp32_and_its_neighbours_do_not() -> None:
    torch.manual_seed(0)
    model, x = _Careful().eval(), torch.randn(8, 32)
    compiled = mezzo.torch.compile(model, to="bf16")
    with torch.no_grad():
        compiled(x)
    formats = _formats(compiled)
    assert sorted(formats.values()) == ["bf16", "bf16", "f32"]
    assert [spelled for name, spelled in formats.items() if "inside" in name] == ["f32"]


def test_backward_of_a_disabled_autocast_stays_in_fp32() -> None:
    torch.manual_seed(0)
    compiled = mezzo.torch.compile(_Careful(), to="bf16")
    compiled(torch.randn(8, 32)).sum().backward()
    inside = [spelled for name, spelled in _formats(compiled).items() if "inside" in name]
    assert len(inside) == 3  # the product, and the gradients of its operands
    assert set(inside) == {"f32"}


def test_autocast_enabled_again_inside_is_the_authors_own() -> None:
    torch.manual_seed(0)
    model, x = _Careful(is_nested=True).eval(), torch.randn(8, 32)
    compiled = mezzo.torch.compile(model, to="bf16")
    with torch.no_grad():
        answer = compiled(x)
    assert [spelled for name, spelled in _formats(compiled).items() if "inside" in name] == ["f32"]
    with torch.no_grad():
        assert float((answer - model(x)).norm() / model(x).norm()) < 4 * 2**-8
    # k = 4: as many BF16 products, each rounded by at most half of 2**-7.


def test_region_of_mezzo_inside_a_disabled_autocast_says_more() -> None:
    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False), mezzo.torch.precision("bf16"):
            return x @ x

    compiled = mezzo.torch.compile(function, to="bf16", policy="off")
    with torch.no_grad():
        compiled(torch.randn(32, 32))
    assert list(_formats(compiled).values()) == ["bf16"]


# -- exported programs ------------------------------------------------------------------------------------------------


class _Parted(_Careful):
    """Parts in parts: gradients switched on, a region of mezzo's and an autocast inside a disabled autocast."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x).relu()
        with torch.autocast("cpu", enabled=False):
            with torch.enable_grad():
                x = self.inside(x.float()).sin()
            with mezzo.torch.precision("bf16"):
                x = self.behind(x)
            with torch.autocast("cpu", torch.bfloat16):
                x = x @ x.T @ x
        with torch.autocast("cpu", torch.bfloat16), mezzo.torch.keep():
            x = x.float() + self.before(x)
        return self.behind(x.float())


@pytest.mark.parametrize("strict", [False, True])
def test_disabled_autocast_stays_in_fp32_in_exported_programs(strict: bool) -> None:
    torch.manual_seed(0)
    model, x = _Careful().eval(), torch.randn(8, 32)
    low = mezzo.torch.export(model, (x,), strict=strict)
    types = {name: held.dtype for name, held in low.state_dict.items() if name.endswith("weight")}
    assert types == {
        "before.weight": torch.bfloat16,
        "inside.weight": torch.float32,
        "behind.weight": torch.bfloat16,
    }


@pytest.mark.parametrize("strict", [False, True])
def test_parts_of_exported_programs_keep_their_marks_modules_and_answers(strict: bool) -> None:
    torch.manual_seed(0)
    model, x = _Parted().eval(), torch.randn(8, 32)
    with torch.no_grad(), mezzo.torch.compiler.regions.marking():
        program = torch.export.export(model, (x,), strict=strict)
    before = str(program)
    plan = mezzo.plan(program, to="bf16")
    formats = {node.name: str(node.precision.compute) for node in plan.nodes if node.op == "linear"}
    assert formats == {
        "before/linear": "bf16",
        "inside/linear": "f32",
        "behind/linear": "bf16",
        "behind/linear#1": "bf16",
    }
    assert [node.name for node in plan.nodes if node.rule == "region" and node.op == "sin"] == ["sin"]
    assert str(program) == before, "the program that came in is not changed"
