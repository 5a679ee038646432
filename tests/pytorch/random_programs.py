"""Random programs of core operators with regions in them, as Python text that runs in three ways: planned, in FP64, and
with its regions carried out by hand under autocast.

Every value is of [batch, 8, 16] and a few units large. What jumps (comparisons, indices, conversions to integers) reads
the program's inputs alone, whose numbers every float type holds, so that answers differ by rounding only.
"""

import itertools
import random
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

import mezzo.torch

WIDTH, ROWS, WORDS = 16, 8, 12
_NUMBERS = itertools.count()
# {a} and {b} are values made before, {x} is the input, {n} the value that is made.
VIEWS = (
    "{a}.transpose(1, 2).reshape({a}.shape[0], 8, 16)",
    "{a}.unflatten(2, (4, 4)).transpose(2, 3).flatten(2)",
    "{a}.flip(1).roll(3, 2)",
    "{a}[:, ::2].repeat_interleave(2, 1)",
    "{a}.unsqueeze(1).expand(-1, 3, -1, -1).mean(1)",
    "{a}.select(1, 3).unsqueeze(1) + {b}",
    "{a}.diagonal(dim1=1, dim2=2).unsqueeze(-1) * {b} * 0.5",
    "{a}.permute(2, 0, 1).contiguous().permute(1, 2, 0)",
    "{a}.narrow(1, 2, 4).repeat(1, 2, 1)",
    "{a}.view(-1, 128).view({a}.shape[0], 16, 8).mT",
    "{a}.unfold(1, 4, 4).permute(0, 1, 3, 2).reshape({b}.shape)",
    "functional.pixel_shuffle({a}.reshape(-1, 8, 4, 4), 2).reshape({a}.shape)",
    "functional.pad({a}, (2, 2))[..., 1:17]",
    "{a}.tril() + {b}.triu(1)",
    "{a}[:, :1].expand_as({b}) - {b}",
    "torch.rot90({a}, 2, (1, 2))",
)
WRITES = (
    "{a}.clone()\n{n}[:, 2:4] = {b}[:, 4:6].to({n}.dtype)",
    "{a}.clone()\n{n}.add_({b}.to({n}.dtype), alpha=0.3)",
    "{a}.clone()\n{n}.view(-1).mul_(0.9)",
    "{a}.clone()\n{n}.transpose(1, 2)[:, 3] += 1",
    "{a}.clone()\n{n}.masked_fill_({x} > 1, 0.5)",
    "{a}.clone()\n{n}.index_put_((torch.tensor([0]), torch.tensor([3])), {b}[:1, 5].to({n}.dtype), accumulate=True)",
    "{a}.clone().relu_().clamp_(max=3)",
    "{a}.clone()\n{n}.index_add_(1, torch.tensor([1, 6]), {b}[:, :2].to({n}.dtype))",
    "{a}.clone()\n{n}.scatter_add_(2, self.places.expand_as({n}), {b}.to({n}.dtype))\n{n}.mul_(0.5)",
    "{a}.clone()\n{n}.scatter_(2, self.places.expand_as({n})[..., :3], {b}.to({n}.dtype))",
    "torch.zeros_like({a}).copy_({b})",
    "{a}.clone()\n{n}[{x} > 0.5] = 0.25",
    "{a}.clone()\n{n}.index_copy_(1, torch.tensor([5, 0]), {b}[:, 2:4].to({n}.dtype))",
    "{a}.clone()\n{n}.addcmul_({b}.to({n}.dtype), {a}.to({n}.dtype), value=0.1)",
    "{a}.clone()\n{n}[0].fill_(0.75)\n{n}.diagonal(dim1=1, dim2=2).sub_(0.5)",
)
BUFFERS = (
    "{a} + self.held\nself.held.copy_({a}.mean(0))",
    "{a} * (self.count % 3 + 1) * 0.5\nself.count.add_(1)",
    "{a} - self.held\nself.held.lerp_({a}.mean(0).to(self.held.dtype), 0.5)",
    "{a} + self.held[None]\nself.held[1:3] = {a}[0, 1:3].to(self.held.dtype)",
    "(self.held.mul_(0.5) + {a})",
    "{a} @ self.square\nself.square.add_({a}[0].mT.to(self.square.dtype) @ {b}[0].to(self.square.dtype), alpha=0.01)",
)
REDUCTIONS = (
    "{a} - {a}.mean(1, keepdim=True)",
    "{a}.sum(2, keepdim=True) * 0.1 + {b}",
    "{a} - {a}.amax(-1, keepdim=True)",
    "{a} / ({a}.std(-1, keepdim=True) + 0.5)",
    "{a} * torch.rsqrt({a}.pow(2).mean(-1, keepdim=True) + 1e-6)",
    "{a} - torch.logsumexp({a}, -1, keepdim=True)",
    "{a} / ({a}.norm(dim=-1, keepdim=True) + 1)",
    "{a}.tanh().prod(1, keepdim=True) + {b}",
    "{a}.cumsum(1) * 0.2",
    "{a}.sigmoid().cumprod(2) + {b}",
    "{a}.sort(2).values",
    "{a}.topk(4, 1).values.repeat(1, 2, 1)",
    "{a}.var(1, keepdim=True).sqrt() + {b}",
    "torch.maximum({a}, {b}.amin(1, keepdim=True))",
    "{a} * ({x} > 0).any(1, keepdim=True) + ({x} > 0).sum(2, keepdim=True) * 0.1",
    "{a}.max(2).values.unsqueeze(2) - {b}",
)
MASKS = (
    "torch.softmax({a}.masked_fill({x} > 1, -torch.inf), -1) * 4",
    "torch.softmax({a}.masked_fill({x} > 1, torch.finfo({a}.dtype).min), -1) * 4",
    "torch.softmax(torch.where({x} > -1, {a}, -torch.inf), -1) @ {b}.mT @ {a}",
    "(torch.softmax({a} @ {b}.mT * 0.25 + self.bias, -1) @ {b})",
    "torch.softmax(({a} @ {b}.mT * 0.25).masked_fill(~self.causal, -torch.inf), -1) @ {a}",
    "functional.scaled_dot_product_attention({a}, {b}, {b}, attn_mask=self.causal)",
    "functional.scaled_dot_product_attention({a}[:, None], {b}[:, None], {a}[:, None], is_causal=True)[:, 0]",
    "functional.scaled_dot_product_attention({a}.to({b}.dtype), {b}, {b}, attn_mask=self.bias.to({b}.dtype))",
    "torch.nan_to_num(torch.softmax({a}.masked_fill({x}[:, :, :1] > 0, -torch.inf), -1)) + {b}",
    "{a}.masked_fill({x} > 0, 0) + {b} * ({x} <= 0)",
    "torch.where(ids[..., None] > 4, {a}, {b})",
    "functional.log_softmax({a}, 1).clamp(min=-8)",
)
INDICES = (
    "{a}.gather(1, ids.unsqueeze(-1).expand(-1, -1, 16) % 8)",
    "{a}[:, torch.arange(7, -1, -1)]",
    "{a}.index_select(2, self.places)",
    "{a} + self.table(ids)",
    "{a} + self.table(ids // 2)[:, torch.tensor([1, 1, 0, 3, 2, 5, 7, 6])]",
    "functional.one_hot(ids, 16).to({a}.dtype) + {a}",
    "torch.take_along_dim({a}, {x}.argsort(dim=1, stable=True), 1)",
    "{a} * ((ids * 3 + 1) % 7).unsqueeze(-1) * 0.2",
    "{a} + (ids << 1 & 5).cumsum(1).unsqueeze(-1) * 0.05",
    "{a} + torch.arange(8).view(8, 1) // 2 * 0.1",
    "{a}[torch.arange({a}.shape[0]).flip(0)]",
    "{a} + {x}.argmax(2, keepdim=True) * 0.1",
    "{a} + torch.bucketize({x}, torch.tensor([-1.0, 0.0, 1.0]).to({x}.dtype)) * 0.1",
    "torch.repeat_interleave({a}[:, :4], 2, dim=1)",
    "{a} + functional.embedding(ids % 8, {b}[0]).to({a}.dtype)",
    "{a} + functional.embedding_bag(ids, self.table.weight).unsqueeze(1)",
)
NORMS = (
    "self.norm({a})",
    "self.group({a})",
    "self.batch({a})",
    "functional.rms_norm({a}, (16,))",
    "functional.instance_norm({a})",
    "functional.normalize({a}, dim=-1) * 3",
    "functional.layer_norm({a}, (8, 16))",
    "functional.local_response_norm({a}, 3)",
)
PRODUCTS = (
    "self.linears[0]({a})",
    "self.linears[1]({a}) + {b}",
    "functional.gelu(self.linears[2]({a}))",
    "functional.linear({a}, self.linears[0].weight.mT, self.norm.bias)",
    "{a} @ self.square",
    "torch.bmm({a}, {b}.mT.to({a}.dtype)) @ {a} * 0.05",
    "torch.baddbmm({b}.to({a}.dtype), {a}, self.square.to({a}.dtype).expand({a}.shape[0], -1, -1), "
    "beta=0.5, alpha=0.5)",
    "torch.einsum('bte,bse->bts', {a}, {b}) @ {a} * 0.05",
    "torch.addmm(self.norm.bias, {a}.flatten(0, 1), self.square).view({a}.shape)",
    "({a} @ self.norm.weight).unsqueeze(-1) * 0.2 + {b}",
    "torch.tensordot({a}, self.square.to({a}.dtype), 1)",
    "torch.outer({a}[0, 0], {a}[0, 1]).mean(0) + {b}",
    "self.up({a}).chunk(2, -1)[0] * torch.sigmoid(self.up({b}).chunk(2, -1)[1])",
    "self.kept({a})",
    "self.low({a})",
    "self.tied({a})",
    "functional.linear({a}, torch.cat([self.linears[0].weight[:8], self.linears[1].weight[8:]]))",
    "functional.linear({a}, self.linears[0].weight * 0.5)",
)
CONVOLUTIONS = (
    "self.conv({a})",
    "functional.relu(self.conv({a})) + {b}",
    "self.image({a}[:, None]).mean(1)",
    "self.depth({a}.mT).mT",
    "self.transposed({a})[..., :16]",
    "functional.max_pool1d({a}, 3, 1, 1)",
    "functional.avg_pool1d({a}, 3, 1, 1)",
    "functional.avg_pool2d({a}[:, None], 3, 1, 1)[:, 0]",
    "functional.interpolate({a}[..., ::2], scale_factor=2, mode='nearest')",
    "functional.interpolate({a}[:, None], size=(4, 8), mode='bilinear').repeat(1, 1, 2, 2)[:, 0]",
    "functional.adaptive_avg_pool1d({a}, 4).repeat(1, 1, 4)",
    "self.batch(self.conv({a})).relu()",
    "functional.pad({a}, (1, 1), mode='reflect')[..., 1:17] * 0.9",
)
JOINS = (
    "torch.cat([{a}[:, :4], {b}[:, 4:]], 1)",
    "torch.stack({a}.chunk(2, 2)[::-1], 2).flatten(2)",
    "torch.cat([{a}.split([3, 5], 1)[1], {b}.split([3, 5], 1)[0]], 1)",
    "sum({a}.unbind(1)[:3]).unsqueeze(1) * 0.3 + {b}",
    "torch.cat(torch.tensor_split({a}, 3, 2)[::-1], 2)",
    "torch.cat([{a}, {b}.to({a}.dtype), {a}], 0)[{a}.shape[0] : 2 * {a}.shape[0]]",
    "torch.slice_scatter({a}, {b}[:, :2].to({a}.dtype), 1, 3, 5)",
)
PLAIN = (
    "{a} + {b}",
    "{a} * {b} * 0.5",
    "({a} / ({b}.abs() + 1))",
    "{a}.clamp(-2.0, 2.0).tanh()",
    "functional.silu({a}).sigmoid()",
    "torch.where({x} > 0, {a}, {b} * 0.5)",
    "torch.exp(-{a}.abs()) + torch.log1p({b}.abs())",
    "1 - {a}",
    "torch.lerp({a}, {b}.to({a}.dtype), 0.3)",
    "torch.addcdiv({a}, {b}.to({a}.dtype), {a}.abs() + 1, value=0.5)",
    "functional.softplus({a}) - functional.elu({b})",
    "torch.sin({a}) * torch.cos({b}) + torch.atan2({a}, {b}.abs() + 1)",
    "{a}.sign() * ({a}.abs() + 0.1).sqrt()",
    "functional.hardswish({a}) + functional.leaky_relu({b}, 0.1)",
    "functional.dropout({a}, 0.5, training=False) + {b} ** 2 * 0.1",
    "torch.hypot({a}, {b}.to({a}.dtype)) - torch.erf({a})",
    "functional.glu(torch.cat([{a}, {b}.to({a}.dtype)], -1), -1)",
)
TYPES = (
    "{a}.to(LOW).to(HIGH) + {b}",
    "({a}.to(LOW) * {b}.to(LOW)).to(HIGH) * 0.5",
    "{a}.double().tanh().to(HIGH)",
    "{a} + ({x} * 4).to(torch.int32).to(HIGH) * 0.1",
    "({a} * ({x} > 0).to({a}.dtype) + {b}.type_as({a}))",
    "{a} + ids.to(HIGH).unsqueeze(-1).log1p()",
    "self.linears[0]({a}.to(HIGH)).to(HIGH)",
    "torch.complex({a}.to(HIGH), {b}.to(HIGH)).abs()",
    "{a}.to(LOW).to(HIGH)",
    "({a} + {x}.to(torch.uint8).to(HIGH) * 0.01)",
)
STEPS = (
    *(VIEWS, WRITES, BUFFERS, REDUCTIONS, MASKS, INDICES, NORMS),
    *(PRODUCTS, PRODUCTS, PRODUCTS, CONVOLUTIONS, JOINS, PLAIN, TYPES),
)


