"""Random programs of core operators with regions in them, as Python text that runs in three ways: planned, in FP64, and
with its regions carried out by hand under autocast.

Their lines stand in program_steps.py. Answers differ by rounding only, as no line jumps on what was rounded.
"""

import itertools
import random
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from program_steps import INDICES, MASKS, NORMS, PLAIN, PRODUCTS, REDUCTIONS, STEPS
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint

import mezzo.torch

WIDTH, ROWS, WORDS = 16, 8, 12
_NUMBERS = itertools.count()


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
            if "out" in kwargs or name == "__get__":
                return func(*args, **kwargs)
            wanted = torch.float32 if self.dtype is None else self.dtype
            others = (self.low, torch.float32)
            if name.endswith("_") and not _is_plain(name):
                return self._write(func, args, kwargs)
            try:
                inside = _converted((args, kwargs), others, wanted)
                made = func(*inside[0], **inside[1])
            except RuntimeError:  # it has no such kernel
                args, kwargs = _converted((args, kwargs), others, torch.float32)
                return func(*args, **kwargs)
            return made if self.dtype is None else _converted(made, (self.dtype,), torch.float32)

    def _write(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Write into a tensor, whose type stays, what the operator makes in the region's type."""
        if self.dtype is None or args[0].dtype is not torch.float32:
            return func(*args, **kwargs)
        try:
            inside = _converted((args, kwargs), (torch.float32,), self.dtype)
            func(*inside[0], **inside[1])
        except RuntimeError:  # it has no such kernel
            return func(*args, **kwargs)
        return args[0].copy_(inside[0][0])

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
