"""Gradients of low convolutions planned to hand on FP32: FP32 sums of rounded operands, each gradient by itself."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled, dump, without_code
from torch import fx, nn

import mezzo.torch
from mezzo.ir.selectors import Site
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import account, wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.inspect.accounts import GraphAccount
from mezzo.torch.onednn.kernels import layout_of
from mezzo.torch.train.gradient_reduction import reduce_in
from mezzo.torch.train.sums.exact_products import CONVOLUTION_INPUT, CONVOLUTION_WEIGHT
from mezzo.torch.train.sums.fp32_accumulator_outputs import Way

_BACKWARD: Any = torch.ops.aten.convolution_backward.default
_FP32 = 2.0**-24  # half its eps: what one rounding errs by


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that sums in FP32: on others `accumulate="fp32"` rewrites every product."""
    monkeypatch.setattr("mezzo.torch.train.sums.accumulating.sums_are_wide", lambda low, device: True)
    torch._dynamo.reset()
    torch.manual_seed(0)


def _in_fp32(node: Site) -> tuple[str, str, str] | None:
    """A policy: convolutions and their gradients run low, and hand on FP32."""
    return ("allow", "fp32", "fp32") if node.op in ("convolution", "convolution_backward") else None


def _drawn(seed: int) -> tuple[Any, torch.Tensor]:
    """A convolution of one to three dimensions, transposed or not, of any sizes and layout, and what it reads."""
    made = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (1,), generator=made))

    rank, groups, is_transposed, is_last = draw(1, 4), draw(1, 3), draw(0, 2), draw(0, 2)
    kinds = (
        (nn.Conv1d, nn.Conv2d, nn.Conv3d),
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    )[is_transposed]
    sizes = {
        "kernel_size": [draw(1, 4) for _ in range(rank)],
        "stride": [draw(1, 3) for _ in range(rank)],
        "padding": [draw(0, 2) for _ in range(rank)],
        "dilation": [draw(1, 3) for _ in range(rank)],
    }
    if is_transposed:
        longest = zip(sizes["stride"], sizes["dilation"], strict=True)
        sizes["output_padding"] = [draw(0, max(pair)) for pair in longest]
    kind: Any = kinds[rank - 1]
    model = kind(4 * groups, 6, groups=groups, bias=bool(draw(0, 2)), **sizes)
    x = torch.randn(draw(1, 4), 4 * groups, *(draw(7, 10) for _ in range(rank)), generator=made)
    if is_last and rank > 1:
        x = x.contiguous(memory_format=layout_of(rank + 2, last=True))
    return model, x


def _gradients_of(model: Any, operands: list[torch.Tensor], *, has_bias: bool) -> tuple[torch.Tensor, ...]:
    """Gradients of input, weight and bias as PyTorch has them of what is pulled, an input and a weight."""
    of = [model.out_channels] if has_bias else None
    rank, is_transposed = len(model.kernel_size), isinstance(model, nn.modules.conv._ConvTransposeNd)
    added = model.output_padding if is_transposed else [0] * rank
    sizes = (model.stride, model.padding, model.dilation, is_transposed, added, model.groups)
    found = _BACKWARD(*operands, of, *map(_listed, sizes), [True, True, has_bias])
    return tuple(one for one in found if one is not None)


