"""Runs a program's graph node by node, and lets others see or change what passes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.arithmetic import Arithmetic, AsTyped, Wide
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.inputs import TorchInputs
from mezzo.aten.program import Held, Program, attribute_of, tensor_of
from mezzo.common.errors import ContractError, InputError, spell_raised
from mezzo.contracts.lab import Answers, Feeds
from mezzo.contracts.plans import Accumulation

# Sees what a node makes, as it is held.
Watch = Callable[[fx.Node, torch.Tensor], None]
_LONGEST_FAULT = 300


class Runner:
    """A program ready to run. `move` changes its weights first."""

    def __init__(
        self,
        program: Program,
        arithmetic: Arithmetic | None = None,
        move: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.program, self.inputs = program, TorchInputs(program)
        self.arithmetic = AsTyped() if arithmetic is None else arithmetic
        self._move = move
        self._last = _last_uses(program.graph)
        self._weights: dict[fx.Node, torch.Tensor] = {}

    def __call__(self, feeds: Feeds) -> Answers:
        return self.run(feeds)

    def run(self, feeds: Feeds, watch: Watch | None = None) -> dict[str, Any]:
        """Compute the outputs by name. `watch` sees every tensor of the graph, once it is made.

        Raises: InputError: the feeds do not fit. ContractError: the program fails.
        """
        return self.answers(self.walk(self.inputs.tensors(feeds), watch))

    def answers(self, returned: object) -> dict[str, Any]:
        """Outputs by name, as arrays."""
        several = returned if isinstance(returned, tuple | list) else (returned,)
        names = self.program.outputs
        return {
            str(place) if names is None else names[place]: array_of(one)
            for place, one in enumerate(several)
            if isinstance(one, torch.Tensor)
        }

    def fed(self, given: Mapping[fx.Node, Any]) -> dict[fx.Node, Any]:
        """What the placeholders hold, as it is computed with."""
        held: dict[fx.Node, Any] = {}
        sizes = _Sizes(given)
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            if node in given:
                one = given[node]
                held[node] = self.arithmetic.hold(one) if isinstance(one, torch.Tensor) else one
            elif tensor_of(node) is not None:
                held[node] = self._weight(node)
            else:
                held[node] = sizes.find(node)
        return held

    def compute(self, node: fx.Node, args: Any, kwargs: Any) -> object:
        """Run one call. Raises ContractError: it fails."""
        try:
            return self.arithmetic.call(node, args, kwargs)
        except Exception as error:
            raise failure(node, error) from error

    def constant(self, node: fx.Node) -> object:
        """What a node reads from the program itself: a tensor, a body."""
        held = attribute_of(self.program.owner, node)
        return self.arithmetic.hold(held.detach()) if isinstance(held, torch.Tensor) else held

    def dead_after(self, node: fx.Node) -> Sequence[fx.Node]:
        """What nobody reads after a node."""
        return self._last.get(node, ())

    def walk(self, given: Mapping[fx.Node, Any], watch: Watch | None) -> object:
        """Run the graph on what its placeholders are given: what it returns, as it is held."""
        with torch.no_grad():
            held = self.fed(given)
            for node in self.program.graph.nodes:
                match node.op:
                    case "placeholder":
                        pass
                    case "output":
                        return fx.map_arg(node.args[0], held.__getitem__)
                    case "get_attr":
                        held[node] = self.constant(node)
                    case _:
                        args, kwargs = fx.map_arg((node.args, node.kwargs), held.__getitem__)
                        held[node] = self.compute(node, args, kwargs)
                if watch is not None and isinstance(held[node], torch.Tensor):
                    watch(node, held[node])
                for dead in self.dead_after(node):
                    del held[dead]
        return None

    def _weight(self, node: fx.Node) -> torch.Tensor:
        if node not in self._weights:
            name = node.name
            held = self.program.weights.get(name) or self.program.states.get(name)
            numbers = numbers_of(held, name).detach()
            if self._move is not None and name in self.program.weights:
                numbers = self._move(numbers)
            self._weights[node] = self.arithmetic.hold(numbers)
        return self._weights[node]


def numbers_of(held: Held | None, name: str) -> torch.Tensor:
    """The numbers of a weight. Raises ContractError: nobody has them."""
    if held is None or held.tensor is None:
        raise ContractError(
            f"weight {held.name if held else name!r} has no numbers at hand; run the model that has them"
        )
    return held.tensor()


def run_body(body: fx.GraphModule, arithmetic: Arithmetic, operands: tuple[object, ...]) -> object:
    """Run a body of a control flow operator on what it is given."""
    waiting = iter(operands)
    held: dict[fx.Node, Any] = {}
    for node in body.graph.nodes:
        match node.op:
            case "placeholder":
                held[node] = next(waiting)
            case "output":
                return fx.map_arg(node.args[0], held.__getitem__)
            case "get_attr":
                found = attribute_of(body, node)
                held[node] = arithmetic.hold(found.detach()) if isinstance(found, torch.Tensor) else found
            case _:
                args, kwargs = fx.map_arg((node.args, node.kwargs), held.__getitem__)
                held[node] = arithmetic.call(node, args, kwargs)
    return None


def wide(accumulation: Accumulation | None = None) -> Wide:
    """FP32 with every result rounded to the type that it has."""
    return Wide(torch.float32, run_body, accumulation)


def run_in_float64(program: Program, feeds: Feeds) -> dict[str, Any]:
    """Run a program with all its floats in FP64, whatever it is typed: a reference for FP32 itself."""
    return in_float64(program).run(feeds)


def in_float64(program: Program) -> Runner:
    """A program ready to run with all its floats in FP64."""
    return Runner(program, Wide(torch.float64, run_body))


def failure(node: fx.Node, error: Exception) -> ContractError:
    """What a call that fails is reported as."""
    if isinstance(error, ContractError):
        return error
    said = spell_raised(error, _LONGEST_FAULT)
    return ContractError(f"the program does not run in PyTorch: {node.target} raises {said}")


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """What is read for the last time by each node, or by nobody."""
    last: dict[fx.Node, list[fx.Node]] = {}
    seen: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen.update(node.all_input_nodes)
            continue
        fresh = [one for one in (node, *node.all_input_nodes) if one not in seen]
        seen.update(fresh)
        last[node] = list(dict.fromkeys(fresh))
    return last


class _Sizes:
    """What placeholders that are no tensors hold: sizes of what is fed, and constants."""

    def __init__(self, given: Mapping[fx.Node, Any]) -> None:
        self._known: dict[str, int] = {}
        for node, tensor in given.items():
            fake = tensor_of(node)
            if fake is None or not isinstance(tensor, torch.Tensor):
                continue
            for size, found in zip(fake.shape, tensor.shape, strict=True):
                self._known[str(size)] = int(found)

    def find(self, node: fx.Node) -> object:
        held = node.meta.get("val")
        if not isinstance(held, torch.SymInt):
            return held
        known = self._known.get(str(held))
        if known is None:
            raise InputError(f"input {node.name!r}: found no input whose shape tells it; feed a program that does")
        return known


def tensors_of(program: Program) -> Iterator[tuple[str, fx.Node]]:
    """The outputs that are tensors, by name."""
    end = next(node for node in reversed(program.graph.nodes) if node.op == "output")
    several = end.args[0] if isinstance(end.args[0], tuple | list) else (end.args[0],)
    for place, one in enumerate(several):
        if isinstance(one, fx.Node) and tensor_of(one) is not None:
            yield (str(place) if program.outputs is None else program.outputs[place]), one
