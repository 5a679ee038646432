"""Capture of the graphs that a module runs on data, with something else run in place of each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import SymInt, fx

from mezzo.aten.handed import HandedModel
from mezzo.aten.lab.arithmetic import AsTyped
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.runner import AtenRunner, numbers_of
from mezzo.aten.model import TorchModel
from mezzo.aten.program import Program, tensor_of
from mezzo.aten.read.retype import fake_mode_of
from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Model
from mezzo.evaluate.data_session import DataSession, open_session
from mezzo.planner.options import Options
from mezzo.quantize.calibration import needs_of
from mezzo.torch.compiler.arguments import batches_of, call_with
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.passes import Before, PlanningPass
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.compiler.scales import names_of, without_kernels
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.inspect.reference_runs import compute
from mezzo.torch.torch_internals import optimize
from mezzo.torch.weights.weight_inputs import Edited

# Takes a graph, which is a copy, with its options; returns what runs in its place.
Capture = Callable[[Program, Options], Callable[..., Any]]


def run_captured(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object], capture: Capture
) -> int:
    """Run a module on batches of data, with something else in place of each graph that it has then;
    returns the number of batches.
    """
    run: Any = optimize(backend=_CapturingBackend(settings, capture))(model)
    batches = 0
    with torch.no_grad():
        for batch in batches_of(data):
            if not batches:
                call_with(model, batch)  # what sets itself up at its first call breaks graphs there
            batches += 1
            call_with(run, batch)
    return batches


@dataclass(eq=False, kw_only=True)
class CapturedGraph:
    """A graph, its options, and the arguments of each call, by the names of inputs: tensors, and
    numbers from the caller.
    """

    program: Program
    options: Options
    calls: list[Mapping[str, torch.Tensor]]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its operators, which tell graphs apart."""
        return names_of(HandedModel(self.program).read(*self.options.planning.floats))

    @property
    def open_sizes(self) -> list[fx.Node]:
        """The sizes among the graph's inputs."""
        inputs = self.program.graph.find_nodes(op="placeholder")
        return [node for node in inputs if node.users and isinstance(node.meta["val"], SymInt)]

    def takes(self, call: Mapping[str, torch.Tensor]) -> bool:
        """Whether a call of a graph that is alike has this one's inputs, with its fixed sizes."""
        inputs = {
            self.program.names.get(name, name): tensor_of(node)
            for name, node in _inputs_of(self.program).items()
        }
        return call.keys() == self.calls[0].keys() and all(
            example is None or _has_fixed_sizes_of(example, call[name])
            for name, example in inputs.items()
            if name in call
        )

    def opened(self) -> tuple[Model, Options, DataSession]:
        """The graph as a model, its options, and its data. It reads its sizes from inputs that have
        them, and numbers from the caller from inputs of their own.
        """
        graph = self.program.graph
        for size in self.open_sizes:
            _read_size(graph, size)
        for node in graph.find_nodes(op="placeholder"):
            if not node.users:  # those of weights' copies among them
                graph.erase_node(node)
        model: Model = TorchModel(self.program)
        feeds = [{name: array_of(value) for name, value in call.items()} for call in self.calls]
        session = open_session(model, feeds)
        planning = self.options.planning
        if planning.line.quantized is not None:
            coarse = (
                *planning.coarse,
                *without_kernels(needs_of(model, self.options), planning.target),
            )
            planning = replace(planning, coarse=coarse)
        return model, replace(self.options, planning=planning), session


def captured_graphs(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object]
) -> list[CapturedGraph]:
    """The graphs that a module runs on batches of data, with the arguments of their calls. Their
    options have corrections of constants where weights are some: where they are frozen.

    Of graphs that are alike but for the sizes of their inputs there is one: that which takes the
    most of their calls.

    Raises InputError: there is no batch.
    """
    graphs: list[CapturedGraph] = []

    def keep(program: Program, options: Options) -> Callable[..., Any]:
        own = options if settings.is_frozen else replace(options, steps=())
        return _keep(program, own, graphs)

    if not run_captured(model, settings, data, keep):
        raise InputError("data holds no batch; give one at least")
    alike: dict[tuple[str, ...], list[CapturedGraph]] = {}
    for captured in graphs:
        if captured.calls:
            alike.setdefault(captured.names, []).append(captured)
    return [_for_all_sizes(group) for group in alike.values()]


def _for_all_sizes(group: Sequence[CapturedGraph]) -> CapturedGraph:
    """The graph that takes the most calls, its own and others', with all that it takes."""
    taken = [
        [call for own in group for call in own.calls if own is captured or captured.takes(call)]
        for captured in group
    ]
    most = max(range(len(group)), key=lambda each: (len(taken[each]), bool(group[each].open_sizes)))
    group[most].calls = taken[most]
    return group[most]


