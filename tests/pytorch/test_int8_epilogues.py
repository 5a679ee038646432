"""What follows oneDNN's INT8 matmuls and convolutions becomes a part of them, with the same answers."""

import random
from collections.abc import Callable
from operator import getitem
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import IN_PAIRS
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import mezzo.torch
from mezzo.aten.edit.quantizing import DEQUANTIZE_TENSOR, QUANTIZE_TENSOR
from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler import passes
from mezzo.torch.compiler.building import arguments_of
from mezzo.torch.onednn.int8_epilogues import fuse_int8
from mezzo.torch.onednn.int8_kernels import (
    INT8_CONVOLUTION,
    INT8_LINEAR,
    INT8_SCALES,
    PACK_INT8_FILTER,
    PACK_INT8_MATRIX,
    adds_to_int8,
    convolves_int8,
    multiplies_int8,
)
from mezzo.torch.torch_internals import select_decomp_table

pytestmark = pytest.mark.skipif(
    not (multiplies_int8(IN_PAIRS) and convolves_int8(IN_PAIRS)), reason="oneDNN has no INT8 kernels on this machine"
)
Follower = Callable[[Any, Any], Any]

_ROWS, _INPUTS, _FEATURES, _SIDE = 6, 16, 8, 5
_STEP, _ZERO = 0.05, 120  # of results
_PLAIN = (1.0, 0)


def _linear(x: Any, packed: Any, scales: Any, bias: Any) -> Any:
    return INT8_LINEAR(x, packed, scales, bias, None, _FEATURES, 0.02, 120, *_PLAIN, torch.float32, "none", "")


def _convolution(x: Any, packed: Any, scales: Any, bias: Any) -> Any:
    sizes = ([_FEATURES, _INPUTS, 3, 3], [1, 1], [1, 1], [1, 1], 1)
    steps = (0.02, 120, *_PLAIN, *_PLAIN, torch.float32)
    return INT8_CONVOLUTION(x, packed, scales, bias, None, *sizes, *steps, False, "none", [], "")


def _operands(kind: str) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    image = (_SIDE, _SIDE) if kind == "convolution" else ()
    x = torch.randint(0, 256, (_ROWS, _INPUTS, *image), dtype=torch.uint8, generator=generator)
    weight = torch.randn(_FEATURES, _INPUTS, *[3 for _ in image], generator=generator) / 4
    bias = torch.randn(_FEATURES, generator=generator)
    other = torch.randn(_ROWS, _FEATURES, *image, generator=generator)
    scales = INT8_SCALES(weight, IN_PAIRS)
    if kind == "linear":
        return x, PACK_INT8_MATRIX(weight, scales), scales, bias, other
    packed = PACK_INT8_FILTER(weight, scales, 0.02, 120, [1, 1], [1, 1], [1, 1], 1, list(x.shape))
    return x, packed, scales, bias, other


def _quantized(value: Any, dtype: torch.dtype = torch.uint8) -> Any:
    span = (0, 255) if dtype is torch.uint8 else (-128, 127)
    return QUANTIZE_TENSOR(value, _STEP, _ZERO if dtype is torch.uint8 else 3, *span, dtype)


def _low(value: Any) -> Any:
    return CAST(value, torch.bfloat16)


def _wide(value: Any) -> Any:
    return CAST(value, torch.float32)


def _traced(kind: str, follower: Follower) -> tuple[fx.GraphModule, tuple[Any, ...]]:
    product = _linear if kind == "linear" else _convolution
    operands = _operands(kind)

    def run(x: Any, packed: Any, scales: Any, bias: Any, other: Any) -> Any:
        return follower(product(x, packed, scales, bias), other)

    return make_fx(run, decomposition_table=select_decomp_table(), tracing_mode="fake")(*operands), operands


def _described(graph: fx.Graph) -> list[str]:
    """The calls of a graph, with what a product does besides."""
    lines = []
    for node in graph.nodes:
        if node.op != "call_function" or node.target is getitem:
            continue
        text = str(node.target).split(".")[1]
        if node.target in (INT8_LINEAR, INT8_CONVOLUTION):
            about = arguments_of(node)
            does = [str(about["dtype"])[6:], about["after"], "" if about["other"] is None else "sum"]
            text = " ".join([text, *(word for word in does if word not in ("", "none"))])
        lines.append(text)
    return lines


