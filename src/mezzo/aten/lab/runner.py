"""Interpreter of FX graphs: runs a program node by node, with hooks on every value."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.arithmetic import Arithmetic, AsTyped, Wide
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.inputs import TorchInputs
from mezzo.aten.program import Program, ProgramTensor, attribute_of, tensor_of
from mezzo.common.errors import ContractError, InputError, spell_raised
from mezzo.contracts.lab import Answers, Feeds
from mezzo.contracts.plans import Accumulation

# Callback on each tensor, in the type of the computation.
Watch = Callable[[fx.Node, torch.Tensor], None]
_LONGEST_FAULT = 300


class AtenRunner:
    """A program ready to run; `move` changes its weights first."""

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
        """Compute the outputs by name; `watch` is called on every intermediate tensor.

        Raises InputError: the feeds do not fit. Raises ContractError: the program fails.
        """
        return self.answers(self.walk(self.inputs.tensors(feeds), watch))

    def answers(self, returned: object) -> dict[str, Any]:
        """Outputs by name, as arrays."""
        outputs = returned if isinstance(returned, tuple | list) else (returned,)
        return {
            name: array_of(output)
            for (name, _), output in zip(self.program.returned, outputs, strict=True)
            if isinstance(output, torch.Tensor)
        }

    def fed(self, given: Mapping[fx.Node, Any]) -> dict[fx.Node, Any]:
        """The value of each placeholder, in the type of the computation."""
        values: dict[fx.Node, Any] = {}
        sizes = _Sizes(given)
        for node in self.program.graph.find_nodes(op="placeholder"):
            if node in given:
                feed = given[node]
                values[node] = (
                    self.arithmetic.hold(feed) if isinstance(feed, torch.Tensor) else feed
                )
            elif tensor_of(node) is not None:
                values[node] = self._weight(node)
            else:
                values[node] = sizes.find(node)
        return values

    def compute(self, node: fx.Node, args: Any, kwargs: Any) -> object:
        """Run one call. Raises ContractError: it fails."""
        try:
            return self.arithmetic.call(node, args, kwargs)
        except Exception as error:
            raise failure(node, error) from error

    def constant(self, node: fx.Node) -> object:
        """The tensor or subgraph that a get_attr node refers to."""
        if node.name in self.program.weights:
            return self._weight(node)
        return _constant(self.program.owner, node, self.arithmetic)

    def dead_after(self, node: fx.Node) -> Sequence[fx.Node]:
        """Nodes whose value is not used after `node`."""
        return self._last.get(node, ())

    def walk(self, given: Mapping[fx.Node, Any], watch: Watch | None) -> object:
        """Run the graph; returns the outputs in the type of the computation."""
        with torch.no_grad():
            values = self.fed(given)
            for node in self.program.graph.nodes:
                if node.op == "output":
                    break
                if node.op == "get_attr":
                    values[node] = self.constant(node)
                elif node.op != "placeholder":
                    values[node] = self.compute(node, *_arguments(node, values))
                if watch is not None and isinstance(values[node], torch.Tensor):
                    watch(node, values[node])
                for unused in self.dead_after(node):
                    del values[unused]
            return _returned(self.program.graph, values)

    def _weight(self, node: fx.Node) -> torch.Tensor:
        if node not in self._weights:
            name = node.name
            source = self.program.weights.get(name) or self.program.states.get(name)
            weight = numbers_of(source, name).detach()
            if self._move is not None and name in self.program.weights:
                weight = self._move(weight)
            self._weights[node] = self.arithmetic.hold(weight)
        return self._weights[node]


def numbers_of(held: ProgramTensor | None, name: str) -> torch.Tensor:
    """A weight's tensor. Raises ContractError: it is not available."""
    if held is None or held.tensor is None:
        raise ContractError(
            f"weight {held.name if held else name!r} has no numbers at hand; run the model that has"
            " them"
        )
    return held.tensor()


def run_body(body: fx.GraphModule, arithmetic: Arithmetic, operands: tuple[object, ...]) -> object:
    """Run a subgraph of a control flow operator on its operands."""
    inputs = body.graph.find_nodes(op="placeholder")
    values: dict[fx.Node, Any] = dict(zip(inputs, operands, strict=False))
    for node in body.graph.nodes:
        if node.op == "get_attr":
            values[node] = _constant(body, node, arithmetic)
        elif node.op not in ("placeholder", "output"):
            values[node] = arithmetic.call(node, *_arguments(node, values))
    return _returned(body.graph, values)


def _constant(owner: torch.nn.Module, node: fx.Node, arithmetic: Arithmetic) -> object:
    attribute = attribute_of(owner, node)
    is_tensor = isinstance(attribute, torch.Tensor)
    return arithmetic.hold(attribute.detach()) if is_tensor else attribute


def _arguments(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """A call's positional and named arguments."""
    return fx.map_arg((node.args, node.kwargs), values.__getitem__)


def _returned(graph: fx.Graph, values: Mapping[fx.Node, Any]) -> Any:
    return fx.map_arg(graph.output_node().args[0], values.__getitem__)


def wide(accumulation: Accumulation | None = None) -> Wide:
    """FP32 arithmetic that rounds every result to its dtype in the program."""
    return Wide(torch.float32, run_body, accumulation)


def in_float64(program: Program) -> AtenRunner:
    """A runner with all floats in FP64: a reference more accurate than FP32."""
    return AtenRunner(program, Wide(torch.float64, run_body))


def failure(node: fx.Node, error: Exception) -> ContractError:
    """The error that reports a failed call."""
    if isinstance(error, ContractError):
        return error
    message = spell_raised(error, _LONGEST_FAULT)
    return ContractError(f"the program does not run in PyTorch: {node.target} raises {message}")


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The nodes whose value is last used by each node, or never used."""
    last: dict[fx.Node, list[fx.Node]] = {}
    used: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output":
            used.update(node.all_input_nodes)
            continue
        last_used = [operand for operand in (node, *node.all_input_nodes) if operand not in used]
        used.update(last_used)
        last[node] = list(dict.fromkeys(last_used))
    return last


class _Sizes:
    """Values of non-tensor placeholders: sizes of the feeds, and constants."""

    def __init__(self, feeds: Mapping[fx.Node, Any]) -> None:
        self._known: dict[str, int] = {}
        for node, tensor in feeds.items():
            fake = tensor_of(node)
            if fake is None or not isinstance(tensor, torch.Tensor):
                continue
            for size, length in zip(fake.shape, tensor.shape, strict=True):
                self._known[str(size)] = int(length)

    def find(self, node: fx.Node) -> object:
        value = node.meta.get("val")
        if not isinstance(value, torch.SymInt):
            return value
        length = self._known.get(str(value))
        if length is None:
            raise InputError(
                f"input {node.name!r}: found no input whose shape tells it; feed a program that"
                " does"
            )
        return length


def tensors_of(program: Program) -> Iterator[tuple[str, fx.Node]]:
    """The program's tensor outputs, by name."""
    for name, output in program.returned:
        if output is not None and tensor_of(output) is not None:
            yield name, output
