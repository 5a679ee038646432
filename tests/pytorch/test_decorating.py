"""`mezzo.torch.compile` and regions as decorators, with options and without, as torch.compile and no_grad are used."""

from collections.abc import Iterator
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch

import mezzo.torch
import mezzo.torch.compiler.backend
from mezzo.common.errors import InputError


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No code is generated."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    driving.generate_no_code(monkeypatch)
    yield
    torch._dynamo.reset()


def _precisions(compiled: Any) -> list[str]:
    """What the products of the one graph of a compiled function run in."""
    (graph,) = mezzo.torch.account(compiled).graphs
    return [str(node.precision.compute) for node in graph.plan.nodes if node.op == "mm"]


def test_functions_are_decorated_with_options() -> None:
    low = mezzo.torch.compile(to="fp16", dynamic=True)  # one decorator may serve several

    @low
    def double(x: torch.Tensor) -> torch.Tensor:
        """Twice a square."""
        return 2 * (x @ x)

    @low
    def triple(x: torch.Tensor) -> torch.Tensor:
        return 3 * (x @ x)

    @mezzo.torch.compile()
    def plain(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    x = torch.randn(8, 8)
    for made, times in ((double, 2), (triple, 3), (plain, 1)):
        # Two operands are rounded, and their product is.
        assert driving.error_of(made(x), times * (x @ x)) < 3 * driving.BF16_EPS
    assert (double.__name__, double.__doc__) == ("double", "Twice a square.")
    assert [_precisions(one) for one in (double, triple, plain)] == [["f16"], ["f16"], ["bf16"]]


def test_methods_are_decorated_with_options() -> None:
    class Half(driving.Net):
        @mezzo.torch.compile(to="fp16")
        def half(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.up.weight.t()

    model, x = Half().eval(), torch.randn(4, 32)
    with torch.no_grad():
        assert driving.error_of(model.half(x), x @ model.up.weight.t()) < 3 * driving.BF16_EPS
    assert _precisions(model.half) == ["f16"]


def test_instances_of_modules_are_compiled_by_a_decorator() -> None:
    model = driving.Net().train()
    run: Any = mezzo.torch.compile(to="bf16", weight_grad_reduce="bf16")(model)
    run(torch.randn(4, 32)).sum().backward()
    assert type(run) is mezzo.torch.compiler.compiled.CompiledModule
    assert run._orig_mod is model
    assert len(run.plans) == 1
    assert model.up.weight.grad is not None and model.up.weight.grad.dtype is torch.bfloat16


def test_what_a_decorator_cannot_do_is_told_where_it_stands() -> None:
    with pytest.raises(InputError, match=r"option 'polcy' is unknown \(did you mean 'policy'\?\)"):
        mezzo.torch.compile(polcy="balanced")
    with pytest.raises(InputError, match=r"^NoneType is no module or function; give what is called$"):
        mezzo.torch.compile(to="fp16")(None)  # type: ignore[type-var]  # what a user may write
    with pytest.raises(InputError, match=r"^NoneType is no module or function; give what is called$"):
        mezzo.torch.compile(None, to="fp16")  # type: ignore[call-overload]  # what a user may write


def test_a_region_without_parentheses_is_told_in_one_line() -> None:
    """As torch.no_grad may be written."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(InputError) as caught:
        mezzo.torch.keep(function)
    assert str(caught.value) == (
        f"keep takes nothing, and was given {function!r}; write keep(), as a decorator too: @keep()"
    )


def test_a_class_that_was_compiled_has_an_account() -> None:
    @mezzo.torch.compile(to="fp16")
    class Low(driving.Net):
        pass

    model = Low().eval()
    with torch.no_grad():
        model(torch.randn(4, 32))
    assert len(mezzo.torch.account(Low).graphs) == len(mezzo.torch.account(model).graphs) == 1
    with pytest.raises(InputError, match="was not compiled by mezzo"):
        mezzo.torch.account(driving.Net)
