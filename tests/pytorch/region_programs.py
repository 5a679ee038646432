"""Random programs with regions in them, as Python text that runs twice: recorded by a few lines of Python, and traced.

Each operator stands in `with tag(N):`. Recording notes the innermost region at that moment; tracing annotates the nodes
with the number, so that every piece of an operator, forward and backward, is known by it.
"""

import itertools
import random
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from typing import Any

import torch
import torch.nn.functional as functional
import torch.utils.checkpoint
from torch._dynamo.backends.common import aot_autograd
from torch._higher_order_ops import while_loop
from torch.fx.traceback import annotate

from mezzo.aten.marks import Mark, marks_in
from mezzo.formats.dtypes import DType
from mezzo.torch import keep, precision

WORDS = {
    "keep": Mark(None, is_exact=True),
    "bf16": Mark(DType.BFLOAT16),
    "fp16": Mark(DType.FLOAT16),
    "fp32": Mark(DType.FLOAT32),
}
# What each number's operator may be marked as; several where its function is called in several places.
Marks = dict[int, set[Mark | None]]
_NUMBERS = itertools.count()
_OPERATORS = (
    "torch.mm(x, x) * 0.1",
    "x @ x",
    "F.linear(x, w)",
    "F.gelu(x)",
    "F.layer_norm(x, (4,))",
    "torch.softmax(x, -1)",
    "x.relu()",
    "1 - x",
    "x.clone().mul_(0.5)",
    "torch.cat([x, x])[:4]",
    "torch.where(x > 0, x, -x)",
    "torch.einsum('ij,kj->ik', x, x)",
    "F.batch_norm(x, w[0], w[1].abs())",
    "F.scaled_dot_product_attention(x[None], x[None], x[None])[0]",
    "x.sum(0, keepdim=True) + x",
    "torch.ops.aten.addmm(x, x, x)",
)


