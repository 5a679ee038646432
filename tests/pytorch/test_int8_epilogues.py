"""What follows oneDNN's INT8 matmuls and convolutions becomes a part of them, with the same answers."""

import random
from collections.abc import Callable
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
    if kind == "linear":
        return x, PACK_INT8_MATRIX(weight, IN_PAIRS), INT8_SCALES(weight, IN_PAIRS), bias, other
    packed = PACK_INT8_FILTER(weight, IN_PAIRS, 0.02, 120, [1, 1], [1, 1], [1, 1], 1, list(x.shape))
    return x, packed, INT8_SCALES(weight, IN_PAIRS), bias, other


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
        if node.op != "call_function":
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
