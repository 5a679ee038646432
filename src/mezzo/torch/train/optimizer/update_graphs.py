"""Optimizer steps as compiled graphs, traced from the optimizer's own code.

The code runs on a copy of the optimizer that contains the traced tensors. Scalar computations, such
as powers of a decay, are compiled separately from elementwise ones: a single kernel would repeat
them for each element.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.split_module import split_module
from torch.optim.optimizer import Optimizer

from mezzo.aten.torch_internals import FakeTensorMode
from mezzo.torch.torch_internals import TracingContext, as_compiling, compile_fx, pytree, tracing
from mezzo.torch.train.optimizer.update_numbers import AsNumbers

_ATEN: Any = torch.ops.aten
_ITEM: Any = _ATEN._local_scalar_dense.default
_NUMBERS, _ELEMENTS, _ENDS = range(3)
_STEP = "step"  # the only scalar state of scalar weights
_FIELDS = ("weights", "gradients", "states", "lows", "rates")
State = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class StepTensors:
    """Inputs and outputs of one step. `lows` are low-precision copies.

    `rates` are the options that change between steps, as FP64 scalars.
    """

    weights: Sequence[torch.Tensor]
    gradients: Sequence[torch.Tensor]
    states: Sequence[Mapping[str, torch.Tensor]]
    lows: Sequence[Sequence[torch.Tensor]]
    rates: Sequence[torch.Tensor]

    def flat(self) -> list[torch.Tensor]:
        """All tensors, in the order of the fields."""
        states = (tensor for state in self.states for tensor in state.values())
        lows = (low for copies in self.lows for low in copies)
        return [*self.weights, *self.gradients, *states, *lows, *self.rates]

    def like(self, flat: Sequence[torch.Tensor]) -> "StepTensors":
        """The same structure with other tensors."""
        fields = [getattr(self, name) for name in _FIELDS]
        return StepTensors(
            **dict(
                zip(
                    _FIELDS, pytree.tree_unflatten(flat, pytree.tree_structure(fields)), strict=True
                )
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """An optimizer to trace: its code, groups, constants and options.

    `groups` lists the indices of each group's weights, `constants` each weight's non-tensor state.
    `options` returns the options with `rates` inserted; `signs` are the signs of rates, by index.
    """

    optimizer: Optimizer
    plain: Callable[[Optimizer], object]
    groups: Sequence[Sequence[int]]
    constants: Sequence[State]
    options: Callable[[Sequence[torch.Tensor]], Sequence[Mapping[str, Any]]]
    signs: Mapping[int, int]


def compile_step(steps: Steps, held: StepTensors) -> Callable[[StepTensors], None]:
    """Compile a step for given inputs.

    Raises ValueError: the code needs the value of a number, which a graph lacks. Raises the code's
    own errors.
    """
    graph = _split(_traced(steps, held))
    for name, part in list(graph.named_children()):
        setattr(graph, name, _Compiled(cast("fx.GraphModule", part)))

    def run(inputs: StepTensors) -> None:
        graph(*inputs.flat())

    return run


def _traced(steps: Steps, inputs: StepTensors) -> fx.GraphModule:
    """The step as a graph, of the first variant (single-tensor, foreach) that needs no values."""
    fault: Exception | None = None
    for is_foreach in (False, True):

        def update(*tensors: torch.Tensor, is_foreach: bool = is_foreach) -> tuple[()]:
            _step(steps, inputs.like(tensors), is_foreach=is_foreach)
            return ()

        try:
            with as_compiling():
                pure = torch.func.functionalize(update, remove="mutations_and_views")
                graph = make_fx(pure, tracing_mode="fake")(*inputs.flat())
        except Exception as error:  # noqa: BLE001  # third-party code, and the other variant may work
            fault = error
            continue
        if all(node.target is not _ITEM for node in graph.graph.nodes):
            _multiply(graph.graph)
            return graph
    raise ValueError("its code reads the value of a number") if fault is None else fault


def _step(steps: Steps, inputs: StepTensors, *, is_foreach: bool) -> None:
    """Run a step on an optimizer copy with traced tensors. Scalars are FP64, like Python's."""
    optimizer: Any = object.__new__(type(steps.optimizer))
    optimizer.__dict__.update(vars(steps.optimizer))
    variants = {"foreach": is_foreach, "fused": None, "capturable": True, "differentiable": False}
    optimizer.param_groups = [
        {
            **options,
            **{name: variant for name, variant in variants.items() if name in options},
            "params": [inputs.weights[index] for index in indices],
        }
        for options, indices in zip(steps.options(inputs.rates), steps.groups, strict=True)
    ]
    optimizer.state = defaultdict(dict)
    numbers: list[tuple[torch.Tensor, dict[str, Any], str]] = []
    for weight, gradient, state, constants in zip(
        inputs.weights, inputs.gradients, inputs.states, steps.constants, strict=True
    ):
        weight.grad = gradient.to(weight.dtype)
        inner = optimizer.state[weight] = {**constants, **state}
        for name, scalar in state.items():
            if (
                scalar.dim() == 0
                and scalar.is_floating_point()
                and (weight.dim() > 0 or name == _STEP)
            ):
                inner[name] = scalar.double()
                numbers.append((scalar, inner, name))
    before = _places(optimizer)
    with AsNumbers({id(inputs.rates[place]): sign for place, sign in steps.signs.items()}):
        steps.plain(optimizer)
    if _places(optimizer) != before:
        raise ValueError("its code replaces what it holds from step to step")
    for scalar, inner, name in numbers:
        scalar.copy_(inner[name])
    for weight, lows in zip(inputs.weights, inputs.lows, strict=True):
        for low in lows:
            low.copy_(weight)