_VIEWED = [2, _ROWS // 2, _FEATURES]
_BOTH: dict[str, tuple[Follower, str]] = {
    "BF16": (lambda x, other: _low(x), "bfloat16"),
    "integers": (lambda x, other: _quantized(x), "uint8"),
    "signed": (lambda x, other: _quantized(x, torch.int8), "int8"),
    "relu": (lambda x, other: F.relu(x), "float32 relu"),
    "relu, BF16": (lambda x, other: _low(F.relu(x)), "bfloat16 relu"),
    "BF16, relu": (lambda x, other: F.relu(_low(x)), "bfloat16 relu"),
    "silu, integers": (lambda x, other: _quantized(F.silu(x)), "uint8 swish"),
    "silu inside BF16": (lambda x, other: _low(F.silu(_wide(_low(x)))), "bfloat16 swish"),
    "sum": (lambda x, other: x + other, "float32 sum"),
    "sum of BF16": (lambda x, other: F.relu(_low(x) + _low(other)), "bfloat16 relu sum"),
    "sum, relu": (lambda x, other: F.relu(other + x), "float32 relu sum"),
}
_LINEAR: dict[str, tuple[Follower, str]] = {
    "gelu, integers": (lambda x, other: _quantized(F.gelu(x)), "uint8 gelu"),
    "gelu by tanh": (lambda x, other: F.gelu(x, approximate="tanh"), "float32 gelu"),
    "tanh": (lambda x, other: _low(torch.tanh(x)), "bfloat16 tanh"),
    "sum, relu, integers": (lambda x, other: _quantized(F.relu(x + other)), "uint8 relu sum"),
    "heads": (lambda x, other: _low(x.view(_VIEWED).permute(1, 0, 2)), "bfloat16"),
    "heads of integers": (lambda x, other: _quantized(x.view(_VIEWED).permute(1, 0, 2)), "uint8"),
    "a viewed sum": (lambda x, other: F.relu(x.view(_VIEWED) + other.view(_VIEWED)), "float32 relu sum"),
    "viewed, activated": (lambda x, other: _quantized(F.gelu(x.view(_VIEWED)).view(_ROWS, -1)), "uint8 gelu"),
}
_CONVOLUTION: dict[str, tuple[Follower, str]] = {
    "relu6": (lambda x, other: _quantized(F.relu6(x)), "uint8 hardtanh"),
    "hardswish": (lambda x, other: F.hardswish(x), "float32 hardswish"),
}
_APART: dict[str, tuple[Follower, str]] = {
    "read twice": (lambda x, other: (_low(x), x + 1), "float32"),
    "read in two types": (lambda x, other: (_low(x), _quantized(x)), "float32"),
    "read before": (lambda x, other: F.relu(x) + x, "float32"),
    "a part of a span": (lambda x, other: QUANTIZE_TENSOR(x, _STEP, 60, 0, 127, torch.uint8), "float32"),
    "another activation": (lambda x, other: F.leaky_relu(x, 0.1), "float32"),
    "a row": (lambda x, other: x + other[:1], "float32"),
    "twice itself": (lambda x, other: x + x, "float32"),
    "FP16": (lambda x, other: CAST(x, torch.float16), "float32"),
}


def _agree(fused: Any, plain: Any) -> None:
    """Whether answers differ by the roundings that a kernel leaves out: half an eps each of what was added at most,
    and by one step at a tie.
    """
    fused, plain = (answer if isinstance(answer, tuple) else (answer,) for answer in (fused, plain))
    for after, before in zip(fused, plain, strict=True):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        if after.dtype.is_floating_point:
            eps = max(torch.finfo(after.dtype).eps, torch.finfo(torch.bfloat16).eps)
            assert float((after.double() - before.double()).abs().max()) <= 3 * eps * float(before.abs().max())
        else:
            assert int((after.int() - before.int()).abs().max()) <= 1


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        *((kind, case) for kind in ("linear", "convolution") for case in (_BOTH | _APART)),
        *(("linear", case) for case in _LINEAR),
        *(("convolution", case) for case in _CONVOLUTION),
    ],
)
def test_what_becomes_a_part_of_a_product(kind: str, case: str) -> None:
    follower, does = (_BOTH | _LINEAR | _CONVOLUTION | _APART)[case]
    module, operands = _traced(kind, follower)
    plain, before = module(*operands), _described(module.graph)
    if (kind, case) == ("linear", "sum of BF16") and not adds_to_int8(torch.bfloat16):
        does = "bfloat16"  # AVX2 alone: the sum is apart

    fuse_int8(module.graph)
    module.graph.lint()
    module.recompile()

    lines = _described(module.graph)
    (product,) = [line for line in lines if line.startswith("int8_")]
    assert product == f"int8_{kind} {does}"
    assert (lines == before) is (case in _APART)
    _agree(module(*operands), plain)