def _listed(held: Any) -> Any:
    return list(held) if isinstance(held, tuple) else held


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("seed", range(20))
def test_gradients_are_fp32_sums_of_rounded_operands(seed: int, low: torch.dtype) -> None:
    model, x = _drawn(seed)
    to = "bf16" if low is torch.bfloat16 else "fp16"
    run = compiled(model, policy=_in_fp32, accumulate="fp32", to=to)
    answer = run(x.requires_grad_())
    pulled = torch.randn(answer.shape, generator=torch.Generator().manual_seed(seed))
    answer.backward(pulled)
    found = [one.grad for one in (x, *model.parameters())]
    rounded = [one.detach().to(low).double() for one in (pulled, x, model.weight)]
    exact, sizes = (
        _gradients_of(model, operands, has_bias=model.bias is not None)
        for operands in (rounded, [one.abs() for one in rounded])
    )
    # A gradient sums no more terms than pulled numbers of all images, times channels for the input's: FP32 sums err by
    # half its eps a term at most, of the sum of the terms' sizes.
    terms = pulled.numel()
    for name, own, right, size in zip(("input", "weight", "bias"), found, exact, sizes, strict=False):
        assert own is not None
        assert bool(((own.double() - right).abs() <= terms * _FP32 * size).all()), f"{name}, seed {seed}"
        # which the low format's own rounding is far beyond
        assert float((right.to(low).double() - right).norm()) > 8 * float((own.double() - right).norm()), (
            f"{name}, seed {seed}"
        )
    assert [(one.node, one.way) for one in _graph(run).fp32_outputs] == [
        ("convolution", Way.CONVOLVED),
        ("backward/convolution_backward", Way.CONVOLVED),
    ], f"seed {seed}"


def _graph(run: Any) -> GraphAccount:
    (graph,) = account(run).graphs
    return graph


@pytest.mark.parametrize("seed", range(20))
def test_gradients_are_laid_out_as_compilers_are_told(seed: int) -> None:
    model, x = _drawn(seed)
    low = [one.detach().bfloat16() for one in (model(x), x, model.weight)]
    is_transposed = isinstance(model, nn.modules.conv._ConvTransposeNd)
    added = list(model.output_padding) if is_transposed else [0] * len(model.kernel_size)
    sizes = (*map(_listed, (model.stride, model.padding, model.dilation)), is_transposed, added, model.groups)
    for target in (CONVOLUTION_INPUT, CONVOLUTION_WEIGHT):
        for last in {False, x.dim() > 3}:
            # in the order of sums alone two calls may differ
            torch.library.opcheck(target, (*low, *sizes, last), test_utils=("test_schema", "test_faketensor"))
            like = low[1] if target is CONVOLUTION_INPUT else low[2]
            made = target(*low, *sizes, last)
            assert made.shape == like.shape, f"seed {seed}"
            assert made.dtype is torch.float32
            assert made.is_contiguous(memory_format=layout_of(x.dim(), last=last)), f"seed {seed}"


class _Two(nn.Module):
    """Two convolutions: what comes back between them is read low by the first one's backward, and where something is
    added between them, in FP32 by the sum that is its gradient.
    """

    def __init__(self, *, adds: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, bias=False), nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.shift = nn.Parameter(torch.zeros(3, 1, 1)) if adds else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self.first(x)
        made: torch.Tensor = self.second(held if self.shift is None else held + self.shift)
        return made


def _backward_of(model: nn.Module, x: torch.Tensor, **options: object) -> tuple[str, GraphAccount]:
    """The calls of the backward as Inductor gets it, and what is told of it."""
    graphs: list[fx.Graph] = []

    def keep(module: fx.GraphModule, inputs: object, **about: object) -> Callable[..., Any]:
        if about.get("is_backward"):
            graphs.append(module.graph)
        return without_code(module, inputs)

    run = wrap(model, Backend(read_settings({"policy": _in_fp32, **options}), keep), fullgraph=True)
    run(x).sum().backward()
    (graph,) = graphs
    for node in graph.find_nodes(op="call_function", target=_BACKWARD):
        assert node.args[-1] == [one is not None for one in node.meta["val"]]  # it computes what is picked, no more
    return dump(graph), _graph(run)


def test_what_is_read_in_fp32_alone_is_handed_on_and_the_rest_stays() -> None:
    found, told = _backward_of(_Two(), torch.randn(2, 2, 6, 6), accumulate="fp32")
    assert found == (
        "bf16[2,2,8,8] = convert_element_type.default(f32[2,2,8,8])\n"
        "bf16[2,3,4,4], -, - = convolution_backward.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "f32[3,2,2,2] = wide_convolution_weight.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "f32[2] = sum.dim_IntList(bf16[2,2,8,8])\n"
        "f32[3,2,3,3] = wide_convolution_weight.default(bf16[2,3,4,4], bf16[2,2,6,6], bf16[3,2,3,3])"
    )
    assert [(one.node, one.way) for one in told.fp32_outputs] == [
        ("second/convolution", Way.CONVOLVED),
        ("second/backward/convolution_backward", Way.CONVOLVED),
        ("first/backward/convolution_backward", Way.CONVOLVED),
    ]