def _places(optimizer: Any) -> list[tuple[object, int]]:
    """The identities of an optimizer's attributes and state entries."""
    entries = [
        *vars(optimizer).items(),
        *(pair for inner in optimizer.state.values() for pair in inner.items()),
    ]
    return [(name, id(value)) for name, value in entries]


def _multiply(graph: fx.Graph) -> None:
    """Replace division of elements by a scalar by multiplication, as divisions dominate."""
    for node in graph.nodes:
        if node.target is not _ATEN.div.Tensor or not isinstance(node.args[1], fx.Node):
            continue
        elements, number = node.args
        if _is_number(number) and not _is_number(elements):
            with graph.inserting_before(node):
                reciprocal = graph.call_function(_ATEN.reciprocal.default, (number,))
            reciprocal.meta["val"] = number.meta["val"]
            node.target, node.args = _ATEN.mul.Tensor, (elements, reciprocal)


def _split(graph: fx.GraphModule) -> fx.GraphModule:
    """Partition a step into scalar computations, elementwise ones, and writes of scalars."""
    parts: dict[fx.Node, int] = {}
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        is_number = all(
            _is_number(operand) and parts.get(operand, _NUMBERS) == _NUMBERS
            for operand in (node, *node.all_input_nodes)
        )
        parts[node] = (
            (_ENDS if node.target is _ATEN.copy_.default else _NUMBERS) if is_number else _ELEMENTS
        )
    return split_module(graph, graph, parts.__getitem__)


def _is_number(node: fx.Node) -> bool:
    """Whether all results of a node are scalars."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return all(isinstance(value, torch.Tensor) and value.dim() == 0 for value in values)


def _compiled(part: fx.GraphModule, args: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Compile a part for the sizes of its arguments. Inductor's cache requires a shape environment,
    in which sizes would become symbols, hence fakes with static shapes.
    """
    sizes = FakeTensorMode(static_shapes=True, shape_env=ShapeEnv())
    with tracing(TracingContext(sizes)):
        compiled = compile_fx(
            part, [sizes.from_tensor(tensor, static_shapes=True) for tensor in args]
        )
    return cast("Callable[..., Any]", compiled)


class _Compiled(torch.nn.Module):
    """A part of a step, compiled at its first call."""

    def __init__(self, part: fx.GraphModule) -> None:
        super().__init__()
        self._part: fx.GraphModule | None = part
        self._run: Callable[..., Any] | None = None

    def forward(self, *args: Any) -> Any:
        if self._run is None:
            assert self._part is not None, "it is kept until it is compiled"
            self._run, self._part = _compiled(self._part, args), None
        return self._run(*args)