def test_a_sum_of_two_products_is_a_part_of_the_later_one() -> None:
    def run(x: Any, packed: Any, scales: Any, bias: Any, other: Any) -> Any:
        first, second = (_convolution(x, packed, scales, bias) for _ in range(2))
        return _low(F.relu(first + second))

    operands = _operands("convolution")
    module = make_fx(run, decomposition_table=select_decomp_table(), tracing_mode="fake")(*operands)
    plain = module(*operands)

    fuse_int8(module.graph)
    module.recompile()

    assert _described(module.graph) == ["int8_convolution bfloat16", "int8_convolution bfloat16 relu sum"]
    _agree(module(*operands), plain)


def test_readers_of_one_value_share_its_integers() -> None:
    def follow(x: Any, other: Any) -> Any:
        x = F.sigmoid(x)
        return tuple(_quantized(x.view(_VIEWED)).sum(axis) for axis in range(3))

    module, operands = _traced("linear", follow)
    plain = module(*operands)

    fuse_int8(module.graph)
    module.recompile()

    assert _described(module.graph).count("quantize_per_tensor") == 1
    for after, before in zip(module(*operands), plain, strict=True):
        assert torch.equal(after, before)


def test_integers_are_added_in_a_convolution() -> None:
    def follow(x: Any, other: Any) -> Any:
        step = (0.03, 100, 0, 255, torch.uint8)
        floats = DEQUANTIZE_TENSOR(QUANTIZE_TENSOR(other, *step), *step)
        return _quantized(F.relu(x + floats))

    module, operands = _traced("convolution", follow)
    plain = module(*operands)

    fuse_int8(module.graph)
    module.recompile()

    assert _described(module.graph) == ["quantize_per_tensor", "int8_convolution uint8 relu sum"]
    _agree(module(*operands), plain)


_POOLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pooled": (lambda pooled: _quantized(pooled), "max_pool2d"),
    "read as floats too": (lambda pooled: (_quantized(pooled), pooled + 1), "max_pool2d dequantize_per_tensor add"),
    "another scale": (
        lambda pooled: QUANTIZE_TENSOR(pooled, 2 * _STEP, _ZERO, 0, 255, torch.uint8),
        "dequantize_per_tensor _low_memory_max_pool_with_offsets quantize_per_tensor",
    ),
    "never quantized": (lambda pooled: pooled + 1, "dequantize_per_tensor _low_memory_max_pool_with_offsets add"),
}