def test_who_reads_a_gradient_low_beside_others_reads_its_sums_rounded() -> None:
    found, _ = _backward_of(_Two(adds=True), torch.randn(2, 2, 6, 6), accumulate="fp32")
    assert found == (
        "bf16[2,2,8,8] = convert_element_type.default(f32[2,2,8,8])\n"
        "f32[2,3,4,4] = wide_convolution_input.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "bf16[2,3,4,4] = convert_element_type.default(f32[2,3,4,4])\n"
        "f32[3,2,2,2] = wide_convolution_weight.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "f32[2] = sum.dim_IntList(bf16[2,2,8,8])\n"
        "f32[1,3,1,1] = sum.dim_IntList(f32[2,3,4,4])\n"
        "f32[3,2,3,3] = wide_convolution_weight.default(bf16[2,3,4,4], bf16[2,2,6,6], bf16[3,2,3,3])"
    )


def test_gradients_that_nobody_reads_in_fp32_are_left_alone_and_not_told() -> None:
    """Weights that are not trained have none, and what is pulled at the first convolution is read low alone."""
    model = _Two()
    model.second.requires_grad_(False)
    found, told = _backward_of(model, torch.randn(2, 2, 6, 6), accumulate="fp32")
    assert found == (
        "bf16[2,2,8,8] = convert_element_type.default(f32[2,2,8,8])\n"
        "bf16[2,3,4,4], -, - = convolution_backward.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "f32[3,2,3,3] = wide_convolution_weight.default(bf16[2,3,4,4], bf16[2,2,6,6], bf16[3,2,3,3])"
    )
    assert [one.node for one in told.fp32_outputs] == ["second/convolution", "first/backward/convolution_backward"]


def test_where_nobody_asked_for_sums_all_is_rounded_and_that_is_told() -> None:
    found, told = _backward_of(_Two(), torch.randn(2, 2, 6, 6))
    assert found == (
        "bf16[2,2,8,8] = convert_element_type.default(f32[2,2,8,8])\n"
        "bf16[2,3,4,4], bf16[3,2,2,2], bf16[2] = "
        "convolution_backward.default(bf16[2,2,8,8], bf16[2,3,4,4], bf16[3,2,2,2])\n"
        "-, bf16[3,2,3,3], - = convolution_backward.default(bf16[2,3,4,4], bf16[2,2,6,6], bf16[3,2,3,3])\n"
        "f32[3,2,2,2] = widened.default(bf16[3,2,2,2], bf16[3,2,3,3])\n"
        "f32[2] = widened.default(bf16[2], bf16[3,2,3,3])\n"
        "f32[3,2,3,3] = widened.default(bf16[3,2,3,3])"
    )
    assert [(one.node, one.way) for one in told.fp32_outputs] == [
        ("second/convolution", Way.ROUNDED),
        ("second/backward/convolution_backward", Way.ROUNDED),
        ("first/backward/convolution_backward", Way.ROUNDED),
    ]


def test_explain_and_the_account_tell_of_gradients() -> None:
    said = {}
    for accumulate in (None, "fp32"):
        torch._dynamo.reset()
        run = compiled(_Two(), policy=_in_fp32, accumulate=accumulate)
        run(torch.randn(2, 2, 6, 6)).sum().backward()
        told = repr(mezzo.torch.explain(run, "second/backward/convolution_backward"))
        said[accumulate] = (" ".join(told.split()), "3 products rounded before FP32" in repr(account(run)))
    assert f"it {Way.ROUNDED.value}" in said[None][0]
    assert f"it {Way.CONVOLVED.value}" in said["fp32"][0]
    assert [is_rounded for _, is_rounded in said.values()] == [True, False]