class Layers(nn.Module):
    """What the programs' `forward` finds on its module; the regions of two modules are those of the text's names."""

    def __init__(self, keep: Callable[[], Any], precision: Callable[[str], Any], low: str) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=place != 1) for place in range(3))
        self.norm, self.group, self.batch = nn.LayerNorm(WIDTH), nn.GroupNorm(4, ROWS), nn.BatchNorm1d(ROWS)
        self.conv, self.depth = (
            nn.Conv1d(ROWS, ROWS, 3, padding=1),
            nn.Conv1d(16, 16, 3, padding=2, dilation=2, groups=16),
        )
        self.image, self.transposed = nn.Conv2d(1, 4, 3, padding=1), nn.ConvTranspose1d(ROWS, ROWS, 3)
        self.up, self.tied = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.linears[1].weight
        self.table = nn.Embedding(WORDS, WIDTH)
        self.kept, self.low = keep()(nn.Linear(WIDTH, WIDTH)), precision(low)(nn.Linear(WIDTH, WIDTH))
        self.square, self.held, self.bias = (torch.Tensor(),) * 3
        for name, held in (
            ("square", torch.randn(WIDTH, WIDTH) * 0.25),
            ("held", torch.randn(ROWS, WIDTH)),
            ("count", torch.zeros((), dtype=torch.int64)),
            ("places", torch.randperm(WIDTH)),
            ("causal", torch.ones(ROWS, ROWS, dtype=torch.bool).tril()),
            ("bias", torch.zeros(ROWS, ROWS).masked_fill(~torch.ones(ROWS, ROWS).tril().bool(), -torch.inf)),
        ):
            delattr(self, name) if hasattr(self, name) else None
            self.register_buffer(name, held)
        for weight in (self.norm.weight, self.norm.bias, self.batch.weight):
            nn.init.normal_(weight, 1.0, 0.3)
        self.batch.running_mean, self.batch.running_var = torch.randn(ROWS) * 0.1, torch.rand(ROWS) + 0.5