@pytest.mark.parametrize("case", _POOLS)
@pytest.mark.parametrize("sizes", [((3, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (0, 0), (1, 1), True)])
def test_maxima_are_of_integers_where_scales_are_alike(case: str, sizes: tuple[Any, ...]) -> None:
    follower, calls = _POOLS[case]

    def follow(x: Any, other: Any) -> Any:
        floats = DEQUANTIZE_TENSOR(_quantized(F.relu(x)), _STEP, _ZERO, 0, 255, torch.uint8)
        return follower(F.max_pool2d(floats, *sizes))

    module, operands = _traced("convolution", follow)
    module.graph.eliminate_dead_code()  # the positions of maxima
    plain = module(*operands)

    fuse_int8(module.graph)
    module.graph.lint()
    module.recompile()

    assert _described(module.graph) == ["int8_convolution uint8 relu", *calls.split()]
    _agree(module(*operands), plain)


def test_batch_norms_are_a_part_of_frozen_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    model = nn.Sequential(*layers)
    x = torch.randn(8, 4, 9, 9)
    with torch.no_grad():
        for norm in (model[1], model[4]):
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
        model(x)  # which makes statistics
        model.eval()
        lines: list[str] = []

        def fuse(graph: fx.Graph) -> None:
            fuse_int8(graph)
            graph.eliminate_dead_code()
            lines.extend(_described(graph))

        monkeypatch.setattr(passes, "fuse_int8", fuse)
        frozen, free = (mezzo.torch.compile(model, to="int8", data=[(x,)], freeze=freeze) for freeze in (True, False))
        answer, right, exact = frozen(x), free(x), model(x)

    assert [line for line in lines if line.startswith("int8_conv")][:2] == [
        "int8_convolution uint8 relu",
        "int8_convolution float32",
    ]
    # The same integers, up to ties; some steps of 1/255 of a range in the second product's operand.
    assert float((answer - right).norm() / right.norm()) < 0.01
    assert float((answer - exact).norm() / exact.norm()) < 0.03


class _Residual(nn.Module):
    """A stem with max pooling, two residual blocks, of which the second has integers to add, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(*_normed(3, 8, 3), nn.ReLU())
        self.first, self.second = (nn.Sequential(*_normed(8, 8, 3), nn.ReLU(), *_normed(8, 8, 3)) for _ in range(2))
        self.last, self.classify = nn.Conv2d(8, 16, 3), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        x = F.relu(self.first(x) + x)
        x = F.relu(x + self.second(x))
        result: torch.Tensor = self.classify(self.last(x).mean((2, 3)))
        return result


def _normed(inputs: int, outputs: int, side: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, side, padding=1, bias=False), nn.BatchNorm2d(outputs)


@pytest.mark.parametrize("is_frozen", [True, False])
def test_residual_sums_of_convolutions_read_integers(is_frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def fuse(graph: fx.Graph) -> None:
        fuse_int8(graph)
        graph.eliminate_dead_code()
        lines[:] = _described(graph)

    monkeypatch.setattr(passes, "fuse_int8", fuse)
    model = _Residual()
    data = [(torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]
    with torch.no_grad():
        for batch in data:
            model(*batch)  # which makes statistics
        compiled = mezzo.torch.compile(model.eval(), to="int8", data=data[:3], freeze=is_frozen)
        answer, exact = compiled(*data[3]), model(*data[3])
    (plan,) = compiled.plans
    assert plan is not None
    assert [f"{node.name} {node.precision.compute}" for node in plan.nodes if node.op in ("add", "relu")] == [
        "stem.2/relu f32",
        "first.2/relu f32",
        "add int8",
        "relu int8",
        "second.2/relu f32",
        "add#1 int8",
        "relu#1 int8",
    ]
    assert "max_pool2d" in lines
    if is_frozen:
        assert [line for line in lines if line.startswith(("int8_conv", "int8_linear"))] == [
            "int8_convolution uint8 relu",
            "int8_convolution uint8 relu",
            "int8_convolution uint8 relu sum",
            "int8_convolution uint8 relu",
            "int8_convolution uint8 relu sum",
            "int8_convolution float32",
            "int8_linear float32",
        ]
    # A third of a step of 1/255 of a range, of some eight standard deviations, in each of seven operands and weights.
    assert 0.0 < float((answer - exact).norm() / exact.norm()) < 14**0.5 * 8 / 255 / 3


def _random_follower(rng: random.Random, kind: str) -> Follower:
    """A random chain of sums, activations, views and conversions, some of them read twice."""
    steps: list[Callable[[Any, Any], Any]] = [
        lambda x, other: F.relu(x),
        lambda x, other: F.silu(x),
        lambda x, other: torch.tanh(x),
        lambda x, other: x + other.to(x.dtype),
        lambda x, other: _wide(_low(x)),
        lambda x, other: x.clone(),
        lambda x, other: x * 1.5,
    ]
    if kind == "linear":
        steps += [lambda x, other: F.gelu(x), lambda x, other: x.view(_VIEWED).view(_ROWS, _FEATURES)]
    chosen = rng.choices(steps, k=rng.randint(0, 4))
    ends = rng.choices((_low, _quantized, _wide, lambda x: x.sum(1)), k=rng.randint(1, 2))

    def follow(x: Any, other: Any) -> Any:
        for step in chosen:
            x = step(x, other)
        return tuple(end(x) for end in ends)

    return follow


@pytest.mark.parametrize("kind", ["linear", "convolution"])
@pytest.mark.parametrize("seed", range(30))
def test_random_followers_give_the_same_answers(kind: str, seed: int) -> None:
    module, operands = _traced(kind, _random_follower(random.Random(seed), kind))
    plain = module(*operands)

    fuse_int8(module.graph)
    module.graph.lint()
    module.recompile()

    _agree(module(*operands), plain)
