"""One step of an optimizer as a graph, traced from the optimizer's own code and compiled.

The code runs on a twin of the optimizer that holds what is traced. What it computes of single numbers, as powers of a
decay, is compiled apart from what it does to elements of weights: in one kernel it would be computed for each element.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._inductor.compile_fx import compile_fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.split_module import split_module
from torch.optim.optimizer import Optimizer
from torch.utils import _pytree as pytree

from mezzo.torch.train.optimizer.update_numbers import AsNumbers

_ATEN: Any = torch.ops.aten
_ITEM: Any = _ATEN._local_scalar_dense.default
_NUMBERS, _ELEMENTS, _ENDS = range(3)
_STEP = "step"  # of a weight that is one number all that is held of it is
_FIELDS = ("weights", "gradients", "states", "lows", "rates")
State = Mapping[str, Any]
_TRACING = threading.Lock()


@dataclass(slots=True, kw_only=True)
class Held:
    """What one step reads and writes: of each weight its gradient, its tensors of state by name, and its low copies;
    for each group of the optimizer how many of its weights are among these; and, as FP64 numbers, options that change
    from step to step.
    """

    weights: Sequence[torch.Tensor]
    gradients: Sequence[torch.Tensor]
    states: Sequence[Mapping[str, torch.Tensor]]
    lows: Sequence[Sequence[torch.Tensor]]
    rates: Sequence[torch.Tensor]

    def flat(self) -> list[torch.Tensor]:
        """All tensors, in the order of the fields."""
        states = (one for state in self.states for one in state.values())
        lows = (low for several in self.lows for low in several)
        return [*self.weights, *self.gradients, *states, *lows, *self.rates]

    def like(self, flat: Sequence[torch.Tensor]) -> "Held":
        """Others in their places."""
        fields = [getattr(self, name) for name in _FIELDS]
        return Held(**dict(zip(_FIELDS, pytree.tree_unflatten(flat, pytree.tree_structure(fields)), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What is known of an optimizer before its step is traced: its code, of each weight what it holds that is no
    tensor, and its groups with the numbers of their weights; their options with `rates` in their places, and of these
    whether they are above 0, by place.
    """

    optimizer: Optimizer
    plain: Callable[[Optimizer], object]
    groups: Sequence[Sequence[int]]
    constants: Sequence[State]
    options: Callable[[Sequence[torch.Tensor]], Sequence[Mapping[str, Any]]]
    signs: Mapping[int, int]


def compile_step(steps: Steps, held: Held) -> Callable[[Held], None]:
    """Compile a step for what is held. Raises what the optimizer's code does, or ValueError: it asks for the value of a
    number, which a graph does not have.
    """
    runs = _split(_traced(steps, held))
    for name, part in list(runs.named_children()):
        setattr(runs, name, _Compiled(cast("fx.GraphModule", part)))

    def run(given: Held) -> None:
        runs(*given.flat())

    return run


def _traced(steps: Steps, held: Held) -> fx.GraphModule:
    """The first way of the optimizer's code that asks for no number's value: weight by weight, or all at once."""
    fault: Exception | None = None
    for is_foreach in (False, True):

        def update(*given: torch.Tensor, is_foreach: bool = is_foreach) -> tuple[()]:
            _step(steps, held.like(given), is_foreach=is_foreach)
            return ()

        try:
            with _as_compiling():
                pure = torch.func.functionalize(update, remove="mutations_and_views")
                graph = make_fx(pure, tracing_mode="fake")(*held.flat())
        except Exception as error:  # noqa: BLE001  # an optimizer is anybody's code, and may have another way
            fault = error
            continue
        if all(node.target is not _ITEM for node in graph.graph.nodes):
            _multiply(graph.graph)
            return graph
    raise ValueError("its code reads the value of a number") if fault is None else fault