def _has_fixed_sizes_of(example: torch.Tensor, value: torch.Tensor) -> bool:
    return value.dim() == example.dim() and all(
        isinstance(size, SymInt) or size == given
        for size, given in zip(example.shape, value.shape, strict=True)
    )


def _read_size(graph: fx.Graph, size: fx.Node) -> None:
    """Make a graph read a size from an input that has it, in place of being given it, or a number
    of the caller's from an input of one element, which takes its place.
    """
    place = _place_of(graph, size)
    last = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_after(last):
        read = (
            graph.call_function(torch.ops.aten._local_scalar_dense.default, (size,))
            if place is None
            else graph.call_function(torch.ops.aten.sym_size.int, place)
        )
    read.meta = dict(size.meta)
    size.replace_all_uses_with(read, delete_user_cb=lambda user: user is not read)
    if place is None:
        with fake_mode_of(graph):
            size.meta["val"] = torch.zeros((), dtype=torch.int64)


def _place_of(graph: fx.Graph, size: fx.Node) -> tuple[fx.Node, int] | None:
    """The input that has a size, and its axis; None if there is none."""
    for node in graph.find_nodes(op="placeholder"):
        value = tensor_of(node)
        for axis, length in enumerate(() if value is None else value.shape):
            if isinstance(length, SymInt) and str(length) == str(size.meta["val"]):
                return node, axis
    return None


def _keep(program: Program, options: Options, graphs: list[CapturedGraph]) -> Callable[..., Any]:
    """Add a graph to those that were captured; returns its interpreter, which keeps arguments."""
    captured = CapturedGraph(program=program, options=options, calls=[])
    graphs.append(captured)
    runner = AtenRunner(program, AsTyped())

    def call(*args: object) -> object:
        if not captured.calls:
            captured.program = _with_states(program, args)
        captured.calls.append(_fed(captured.program, args))
        return compute(runner, args, (), lambda name, numbers: None)

    return call


def _with_states(program: Program, args: Sequence[object]) -> Program:
    """The program with its buffers as they are at a call, since code after it may write to them."""
    states = {
        name: replace(program.states[name], tensor=_copy_of(value))
        for name, value in zip(_inputs_of(program), args, strict=True)
        if name in program.states and isinstance(value, torch.Tensor)
    }
    return replace(program, states=states)


def _copy_of(value: torch.Tensor) -> Callable[[], torch.Tensor]:
    kept = value.detach().clone()
    return lambda: kept


def _fed(program: Program, args: Sequence[object]) -> dict[str, torch.Tensor]:
    """The arguments of a call that are read, and no weights or buffers with their first value, by
    the names of inputs; numbers from the caller have no dimension.
    """
    fed = {}
    for (name, node), value in zip(_inputs_of(program).items(), args, strict=True):
        if not node.users or name in program.weights or _is_state(program, name, value):
            continue
        if isinstance(value, torch.Tensor):
            fed[program.names.get(name, name)] = value.detach().clone()
        elif isinstance(node.meta["val"], SymInt) and _place_of(program.graph, node) is None:
            fed[program.names.get(name, name)] = torch.tensor(value)
    return fed


def _inputs_of(program: Program) -> dict[str, fx.Node]:
    return {node.name: node for node in program.graph.find_nodes(op="placeholder")}


def _is_state(program: Program, name: str, value: object) -> bool:
    """Whether an argument is a buffer as it was at the first call."""
    state = program.states.get(name)
    if state is None or not isinstance(value, torch.Tensor):
        return False
    return torch.equal(numbers_of(state, name), value)


class _CapturingBackend(Backend):
    """A backend that plans nothing and generates no code."""

    def __init__(self, settings: CompilerSettings, capture: Capture) -> None:
        super().__init__(replace(settings, is_frozen=False), self._compile)
        self._capture, self._are_frozen = capture, settings.is_frozen
        self._runs: list[Callable[..., Any]] = []

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        return _CapturingPass(
            edited,
            options,
            self.settings.digest,
            theirs,
            self._are_frozen,
            lambda program: self._runs.append(self._capture(program, options)),
        )

    def _compile(self, module: fx.GraphModule, inputs: object, **ignored: object) -> Any:
        return self._runs[-1]


class _CapturingPass(PlanningPass):
    """Hands a copy of its graph on, and leaves the graph as it is."""

    def __init__(
        self,
        edited: Edited,
        options: Options,
        digest: str,
        before: Before,
        as_frozen: bool,
        take: Callable[[Program], object],
    ) -> None:
        super().__init__(edited, options, digest, before, as_frozen=as_frozen)
        self._take = take

    def plan_program(self, program: Program) -> Sequence[RewrittenGraph]:
        graph = program.copied()
        self._take(replace(program, graph=graph, owner=fx.GraphModule(program.owner, graph)))
        return ()