@pytest.mark.parametrize("accumulate", [None, "fp32"])
@pytest.mark.parametrize("places", [64, 256], ids=["as products", "as a kernel"])
def test_attention_is_rounded_whatever_is_asked_and_no_option_is_said_to_help(places: int, accumulate: str) -> None:
    class Attends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    def in_fp32(node: Site) -> tuple[str, str, str] | None:
        return ("allow", "fp32", "fp32") if "attention" in node.op else None

    run = compiled(Attends(), policy=in_fp32, accumulate=accumulate)
    run(torch.randn(1, 4, places, 16).requires_grad_()).sum().backward()
    graph = _graph(run)
    assert [one.way for one in graph.fp32_outputs] == [Way.LEFT, Way.LEFT]
    (_, backward) = graph.fp32_outputs
    told = " ".join(repr(mezzo.torch.explain(run, backward.node)).split())
    assert f"it {Way.LEFT.value}" in told
    assert ("as products of whole sequences" in told) == bool(graph.as_products)


@pytest.mark.parametrize("is_last", [False, True], ids=["channels first", "channels last"])
def test_batches_and_images_may_change_their_sizes(is_last: bool) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2))
    run = mezzo.torch.compile(model, policy=_in_fp32, accumulate="fp32", dynamic=True)
    single = mezzo.torch.compile(model, policy=_in_fp32, accumulate="fp32", dynamic=False)
    for batch, size in ((2, 9), (5, 12), (3, 9)):
        x = torch.randn(batch, 4, size, size)
        x = x.contiguous(memory_format=torch.channels_last) if is_last else x
        found, wanted = ([one.clone() for one in _trained(each, model, x)] for each in (run, single))
        for own, right in zip(found, wanted, strict=True):
            # Sums in another order: a low operand between them may round to its neighbour, one of many terms.
            assert float((own - right).norm()) <= 2.0**-8 * float(right.norm())
    assert {one.way for graph in account(run).graphs for one in graph.fp32_outputs} == {Way.CONVOLVED}


def _trained(run: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    given = x.detach().requires_grad_()
    run(given).square().mean().backward()
    return [one.grad for one in (given, *model.parameters()) if one.grad is not None]


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d], ids=["plain", "transposed"])
def test_inductor_keeps_the_rounding_of_operands_and_adds_none_to_gradients(kind: Any) -> None:
    model, x = kind(8, 16, 3, padding=1), torch.randn(4, 8, 9, 9)
    run = mezzo.torch.compile(model, policy=_in_fp32, accumulate="fp32")
    pulled = torch.randn(4, 16, 9, 9)
    run(x.requires_grad_()).backward(pulled)
    rounded = [one.detach().bfloat16().double() for one in (pulled, x, model.weight)]
    exact, sizes = (
        _gradients_of(model, operands, has_bias=True) for operands in (rounded, [one.abs() for one in rounded])
    )
    terms = 4 * 9 * 9  # of a weight; the input's are 9 taps of 16 channels
    for own, right, size in zip((x.grad, *(one.grad for one in model.parameters())), exact, sizes, strict=True):
        assert own is not None
        assert bool(((own.double() - right).abs() <= terms * _FP32 * size).all())


def test_gradients_that_are_asked_for_low_are_sums_rounded_once() -> None:
    model, x, pulled = nn.Conv2d(4, 6, 3), torch.randn(2, 4, 8, 8), torch.randn(2, 6, 6, 6)
    reduce_in(model, "bf16")
    run = compiled(model, policy=_in_fp32, accumulate="fp32", weight_grad_reduce="bf16")
    run(x).backward(pulled)
    rounded = [one.detach().bfloat16() for one in (pulled, x, model.weight)]
    wide = CONVOLUTION_WEIGHT(*rounded, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, False)
    assert model.weight.grad is not None
    assert torch.equal(model.weight.grad, wide.bfloat16())
