"""Reference runs of a model's graphs: in FP64, in FP32, and with the planned precisions.

The model passes through the whole compiler driver except code generation: in place of Inductor's
kernels, an interpreter evaluates the graph call by call.
"""

import copy
import enum
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.arithmetic import AsTyped
from mezzo.aten.lab.runner import AtenRunner, in_float64, numbers_of, wide
from mezzo.aten.program import Program, is_float
from mezzo.aten.read.retype import COPY
from mezzo.aten.read.scales import exponent_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, SourceLine
from mezzo.planner.options import Options
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.passes import Before, PlanningPass
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.compiler.settings import CompilerSettings, OptionsOf
from mezzo.torch.weights.weight_inputs import Edited


class ReferenceRun(enum.Enum):
    """A way to compute the model."""

    EXACT = "every float in FP64, whatever it is typed"
    FP32 = "as the user wrote it, by PyTorch's own kernels"
    PLANNED = "as planned: in FP32, every result rounded to its type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A value that all runs produce: the last float output of an operator of the plan."""

    module: str
    node: str
    op: str
    dtype: str
    line: SourceLine | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph before and after its plan was applied, and the values to compare by FX node."""

    written: Program
    planned: Program
    spots: Mapping[str, Spot]

    def corrected(self) -> dict[int, torch.Tensor]:
        """The weights that the plan corrects, by argument position."""
        corrected = {}
        for place, node in enumerate(self.planned.graph.find_nodes(op="placeholder")):
            weight = self.planned.weights.get(node.name)
            if weight is not None and weight is not self.written.weights[node.name]:
                corrected[place] = numbers_of(weight, node.name)
        return corrected


# Callback on a value: index of the graph call in the pass, index of the graph, FX node name,
# tensor.
See = Callable[[int, int, str, torch.Tensor], None]


class ReferenceBackend(Backend):
    """A backend whose graphs are interpreted. `begin` sets the run and the callback."""

    def __init__(self, settings: CompilerSettings) -> None:
        super().__init__(replace(settings, is_frozen=False), self._compile)
        self._as_frozen = settings.is_frozen
        self.reference_run = ReferenceRun.EXACT
        self.see: See = _see_nothing
        self.graphs: list[Recorded | None] = []
        self._turn = -1

    def begin(self, reference_run: ReferenceRun, see: See) -> None:
        """Begin a pass over a batch."""
        self.reference_run, self.see = reference_run, see
        self._turn = -1

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        settings = self.settings
        options_of = settings.options_of(options)
        return _RecordingPass(
            edited,
            options,
            settings.digest,
            theirs,
            options_of=options_of,
            as_frozen=self._as_frozen,
            records=self.graphs,
        )

    def _compile(
        self, module: fx.GraphModule, inputs: object, **ignored: object
    ) -> Callable[..., Any]:
        recorded = self.graphs[-1] if self.graphs and self.graphs[-1] is not None else None
        number = len(self.graphs) - 1
        if recorded is None:
            unchanged: Callable[..., Any] = module.forward
            return unchanged
        runners = {
            ReferenceRun.EXACT: in_float64(recorded.written),
            ReferenceRun.FP32: AtenRunner(recorded.written, AsTyped()),
            ReferenceRun.PLANNED: AtenRunner(recorded.planned, wide()),
        }

        corrected = recorded.corrected()

        def call(*args: object) -> object:
            self._turn += 1
            turn = self._turn
            if self.reference_run is ReferenceRun.PLANNED:
                args = tuple(corrected.get(place, value) for place, value in enumerate(args))
            return compute(
                runners[self.reference_run],
                args,
                recorded.spots,
                lambda name, value: self.see(turn, number, name, value),
            )

        return call


class _RecordingPass(PlanningPass):
    """Records planned graphs."""

    def __init__(
        self,
        edited: Edited,
        options: Options,
        digest: str,
        before: Before,
        *,
        options_of: OptionsOf,
        as_frozen: bool,
        records: list[Recorded | None],
    ) -> None:
        super().__init__(
            edited, options, digest, before, options_of=options_of, as_frozen=as_frozen
        )
        self._into = records

    def __call__(self, graph: fx.Graph) -> None:
        before = len(self._into)
        super().__call__(graph)
        is_body = any(node.meta.get("desc") is None for node in graph.find_nodes(op="placeholder"))
        if len(self._into) == before and not is_body:
            self._into.append(None)  # not planned

    def rewritten(self, program: Program) -> RewrittenGraph:
        copied, owner = program.copied(), program.owner
        # With the module's constants, which the compiler removes.
        original = fx.GraphModule(owner, copied)
        for name, subgraph in list(original.named_children()):
            setattr(original, name, copy.deepcopy(subgraph))  # subgraphs are edited in place
        planned = super().rewritten(program)
        result = program.copied()  # the compiler modifies its own graph further
        self._into.append(
            Recorded(
                replace(program, graph=copied, owner=original),
                replace(
                    program,
                    graph=result,
                    owner=fx.GraphModule(owner, result),
                    weights=planned.result.program.weights,
                ),
                dict(_spots(planned)),
            )
        )
        return planned


def _spots(planned: RewrittenGraph) -> Iterator[tuple[str, Spot]]:
    plan, graph, holders = planned.plan, planned.reading.graph, planned.reading.holders
    input_dependent = _fed(graph)
    for node in graph.nodes:
        planned_node = plan.by_name.get(node.name)
        if (
            node.kind is not Kind.OP
            or planned_node is None
            or node.signature.dtype is None
            or node.id not in input_dependent
        ):
            continue
        outputs = [holders[value] for value in node.outputs if value is not None]
        floats = [output.name for output in outputs if output is not None and is_float(output)]
        if floats:
            spot = Spot(
                module=graph.modules.get(node.id, ""),
                node=node.name,
                op=node.op,
                dtype=str(planned_node.precision.compute),
                line=graph.lines.get(node.id),
            )
            yield floats[-1], spot


def _fed(graph: Graph) -> set[int]:
    """The nodes that depend on inputs, not only on weights."""
    dependent: set[int] = set()
    for node in graph.nodes:
        producers = {graph.values[value].producer for value in node.inputs if value is not None}
        if node.kind is Kind.INPUT or not dependent.isdisjoint(producers):
            dependent.add(node.id)
    return dependent


def compute(
    runner: AtenRunner,
    args: Sequence[object],
    spots: Container[str],
    see: Callable[[str, torch.Tensor], None],
) -> object:
    """Run a graph on the arguments of the generated code, and show the values of `spots`, by the
    name of their FX node; outputs have the types of the graph.
    """
    inputs = runner.program.graph.find_nodes(op="placeholder")
    feeds = {node: value if node.users else None for node, value in zip(inputs, args, strict=True)}
    buffers: dict[Any, object] = dict(feeds)
    writes: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(node: fx.Node, numbers: torch.Tensor) -> None:
        if node.name in spots:
            exponent = exponent_of(node)
            see(node.name, torch.ldexp(numbers, torch.tensor(exponent)) if exponent else numbers)
        if node.target is COPY and isinstance(buffer := buffers.get(node.args[0]), torch.Tensor):
            writes.append((buffer, numbers))

    returned = runner.walk(feeds, watch)
    for buffer, numbers in writes:
        if buffer is not numbers:
            buffer.copy_(numbers)
    outputs = runner.program.graph.output_node().args[0]
    typed = fx.map_arg(outputs, lambda node: node.meta.get("val"))
    return _typed(returned, typed)


def _typed(value: Any, fake: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_typed(item, item_fake) for item, item_fake in zip(value, fake, strict=True)]
    if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
        return value.to(fake.dtype)
    return value


def _see_nothing(turn: int, graph: int, name: str, numbers: torch.Tensor) -> None:
    pass