class Program:
    """A random program: its `text` defines `run(x, w)`.

    `checkpoints` are the numbers of calls that leave no node of their own where a tracer takes them in.
    """

    def __init__(self, seed: int, *, depth: int = 4, breaks: bool = True, bodies: bool = True) -> None:
        self._random = random.Random(seed)
        self._number = self._name = 0
        self._definitions: list[str] = []
        self._bodies = bodies
        self.checkpoints: set[int] = set()
        block = self._block(depth, breaks)
        self.text = "\n".join([*self._definitions, "def run(x, w):", *_indented(block), "    return x"])

    def _block(self, depth: int, breaks: bool) -> list[str]:
        lines = []
        for _ in range(self._random.randint(1, 3)):
            lines += self._statement(depth, breaks)
        return lines

    def _statement(self, depth: int, breaks: bool) -> list[str]:
        kinds = ["operator", "operator"]
        if depth:
            kinds += ["with", "with", "with", "function", "outer", "module", "raising", "break"]
            kinds += ["cond", "loop", "checkpoint"] if self._bodies else []
        kind = self._random.choice(kinds)
        if kind == "break" and not breaks:
            kind = "operator"
        return getattr(self, f"_{kind}")(depth - 1, breaks)

    def _operator(self, depth: int, breaks: bool, text: str | None = None) -> list[str]:
        self._number += 1
        return [f"with tag({self._number - 1}):", f"    x = {text or self._random.choice(_OPERATORS)}"]

    def _break(self, depth: int, breaks: bool) -> list[str]:
        return [*self._operator(depth, breaks), "graph_break()", *self._operator(depth, breaks)]

    def _region(self) -> str:
        return f"region({self._random.choice([*WORDS])!r})"

    def _with(self, depth: int, breaks: bool) -> list[str]:
        return [f"with {self._region()}:", *_indented(self._block(depth, breaks))]

    def _raising(self, depth: int, breaks: bool) -> list[str]:
        """A region that an exception leaves. Dynamo breaks no graph inside a try."""
        inner = [f"with {self._region()}:", *_indented(self._block(depth, False)), "    raise ValueError"]
        return ["try:", *_indented(inner), "except ValueError:", *_indented(self._operator(depth, False))]

    def _define(self, depth: int, breaks: bool, decorator: str | None) -> tuple[str, list[str]]:
        self._name += 1
        name = f"f{self._name}"
        body = [f"def {name}(x, w):", *_indented(self._block(depth, breaks)), "    return x"]
        return name, [*([] if decorator is None else [f"@{decorator}"]), *body]

    def _function(self, depth: int, breaks: bool) -> list[str]:
        name, lines = self._define(depth, breaks, self._region())
        return [*lines, f"x = {name}(x, w)"]

    def _outer(self, depth: int, breaks: bool) -> list[str]:
        name, lines = self._define(depth, breaks, self._region())
        self._definitions += lines
        return [f"x = {name}(x, w)"]

    def _module(self, depth: int, breaks: bool) -> list[str]:
        name, lines = self._define(depth, breaks, None)
        self._definitions += [*lines, f"m_{name} = {self._region()}({self._region()}(Calling({name})))"]
        return [f"x = m_{name}(x, w)"]

    def _cond(self, depth: int, breaks: bool) -> list[str]:
        one, first = self._define(depth, False, self._random.choice([None, self._region()]))
        two, second = self._define(depth, False, None)
        call = f"cond(x.sum() > 0, lambda x, w: {one}(x, w).clone(), lambda x, w: {two}(x, w).clone(), (x, w))"
        return [*first, *second, *self._operator(depth, False, call)]

    def _loop(self, depth: int, breaks: bool) -> list[str]:
        name, lines = self._define(depth, False, None)
        return [*lines, *self._operator(depth, False, f"loop({name}, x, w)")]

    def _checkpoint(self, depth: int, breaks: bool) -> list[str]:
        name, lines = self._define(depth, False, None)
        self.checkpoints.add(self._number)
        return [*lines, *self._operator(depth, False, f"checkpoint({name}, x, w)")]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class Calling(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.function(x, w)


def _loop(body: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, body(x, w).clone()

    return while_loop(lambda i, x: i < 2, step, (torch.zeros((), dtype=torch.int64), x))[1]


def _checkpoint(body: Callable[..., torch.Tensor], x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.utils.checkpoint.checkpoint(body, x, w, use_reentrant=False)


def traced(text: str) -> Callable[..., torch.Tensor]:
    """`run` of a program, with regions of mezzo."""
    return _executed(
        text,
        region=lambda word: keep() if word == "keep" else precision(word),
        tag=lambda number: annotate({"tag": number}),
        graph_break=torch._dynamo.graph_break,
        cond=torch.cond,
        loop=_loop,
        checkpoint=_checkpoint,
    )


def recorded(text: str) -> Marks:
    """What each operator's innermost region is when a program runs, noted in plain Python."""
    inside: list[str] = []
    noted: Marks = defaultdict(set)

    class Noting(ContextDecorator):
        def __init__(self, word: str) -> None:
            self.word = word

        def __enter__(self) -> None:
            inside.append(self.word)

        def __exit__(self, *raised: object) -> None:
            inside.pop()

        def __call__(self, target: Any) -> Any:
            if isinstance(target, torch.nn.Module):
                target.forward = super().__call__(target.forward)
                return target
            return super().__call__(target)

    @contextmanager
    def tag(number: int) -> Iterator[None]:
        noted[number].add(WORDS[inside[-1]] if inside else None)
        yield

    def both(_: object, one: Callable[..., Any], two: Callable[..., Any], operands: Sequence[Any]) -> Any:
        one(*operands)
        return two(*operands)

    run = _executed(
        text,
        region=Noting,
        tag=tag,
        graph_break=lambda: None,
        cond=both,
        loop=lambda body, x, w: body(x, w),
        checkpoint=lambda body, x, w: body(x, w),
    )
    run(*tensors())
    return dict(noted)


def _executed(text: str, **names: object) -> Callable[..., torch.Tensor]:
    """Run a program's text as a module of its own, where Dynamo looks for its globals."""
    module = types.ModuleType(f"region_program_{next(_NUMBERS)}")
    vars(module).update(torch=torch, F=functional, Calling=Calling, **names)
    sys.modules[module.__name__] = module
    exec(compile(text, "<program>", "exec"), vars(module))  # its author is this module
    return vars(module)["run"]


def tensors(*, requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 4, requires_grad=requires_grad), torch.randn(4, 4)


def marks_of(graphs: Sequence[torch.fx.GraphModule]) -> Marks:
    """The marks of each operator's nodes in graphs, by its number."""
    found: Marks = defaultdict(set)
    for graph in graphs:
        for _, node, mark in marks_in(graph):
            if node.op.startswith("call") and "tag" in node.meta.get("custom", {}):
                found[node.meta["custom"]["tag"]].add(mark)
    return dict(found)


def graphs_of(function: Callable[..., Any], *inputs: torch.Tensor, fullgraph: bool = False) -> list[Any]:
    """The graphs that Dynamo makes of a function, in the order in which they run."""
    graphs: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=fullgraph)(*inputs)
    return graphs


def functional_graphs_of(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[Any], list[Any]]:
    """The graphs of functional ATen, decomposed as for Inductor, that AOTAutograd makes of a function: forward and
    backward, where an input asks for a gradient.
    """
    from functorch.compile import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table

    forward: list[Any] = []
    backward: list[Any] = []

    def collecting(graphs: list[Any]) -> Callable[..., Any]:
        return lambda graph, _: (graphs.append(graph), make_boxed_func(graph))[1]

    backend = aot_autograd(
        fw_compiler=collecting(forward), bw_compiler=collecting(backward), decompositions=select_decomp_table()
    )
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend)(*inputs)
    if result.requires_grad:
        result.sum().backward()
    return forward, backward
