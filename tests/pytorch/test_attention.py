"""The backward of attention as products: as near FP64 as PyTorch's kernel, and that kernel where it is faster."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled, without_code
from torch import fx, nn
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import mezzo.torch
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import account, wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.train import attention, attention_formulas
from mezzo.torch.train.sums.split_bf16_sums import TWO_SUMS, in_two_passes, sums_in_two_passes

_ATEN: Any = torch.ops.aten
# Both round the same numbers, but in other orders: of some hundred roundings one draw has a tenth more than another.
_MOST = 1.1
needs_two_passes = pytest.mark.skipif(
    not sums_in_two_passes(torch.bfloat16), reason="this CPU has no BF16 products of oneDNN"
)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What an attention is called with. `sharp` scales queries and keys: softmax is as good as a maximum at 4."""

    batch: int = 2
    heads: int = 3
    rows: int = 48
    columns: int = 64
    width: int = 16
    mask: str = ""
    is_causal: bool = False
    scale: float | None = None
    sharp: float = 1.0
    turned: bool = True


class Attention(nn.Module):
    """Scaled dot product attention as networks call it, between casts."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=self.shape.is_causal, scale=self.shape.scale
        )


def _drawn(shape: Shape, seed: int) -> tuple[list[torch.Tensor], torch.Tensor | None, torch.Tensor]:
    """Query, key and value in numbers of BF16, a mask, and what pulls at the output."""
    draws = torch.Generator().manual_seed(seed)

    def tensor(length: int, by: float) -> torch.Tensor:
        sizes = (shape.batch, length, shape.heads, shape.width)
        held = by * torch.randn(sizes, generator=draws)
        held = held.transpose(1, 2) if shape.turned else held.transpose(1, 2).contiguous()
        return held.bfloat16().float()

    operands = [tensor(shape.rows, shape.sharp), tensor(shape.columns, shape.sharp), tensor(shape.columns, 1.0)]
    return operands, _mask(shape, draws), tensor(shape.rows, 1.0)


def _mask(shape: Shape, draws: torch.Generator) -> torch.Tensor | None:
    sizes = {"flat": (shape.rows, shape.columns), "of batch": (shape.batch, 1, shape.rows, shape.columns)}
    sizes["of heads"], sizes["of columns"] = (1, shape.heads, shape.rows, 1), (shape.batch, 1, 1, shape.columns)
    if shape.mask in sizes:
        return torch.randn(sizes[shape.mask], generator=draws)
    if shape.mask == "bool":
        keep = torch.rand(shape.batch, 1, shape.rows, shape.columns, generator=draws) > 0.3
        keep[..., 0, :] = False  # a row that sees nothing
        return keep
    return None


def _run(shape: Shape, seed: int, run: Any, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """The output and the three gradients."""
    operands, mask, pulled = _drawn(shape, seed)
    given = [one.detach().to(dtype).requires_grad_() for one in operands]
    made = run(*given, mask if mask is None or mask.dtype is torch.bool else mask.to(dtype))
    made.to(dtype).backward(pulled.to(dtype))
    return [made.detach(), *(one.grad for one in given if one.grad is not None)]


def _errors(found: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    return [float((one.double() - right).norm() / right.norm()) for one, right in zip(found, exact, strict=True)]


def _targets(run: Any) -> set[str]:
    """Operators of all graphs that are written as products."""
    return {node for graph in account(run).graphs for node in (one.node for one in graph.as_products)}


SHAPES = (
    Shape(),
    Shape(batch=1, heads=5),
    Shape(rows=17, columns=131, width=8, turned=False),
    Shape(rows=64, columns=64, is_causal=True),
    Shape(rows=40, columns=96, is_causal=True, batch=1),
    Shape(mask="flat"),
    Shape(mask="of batch", scale=0.3),
    Shape(mask="of heads", turned=False),
    Shape(mask="of columns"),
    Shape(mask="bool"),
    Shape(mask="bool", batch=1),
    Shape(sharp=4.0),
    Shape(sharp=4.0, mask="of batch"),
)


@needs_two_passes
@pytest.mark.parametrize("part", [1 << 20, 1 << 11], ids=["whole", "in parts"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_err_no_more_than_the_kernel(shape: Shape, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_LEAST", 0)
    monkeypatch.setattr(attention_formulas, "_PART", part)
    run = compiled(Attention(shape))
    exact = _run(shape, 1, Attention(shape), torch.float64)
    written = _errors(_run(shape, 1, run), exact)
    assert len(_targets(run)) == 1, account(run)
    torch._dynamo.reset()
    monkeypatch.setattr(attention, "_LEAST", math.inf)
    kernel = compiled(Attention(shape))
    beside = _errors(_run(shape, 1, kernel), exact)
    assert not _targets(kernel)
    assert all(math.isfinite(one) for one in written), written
    assert all(one <= _MOST * other for one, other in zip(written, beside, strict=True)), (written, beside)


@needs_two_passes
def test_rows_that_see_nothing_give_zeros_and_pull_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_LEAST", 0)
    shape = Shape(mask="bool")
    run = compiled(Attention(shape))
    made, of_query, of_key, of_value = _run(shape, 1, run)
    assert _targets(run)
    assert torch.equal(made[:, :, 0], torch.zeros_like(made[:, :, 0]))
    assert torch.equal(of_query[:, :, 0], torch.zeros_like(of_query[:, :, 0]))
    assert of_key.isfinite().all() and of_value.isfinite().all()


class Block(nn.Module):
    """Attention of a block, with what it is asked."""

    def __init__(self, width: int = 64, heads: int = 4, dropout: float = 0.0, groups: int = 1) -> None:
        super().__init__()
        self.heads, self.dropout, self.groups = heads, dropout, groups
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, 2 * width // groups)
        self.last = nn.Linear(width, width)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, places, width = x.shape
        size, groups = width // self.heads, self.heads // self.groups
        query = self.queries(x).view(batch, places, self.heads, size).transpose(1, 2)
        key, value = self.keys(x).view(batch, places, 2, groups, size).permute(2, 0, 3, 1, 4)
        made = functional.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, enable_gqa=self.groups > 1
        )
        return made.transpose(1, 2).reshape(batch, places, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.last(self.attend(x))
        return answer


_FORWARD = _ATEN._scaled_dot_product_flash_attention_for_cpu.default


def _keep_attention(context: object, op: object, *given: object, **named: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op is _FORWARD else CheckpointPolicy.PREFER_RECOMPUTE


def _keep_nothing(context: object, op: object, *given: object, **named: object) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_RECOMPUTE


class Checkpointed(Block):
    """A block whose attention the backward computes again, or keeps, by a policy."""

    def __init__(self, policy: Callable[..., CheckpointPolicy]) -> None:
        super().__init__()
        self.contexts = partial(create_selective_checkpoint_contexts, policy)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = checkpoint(self.attend, x, use_reentrant=False, context_fn=self.contexts)
        answer: torch.Tensor = self.last(made)
        return answer


def _kept_bytes(model: nn.Module, x: torch.Tensor, memory: float | None) -> int:
    """What is kept between the passes, weights and the input apart."""
    own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), x)}
    kept: dict[int, int] = {}

    def pack(held: torch.Tensor) -> torch.Tensor:
        storage = held.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return held

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held):
        made = compiled(model, memory=memory)(x)
    made.sum().backward()
    return sum(kept.values())


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "plain": Block,
    "kept by a policy": lambda: Checkpointed(_keep_attention),
    "computed again": lambda: Checkpointed(_keep_nothing),
}


@needs_two_passes
@pytest.mark.parametrize("memory", [None, 0.9])
@pytest.mark.parametrize("name", MODELS)
def test_no_more_is_kept_than_with_the_kernel(name: str, memory: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 64, 64)
    kept = []
    for least in (0, math.inf):
        torch._dynamo.reset()
        monkeypatch.setattr(attention, "_LEAST", least)
        kept.append(_kept_bytes(MODELS[name](), x, memory))
    assert 0 < kept[0] <= kept[1]


@needs_two_passes
@pytest.mark.parametrize(
    ("model", "to", "places", "dynamic"),
    [
        (Block(), "fp16", 96, False),  # FP16's range is too small for two passes
        (Block(), "bf16", 600, False),  # the kernel is as fast
        (Block(), "bf16", 8, False),  # so few that calls are all the time it takes
        (Block(), "bf16", 96, True),  # lengths are not known
        (Block(dropout=0.5), "bf16", 96, False),  # the kernel drops nothing either
        (Block(groups=2), "bf16", 96, False),  # heads that share keys
    ],
    ids=["FP16", "long", "small", "dynamic", "dropout", "groups"],
)
def test_what_products_are_not_faster_at_stays_as_it_is(model: Block, to: str, places: int, dynamic: bool) -> None:
    run = compiled(model, to=to, dynamic=dynamic)
    run(torch.randn(2, places, 64)).sum().backward()
    assert not _targets(run)


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        pending += set(pending.pop().all_input_nodes) - found
        found.update(pending)
    return found


@needs_two_passes
def test_no_scores_are_computed_early_and_wait() -> None:
    """What hangs on nothing that is pulled could be computed as the backward begins, for all layers at once."""
    graphs: list[fx.Graph] = []

    def keep(module: fx.GraphModule, inputs: object, **ignored: object) -> Callable[..., Any]:
        graphs.append(module.graph)
        return without_code(module, inputs)

    run = wrap(nn.Sequential(Block(), Block()), Backend(read_settings({}), keep), fullgraph=True)
    run(torch.randn(2, 96, 64)).sum().backward()
    forward, backward = graphs
    assert not forward.find_nodes(op="call_function", target=TWO_SUMS)
    wide = backward.find_nodes(op="call_function", target=TWO_SUMS)
    assert len(wide) == 4
    assert all(any(one.name.startswith("tangents") for one in _ancestors(node)) for node in wide)


@needs_two_passes
def test_explain_and_account_tell_of_it() -> None:
    run = compiled(Block())
    run(torch.randn(2, 96, 64)).sum().backward()
    assert "backward of attention as products" in repr(account(run))
    said = " ".join(repr(mezzo.torch.explain(run, "*scaled_dot_product*")).split())
    assert "1 node: each runs as products of whole sequences" in said


def test_a_cpu_that_rounds_before_it_adds_has_no_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounding(summand: torch.Tensor, one: torch.Tensor, other: torch.Tensor, beta: float) -> torch.Tensor:
        return beta * summand + one @ other

    monkeypatch.setattr(torch, "baddbmm", rounding)
    sums_in_two_passes.cache_clear()
    try:
        assert not sums_in_two_passes(torch.bfloat16)
        assert not sums_in_two_passes(torch.float16)
    finally:
        sums_in_two_passes.cache_clear()


@needs_two_passes
@pytest.mark.parametrize("seed", range(12))
def test_two_passes_hold_sums_to_a_part_in_2_to_the_17(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    batch, rows, columns = (int(torch.randint(1, most, (), generator=draws)) for most in (4, 70, 70))
    terms = int(torch.randint(1, 900, (), generator=draws))
    shapes = (batch, rows, terms), (batch, terms, columns)
    one, other = (torch.randn(*sizes, generator=draws).bfloat16() for sizes in shapes)
    if seed % 2:
        one = one.transpose(1, 2).contiguous().transpose(1, 2)
    if seed % 3:
        other = other.transpose(1, 2).contiguous().transpose(1, 2)
    for found, exact in (
        (in_two_passes(one, other), one.double() @ other.double()),
        (in_two_passes(one[0], other[0]), one[0].double() @ other[0].double()),
    ):
        # A rest of 2^-9 is rounded by 2^-9 of itself; FP32 sums err by some eps of their terms beside.
        largest = one.double().abs().amax() * other.double().abs().amax()
        bound = 2.0**-17 * exact.abs() + 4 * 2.0**-23 * math.sqrt(terms) * largest
        assert found.dtype is torch.float32
        assert bool(((found.double() - exact).abs() <= bound).all()), seed


@needs_two_passes
def test_sums_that_pass_the_range_stay_infinite() -> None:
    large = torch.full((2, 2), 2.0**70, dtype=torch.bfloat16)
    assert torch.equal(in_two_passes(large, large), torch.full((2, 2), math.inf))
    assert in_two_passes(large, large * 0).eq(0).all()