def _step(steps: Steps, held: Held, *, is_foreach: bool) -> None:
    """Let a twin of the optimizer step what is traced. Single numbers are FP64 in it, as they are Python's without a
    compiler.
    """
    twin: Any = object.__new__(type(steps.optimizer))
    twin.__dict__.update(vars(steps.optimizer))
    ways = {"foreach": is_foreach, "fused": None, "capturable": True, "differentiable": False}
    twin.param_groups = [
        {
            **options,
            **{name: way for name, way in ways.items() if name in options},
            "params": [held.weights[n] for n in of],
        }
        for options, of in zip(steps.options(held.rates), steps.groups, strict=True)
    ]
    twin.state = defaultdict(dict)
    numbers: list[tuple[torch.Tensor, dict[str, Any], str]] = []
    for weight, gradient, state, constants in zip(
        held.weights, held.gradients, held.states, steps.constants, strict=True
    ):
        weight.grad = gradient.to(weight.dtype)
        inner = twin.state[weight] = {**constants, **state}
        for name, one in state.items():
            if one.dim() == 0 and one.is_floating_point() and (weight.dim() > 0 or name == _STEP):
                inner[name] = one.double()
                numbers.append((one, inner, name))
    before = _places(twin)
    with AsNumbers({id(held.rates[place]): sign for place, sign in steps.signs.items()}):
        steps.plain(twin)
    if _places(twin) != before:
        raise ValueError("its code replaces what it holds from step to step")
    for one, inner, name in numbers:
        one.copy_(inner[name])
    for weight, lows in zip(held.weights, held.lows, strict=True):
        for low in lows:
            low.copy_(weight)


def _places(twin: Any) -> list[tuple[object, int]]:
    """What an optimizer holds, and what it holds of each weight."""
    held = [*vars(twin).items(), *(pair for inner in twin.state.values() for pair in inner.items())]
    return [(name, id(one)) for name, one in held]


@contextmanager
def _as_compiling() -> Iterator[None]:
    """Let the code of optimizers know that a compiler traces it: it then keeps its numbers in tensors. What tells it is
    one flag of the process, so one thread traces at a time.
    """
    with _TRACING:
        before = torch.compiler._is_compiling_flag
        torch.compiler._is_compiling_flag = True
        try:
            yield
        finally:
            torch.compiler._is_compiling_flag = before


def _multiply(graph: fx.Graph) -> None:
    """Multiply elements by one over a number where they are divided by it: divisions are most of an update's work."""
    for node in graph.nodes:
        if node.target is not _ATEN.div.Tensor or not isinstance(node.args[1], fx.Node):
            continue
        elements, number = node.args
        if _is_number(number) and not _is_number(elements):
            with graph.inserting_before(node):
                once = graph.call_function(_ATEN.reciprocal.default, (number,))
            once.meta["val"] = number.meta["val"]
            node.target, node.args = _ATEN.mul.Tensor, (elements, once)


def _split(graph: fx.GraphModule) -> fx.GraphModule:
    """Part a step: what is made of single numbers alone, the elements of weights, and what of the numbers is kept."""
    parts: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        is_number = all(
            _is_number(one) and parts.get(one, _NUMBERS) == _NUMBERS for one in (node, *node.all_input_nodes)
        )
        parts[node] = (_ENDS if node.target is _ATEN.copy_.default else _NUMBERS) if is_number else _ELEMENTS
    return split_module(graph, graph, parts.__getitem__)


def _is_number(node: fx.Node) -> bool:
    """Whether a node makes single numbers."""
    made = pytree.tree_leaves(node.meta.get("val"))
    return all(isinstance(one, torch.Tensor) and one.dim() == 0 for one in made)


def _compiled(part: fx.GraphModule, given: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Compile a part for the sizes of what is given. Inductor's cache, where it is found the next time, is asked only
    where sizes have an environment, in which those of tensors would be symbols: so fakes with sizes stand for them.
    """
    sizes = FakeTensorMode(static_shapes=True, shape_env=ShapeEnv())
    with tracing(TracingContext(sizes)):
        made = compile_fx(part, [sizes.from_tensor(one, static_shapes=True) for one in given])
    return cast("Callable[..., Any]", made)


class _Compiled(torch.nn.Module):
    """A part of a step, compiled for what it is first called with."""

    def __init__(self, part: fx.GraphModule) -> None:
        super().__init__()
        self._part: fx.GraphModule | None = part
        self._run: Callable[..., Any] | None = None

    def forward(self, *given: Any) -> Any:
        if self._run is None:
            assert self._part is not None, "it is kept until it is compiled"
            self._run, self._part = _compiled(self._part, given), None
        return self._run(*given)