class Program:
    """A random program; the same seed makes the same. `lines` are the body of its `forward`, `steps` how many values it
    makes; each line or block may be left out by `without`.
    """

    def __init__(self, seed: int, length: int = 14) -> None:
        self._random = random.Random(seed)
        self._made, self._functions, self.length = 0, 0, length
        self.lines = ["t0 = x"]
        while self._made < length:
            self.lines += self._block(2)
        last = range(max(0, self._made - 3), self._made + 1)
        self.lines.append(f"return {', '.join(f't{number}' for number in last)}, ids + 1")

    @property
    def text(self) -> str:
        return "\n".join(["class Program(Layers):", "    def forward(self, x, ids):", *_indented(self.lines, 2)])

    def _block(self, depth: int) -> list[str]:
        kind = self._random.choices(("step", "region", "function", "break"), (10, 3 if depth else 0, 1, 0.7))[0]
        if kind == "region":
            inside = [line for _ in range(self._random.randint(1, 3)) for line in self._block(depth - 1)]
            return [f"with {self._region()}:", *_indented(inside)]
        if kind == "function":
            return self._function()
        return ["torch._dynamo.graph_break()"] if kind == "break" else self._step()

    def _region(self) -> str:
        return self._random.choice(("keep()", "precision(WORD)", "precision(WORD)", "precision('fp32')"))

    def _function(self) -> list[str]:
        """A value that a function in a region makes, called, checkpointed, or in a branch."""
        self._functions += 1
        name = f"f{self._functions}"
        step = self._random.choice([*PRODUCTS, *NORMS, *MASKS, *PLAIN, *REDUCTIONS, *INDICES])
        body = step.format(a="a", b="b", x="x", n="n")
        given = f"{self._any()}, {self._any()}"
        call = self._random.choice(
            (
                f"{name}({given})",
                f"checkpoint({name}, {given}, use_reentrant=False)",
                f"cond(x.sum() > 0, lambda a, b: {name}(a, b).to(HIGH, copy=True), "
                f"lambda a, b: a.to(HIGH) + b, ({given}))",
            )
        )
        self._made += 1
        return [f"@{self._region()}", f"def {name}(a, b):", f"    return {body}", f"t{self._made} = {call}"]

    def _any(self) -> str:
        """A value made before: often the last."""
        return f"t{self._made if self._random.random() < 0.6 else self._random.randint(0, self._made)}"

    def _step(self) -> list[str]:
        step = self._random.choice(self._random.choice(STEPS))
        names = {"a": self._any(), "b": self._any(), "x": "x", "n": f"t{self._made + 1}"}
        self._made += 1
        return f"t{self._made} = {step.format(**names)}".split("\n")


