"""Low products planned to hand on FP32 hand on their sums, unrounded: the machine's own, or emulated ones."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled, error_of, without_code
from random_modules import WIDTH, RandomModule
from torch import fx, nn

import mezzo.torch
from mezzo.ir.selectors import Site
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import account, wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.onednn.kernels import layout_of
from mezzo.torch.train.sums import fp32_accumulator_outputs
from mezzo.torch.train.sums.exact_products import PRODUCT
from mezzo.torch.train.sums.fp32_accumulator_outputs import Way, has_fp32_outputs

_ATEN: Any = torch.ops.aten
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
# Sums of at most 4 x 27 terms, in another order where weights are laid out otherwise: each addition is off by half an
# eps of a partial sum, which is no larger than the largest result but for what cancels.
_ANOTHER_ORDER = 108 / 2 * torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    has_fp32_outputs.cache_clear()
    yield
    has_fp32_outputs.cache_clear()


def _products_in_fp32(node: Site) -> tuple[str, str, str] | None:
    """A policy: products run low, and hand on FP32."""
    return ("allow", "fp32", "fp32") if node.op in (*_PRODUCTS, "convolution") else None


@contextmanager
def _out_dtype_on_cpus(*, rounds: bool = False) -> Iterator[None]:
    """`out_dtype` for CPUs as GPUs have it, or one that rounds sums before it widens them."""

    def product(one: torch.Tensor, other: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        made = one.float() @ other.float()
        return (made.to(one.dtype) if rounds else made).to(out_dtype)

    with torch.library._scoped_library("aten", "IMPL") as library:
        for name in ("mm.dtype", "bmm.dtype"):
            library.impl(name, product, "CPU")
        yield


def _graph_of(model: nn.Module, *given: torch.Tensor, **options: object) -> tuple[fx.Graph, Any]:
    """The inference graph as the driver hands it on, and what was compiled."""
    graphs: list[fx.Graph] = []

    def keep(module: fx.GraphModule, inputs: object, **ignored: object) -> Callable[..., Any]:
        graphs.append(module.graph)
        return without_code(module, inputs)

    run = wrap(model, Backend(read_settings(options), keep), fullgraph=True)
    with torch.no_grad():
        run(*given)
    (graph,) = graphs
    return graph, run


def test_a_machine_has_it_where_out_dtype_gives_sums_that_the_format_has_no_number_for() -> None:
    assert not has_fp32_outputs(torch.bfloat16, "cpu")  # PyTorch 2.13 has no such kernel for CPUs
    has_fp32_outputs.cache_clear()
    with _out_dtype_on_cpus(rounds=True):
        assert not has_fp32_outputs(torch.bfloat16, "cpu")
    has_fp32_outputs.cache_clear()
    with _out_dtype_on_cpus():
        assert has_fp32_outputs(torch.bfloat16, "cpu")
        assert has_fp32_outputs(torch.float16, "cpu")
    assert has_fp32_outputs(torch.bfloat16, "cpu")  # asked once


@pytest.mark.parametrize("seed", range(6))
def test_emulated_sums_are_those_of_rounded_operands(seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    rows, terms, columns = (int(size) for size in torch.randint(1, 300, (3,), generator=made))
    one, other = (torch.randn(*size, generator=made).bfloat16() for size in ((3, rows, terms), (3, terms, columns)))
    found = PRODUCT(one, other)
    assert found.dtype is torch.float32
    # FP32 sums of n terms err by their eps a term at most, of the sum of the terms' sizes.
    bound = terms * 2.0**-24 * (one.double().abs() @ other.double().abs())
    assert bool(((found.double() - one.double() @ other.double()).abs() <= bound).all()), f"seed {seed}"


def _linear_by_hand(model: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    low = (x.bfloat16().float(), model.weight.bfloat16().float(), model.bias.bfloat16().float())
    return low[0] @ low[1].T + low[2]


def test_products_and_their_gradients_are_not_rounded_behind_their_sums() -> None:
    model, x, gradient = nn.Linear(32, 16), torch.randn(64, 32), torch.randn(64, 16)
    run = compiled(model, policy=_products_in_fp32, accumulate="fp32")
    answer = run(x)
    answer.backward(gradient)
    assert torch.equal(answer.detach(), _linear_by_hand(model, x).detach())
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, gradient.bfloat16().float().T @ x.bfloat16().float())
    (graph,) = account(run).graphs
    assert [one.way for one in graph.fp32_outputs] == [Way.EMULATED, Way.EMULATED]


@pytest.mark.parametrize(
    ("model", "feed"),
    [(nn.Linear(32, 16), (64, 32)), (nn.Conv2d(8, 16, 2), (2, 8, 9, 9))],
    ids=["product", "convolution"],
)
def test_inductor_keeps_the_rounding_of_operands_and_adds_none(model: nn.Module, feed: tuple[int, ...]) -> None:
    x = torch.randn(feed)
    by_hand = copy.deepcopy(model)
    by_hand.load_state_dict({name: held.bfloat16().float() for name, held in model.state_dict().items()})
    with torch.no_grad():
        found = mezzo.torch.compile(model, policy=_products_in_fp32, accumulate="fp32")(x)
        wanted = by_hand(x.bfloat16().float())
    assert error_of(found, wanted) < 32 * 2.0**-24  # the order of FP32 sums of 32 terms; BF16 would err by 2**-9
    assert error_of(wanted, model(x).detach()) > 2.0**-12  # operands were rounded


def test_without_being_asked_for_results_are_rounded_as_before_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    with torch.no_grad():
        run = compiled(model, policy=_products_in_fp32)
        found = run(x)
        assert "2 products rounded before FP32" in repr(account(run))
        assert "it is rounded before it is FP32, as nothing here hands on its sums" in " ".join(
            repr(mezzo.torch.explain(run, "up/addmm")).split()
        )
        page = mezzo.torch.explain(run, "up/addmm")._repr_html_()
        assert "it is rounded before it is FP32, as nothing here hands on its sums" in page
        torch._dynamo.reset()
        monkeypatch.setattr("mezzo.torch.compiler.passes.way_for", lambda *about: None)
        assert torch.equal(found, compiled(model, policy=_products_in_fp32)(x))


def test_where_sums_are_asked_to_be_low_there_is_nothing_to_hand_on() -> None:
    with torch.no_grad():
        _, run = _graph_of(driving.Net().eval(), torch.randn(4, 32), policy=_products_in_fp32, accumulate="bf16")
    assert account(run).graphs[0].fp32_outputs == ()


def test_the_machines_own_products_are_taken_where_it_has_them_and_explain_tells() -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    emulated, _ = _graph_of(model, x, policy=_products_in_fp32, accumulate="fp32")
    torch._dynamo.reset()
    has_fp32_outputs.cache_clear()
    with _out_dtype_on_cpus():
        native, run = _graph_of(model, x, policy=_products_in_fp32)
        with torch.no_grad():
            found = run(x)
    swapped = {_ATEN.mm.dtype: PRODUCT}
    targets = [
        [swapped.get(node.target, node.target) for node in graph.nodes if node.op == "call_function"]
        for graph in (native, emulated)
    ]
    assert targets[0] == targets[1]
    assert sum(node.target is _ATEN.mm.dtype for node in native.nodes) == 2
    torch._dynamo.reset()
    has_fp32_outputs.cache_clear()
    with torch.no_grad():
        assert torch.equal(found, compiled(model, policy=_products_in_fp32, accumulate="fp32")(x))
    assert "it hands on its FP32 sums: out_dtype of PyTorch's products, which holds in a test here" in " ".join(
        repr(mezzo.torch.explain(run, "up/addmm")).split()
    )


def test_who_reads_low_reads_the_sums_rounded() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            product = x @ y
            return product, product @ z

    given = (torch.randn(8, 32), torch.randn(32, 16), torch.randn(16, 8))
    with torch.no_grad():
        answers = compiled(Both(), policy=_products_in_fp32, accumulate="fp32")(*given)
    x, y, z = (one.bfloat16().float() for one in given)
    assert torch.equal(answers[0], x @ y)
    assert torch.equal(answers[1], (x @ y).bfloat16().float() @ z)


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 1), (1, 0.7), (0.3, 0.7), (2, 0)])
@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
@pytest.mark.parametrize("is_native", [True, False], ids=["native", "emulated"])
def test_sums_and_summands_are_scaled_in_fp32(name: str, alpha: float, beta: float, is_native: bool) -> None:
    leading = (3,) if name == "baddbmm" else ()
    given = [torch.randn(*leading, *size) for size in ((8, 16), (8, 32), (32, 16))]
    if beta == 0:
        given[0][:] = torch.inf  # which nobody looks at

    class Scaled(nn.Module):
        def forward(self, *given: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = getattr(torch, name)(*given, alpha=alpha, beta=beta)
            return made

    with _out_dtype_on_cpus() if is_native else nullcontext(), torch.no_grad():
        run = compiled(Scaled(), policy=_products_in_fp32, accumulate="fp32")
        found = run(*given)
    summand, one, other = (held.bfloat16().float() for held in given)
    wanted = (one @ other) * alpha
    assert torch.equal(found, wanted if beta == 0 else wanted + summand * beta)
    assert [one.way for one in account(run).graphs[0].fp32_outputs] == [Way.NATIVE if is_native else Way.EMULATED]


@pytest.mark.parametrize("seed", range(8))
def test_convolutions_hand_on_the_fp32_sums_of_rounded_operands(seed: int) -> None:
    made = torch.Generator().manual_seed(seed)
    rank, groups, stride, padding, dilation, is_last, has_bias = (
        int(torch.randint(low, high, (1,), generator=made))
        for low, high in ((1, 4), (1, 3), (1, 3), (0, 3), (1, 3), (0, 2), (0, 2))
    )
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)[rank - 1 if seed % 4 else 3]
    rank = rank if seed % 4 else 2
    model = kind(4, 6, 3, stride, padding, groups=groups, bias=bool(has_bias), dilation=dilation).eval()
    x = torch.randn(2, 4, *[9] * rank, generator=made)
    if is_last and rank > 1:
        x = x.contiguous(memory_format=layout_of(rank + 2, last=True))
    rounded = kind(4, 6, 3, stride, padding, groups=groups, bias=bool(has_bias), dilation=dilation)
    rounded.load_state_dict({name: held.bfloat16().float() for name, held in model.state_dict().items()})
    with torch.no_grad():
        run = compiled(model, policy=_products_in_fp32, accumulate="fp32")
        found, wanted = run(x), rounded(x.bfloat16().float())
    assert error_of(found, wanted) <= _ANOTHER_ORDER, f"seed {seed}"
    assert [one.way for one in account(run).graphs[0].fp32_outputs] == [Way.CONVOLVED], f"seed {seed}"


@pytest.mark.parametrize("is_native", [True, False], ids=["products have out_dtype", "nothing has"])
def test_convolutions_are_rounded_and_told_where_nobody_asked_for_sums(is_native: bool) -> None:
    with _out_dtype_on_cpus() if is_native else nullcontext():
        _, run = _graph_of(nn.Conv2d(3, 8, 3).eval(), torch.randn(1, 3, 8, 8), policy=_products_in_fp32)
    assert [one.way for one in account(run).graphs[0].fp32_outputs] == [Way.ROUNDED]
    assert "1 product rounded before FP32" in repr(account(run))


@pytest.mark.parametrize("seed", range(12))
def test_no_product_of_a_random_program_is_rounded_on_its_way_to_fp32(seed: int) -> None:
    model, x = RandomModule(seed).eval(), torch.randn(2, 8, WIDTH)
    graph, run = _graph_of(model, x, policy=_products_in_fp32, accumulate="fp32")
    widened = [
        node.args[0].target
        for node in graph.nodes
        if node.target is fp32_accumulator_outputs.CAST
        and node.args[1] is torch.float32
        and isinstance(node.args[0], fx.Node)
    ]
    packets = {getattr(target, "overloadpacket", None) for target in widened}
    assert packets.isdisjoint({_ATEN.mm, _ATEN.bmm, _ATEN.addmm}), f"seed {seed}"
    assert all(one.way is not Way.ROUNDED for one in account(run).graphs[0].fp32_outputs), f"seed {seed}"
