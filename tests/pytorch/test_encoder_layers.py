"""Fused encoder layers of PyTorch, which its modules call in inference, are planned as their parts."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import generate_no_code
from torch import nn

import mezzo.torch
from mezzo.aten.encoder_layers import DECOMPOSITIONS, attention
from mezzo.aten.torch_internals import fused_attention
from mezzo.formats.dtypes import DType
from mezzo.torch.compiler.compiled import account

BATCH, LENGTH, WIDTH, HEADS = 3, 6, 32, 4
EPS = 2.0**-52
# Sums of 64 products at most, some ten roundings one after the other, and norms that divide by what may be half of one.
TOLERANCE = 500 * EPS
FORMATS = {"bf16": DType.BFLOAT16, "int8": DType.QUANTIZED8}
_AHEAD = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
_PADDED = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
_PADDED[1, 4:] = True
_OF_HEADS = _AHEAD.expand(BATCH * HEADS, LENGTH, LENGTH)
MASKS: dict[str, tuple[torch.Tensor | None, torch.Tensor | None]] = {
    "none": (None, None),
    "queries and keys": (_AHEAD, None),
    "keys": (None, _PADDED),
    "both": (_AHEAD, _PADDED),
    "heads": (_OF_HEADS, None),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "norms last": lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True),
    "norms first": lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, norm_first=True),
    "gelu": lambda: nn.TransformerEncoderLayer(
        WIDTH, HEADS, 64, activation="gelu", layer_norm_eps=0.1, batch_first=True
    ),
}


class Attending(nn.Module):
    """Self-attention, and its weights if they are asked for."""

    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.attention, self.options = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True), options

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, padded: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        result: tuple[torch.Tensor, torch.Tensor | None] = self.attention(
            x, x, x, attn_mask=mask, key_padding_mask=padded, **self.options
        )
        return result


MODULES: dict[str, Callable[[], nn.Module]] = {
    **LAYERS,
    "attention": lambda: Attending(need_weights=False),
    "weights": Attending,
    "weights of heads": lambda: Attending(average_attn_weights=False),
}


class _InParts(torch.utils._python_dispatch.TorchDispatchMode):
    """Runs the parts in place of fused operators, and counts these."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        part = DECOMPOSITIONS.get(func)
        self.count += part is not None
        return (part or func)(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", MODULES)
def test_parts_compute_what_the_fused_operator_does(name: str, mask: str) -> None:
    module, x = MODULES[name]().eval().double(), torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)
    for parameter in module.parameters():  # norms too, and biases, which are 0 in a fresh layer
        parameter.add_(torch.randn_like(parameter) / 8)
    expected = module(x, *MASKS[mask])
    with _InParts() as parts:
        actual = module(x, *MASKS[mask])
    assert parts.count == 1
    for ours, theirs in zip(_tensors(actual), _tensors(expected), strict=True):
        assert ours.shape == theirs.shape
        assert float((ours - theirs).abs().max()) <= TOLERANCE * float(theirs.abs().max())


def test_attention_to_other_positions_is_that_of_the_fused_operator() -> None:
    """No module of PyTorch calls it so."""
    query, key, value = (torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64) for _ in range(3))
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    projections = (layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias)
    actual = attention(query, key, value, WIDTH, HEADS, *projections)
    expected = fused_attention(query, key, value, WIDTH, HEADS, *projections)
    for ours, theirs in zip(actual, expected, strict=True):
        assert float((ours - theirs).abs().max()) <= TOLERANCE * float(theirs.abs().max())


def _tensors(result: Any) -> list[torch.Tensor]:
    return [each for each in torch.utils._pytree.tree_leaves(result) if each is not None and each.numel()]


@pytest.mark.parametrize("to", ["bf16", "int8"])
@pytest.mark.parametrize("name", MODULES)
def test_every_linear_of_a_compiled_layer_has_its_own_precision(name: str, to: str, monkeypatch: Any) -> None:
    generate_no_code(monkeypatch)
    module, padded = MODULES[name]().eval(), (_PADDED,) * (name in LAYERS)
    data = [(torch.randn(BATCH, LENGTH, WIDTH), None, *padded)[: 1 + 2 * bool(padded)] for _ in range(8)]
    options: dict[str, Any] = {"data": data} if to == "int8" else {}
    run = mezzo.torch.compile(module, to=to, **options)
    actual, expected = _tensors(run(*data[0]))[0], _tensors(module(*data[0]))[0]
    assert 0.0 < float((actual - expected).norm() / expected.norm()) < 0.03
    (plan,) = account(run).plans
    assert plan is not None
    linears = [node for node in plan.nodes if node.op in ("addmm", "mm")]
    assert [node.precision.compute for node in linears] == [FORMATS[to]] * (4 if name in LAYERS else 2)
    assert not any("encoder_layer" in node.op or "multi_head" in node.op for node in plan.nodes)


def test_a_layer_in_an_exact_region_stays_whole() -> None:
    layer, tail = LAYERS["norms last"]().eval(), nn.Linear(WIDTH, WIDTH)

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with mezzo.torch.keep():
            kept: torch.Tensor = layer(x)
        return kept, tail(kept)

    x = torch.randn(BATCH, LENGTH, WIDTH)
    kept, result = mezzo.torch.compile(compute, to="bf16")(x)
    assert torch.equal(kept, layer(x))
    assert 0.0 < float((result - tail(kept)).norm() / result.norm()) < 0.01


@pytest.mark.parametrize("name", LAYERS)
def test_exported_layers_are_read_as_their_parts(name: str) -> None:
    module, x = MODULES[name]().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    program = torch.export.export(module, (x,), strict=True)
    fused = [node.target for node in program.graph.nodes if node.target in DECOMPOSITIONS]
    assert len(fused) == 1
    plan = mezzo.plan(program, to="bf16")
    linears = [node for node in plan.nodes if node.op == "linear"]
    assert [node.precision.compute for node in linears] == [FORMATS["bf16"]] * 4
    converted = mezzo.convert(program, to="bf16").model
    actual, expected = _tensors(converted.module()(x))[0], _tensors(module(x))[0]
    assert 0.0 < float((actual - expected).norm() / expected.norm()) < 0.02