def _indented(lines: Sequence[str], times: int = 1) -> list[str]:
    return [f"{'    ' * times}{line}" for line in lines]


class _ByHand(TorchFunctionMode):
    """Carries a region out as its author would under autocast: by conversions around every operator."""

    def __init__(self, dtype: torch.dtype | None, low: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.low = dtype, low

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        with torch._C.DisableTorchFunction(), torch.autocast("cpu", enabled=False):
            if "out" in kwargs or name == "__get__" or (name.endswith("_") and not _is_plain(name)):
                return func(*args, **kwargs)
            wanted = torch.float32 if self.dtype is None else self.dtype
            others = (self.low, torch.float32)
            try:
                inside = _converted((args, kwargs), others, wanted)
                made = func(*inside[0], **inside[1])
            except RuntimeError:  # it has no such kernel
                args, kwargs = _converted((args, kwargs), others, torch.float32)
                return func(*args, **kwargs)
            return made if self.dtype is None else _converted(made, (self.dtype,), torch.float32)

    def __call__(self, target: Any) -> Any:
        inner = target.forward if isinstance(target, nn.Module) else target

        def inside(*args: Any) -> Any:
            with _ByHand(self.dtype, self.low):
                return inner(*args)

        if isinstance(target, nn.Module):
            target.forward = inside  # type: ignore[method-assign]  # as regions have it
            return target
        return inside


def _is_plain(name: str) -> bool:
    return name.startswith("__") and name != "__setitem__" and not name.startswith("__i")


def _converted(tree: Any, found: Sequence[torch.dtype], wanted: torch.dtype) -> Any:
    def convert(leaf: Any) -> Any:
        return leaf.to(wanted) if isinstance(leaf, torch.Tensor) and leaf.dtype in found else leaf

    return torch.utils._pytree.tree_map(convert, tree)


def planned(text: str, low: str, seed: int) -> nn.Module:
    """The program with regions of mezzo's."""
    return _built(text, low, seed, mezzo.torch.keep, mezzo.torch.precision, cond=torch.cond)


def by_hand(text: str, low: str, seed: int) -> nn.Module:
    """The program with its regions carried out by hand, for eager PyTorch under autocast."""
    dtype = LOW[low]
    words = {"fp32": None, low: dtype}
    return _built(text, low, seed, lambda: _ByHand(None, dtype), lambda word: _ByHand(words[word], dtype))


def exact(text: str, low: str, seed: int) -> nn.Module:
    """The program in FP64."""
    return _built(text, low, seed, mezzo.torch.keep, mezzo.torch.precision, torch.float64, torch.float64).double()


LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


def _choose(which: torch.Tensor, one: Callable[..., Any], other: Callable[..., Any], given: Sequence[Any]) -> Any:
    return one(*given) if which else other(*given)


def _built(
    text: str,
    low: str,
    seed: int,
    keep: Callable[[], Any],
    precision: Callable[[str], Any],
    high: torch.dtype = torch.float32,
    low_dtype: torch.dtype | None = None,
    cond: Any = _choose,
) -> nn.Module:
    """A program's text run as a module of its own, where Dynamo looks for its globals."""
    module = types.ModuleType(f"random_program_{next(_NUMBERS)}")
    held = {
        "keep": keep,
        "precision": precision,
        "WORD": low,
        "HIGH": high,
        "LOW": low_dtype or LOW.get(low, torch.bfloat16),
    }
    vars(module).update(
        held, cond=cond, torch=torch, functional=functional, Layers=Layers, checkpoint=checkpoint.checkpoint
    )
    sys.modules[module.__name__] = module
    exec(compile(text, "<program>", "exec"), vars(module))  # its author is this module
    torch.manual_seed(seed)
    made: nn.Module = vars(module)["Program"](keep, precision, low).eval()
    return made


def inputs(seed: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers that every float type holds, and words."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-32, 33, (batch, ROWS, WIDTH), generator=generator) / 16
    return x, torch.randint(0, WORDS, (batch, ROWS), generator=generator)
