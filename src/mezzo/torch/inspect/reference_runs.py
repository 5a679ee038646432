"""Computes the graphs of a model in three ways that are told apart layer by layer: in FP64, in FP32, and as planned.

The model goes through the whole driver, but for code generation: where Inductor would write kernels, the lab computes
the graph call by call, in whichever lane is on.
"""

import copy
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.arithmetic import AsTyped
from mezzo.aten.lab.runner import Runner, in_float64, wide
from mezzo.aten.program import Program, tensor_of
from mezzo.aten.read.retype import COPY
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, SourceLine
from mezzo.planner.options import Options
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.passes import Before, PlanningPass
from mezzo.torch.compiler.rewriting import Planned
from mezzo.torch.compiler.settings import Settings
from mezzo.torch.weights.weight_inputs import Edited


class ReferenceRun(enum.Enum):
    """One way to compute the model."""

    EXACT = "every float in FP64, whatever it is typed"
    FP32 = "as the user wrote it, by PyTorch's own kernels"
    PLANNED = "as planned: in FP32, every result rounded to its type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A value that all lanes make: the last float that an operator of the plan makes."""

    module: str
    node: str
    op: str
    dtype: str
    line: SourceLine | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph that was planned: as it came, with the plan carried out, and the values to look at by FX node."""

    written: Program
    planned: Program
    spots: Mapping[str, Spot]


# Sees a value: the how manyth call of a graph in the pass it is of, which graph, the FX node, the numbers.
See = Callable[[int, int, str, torch.Tensor], None]


class LaneBackend(Backend):
    """A backend whose graphs the lab computes. `begin` says how, and who is shown the spots."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(replace(settings, is_frozen=False), self._compile)
        self.lane = ReferenceRun.EXACT
        self.see: See = _see_nothing
        self.graphs: list[Recorded | None] = []
        self._turn = -1

    def begin(self, lane: ReferenceRun, see: See) -> None:
        """Begin a pass over a batch."""
        self.lane, self.see = lane, see
        self._turn = -1

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        return _RecordingPass(edited, options, self.settings.digest, theirs, self.graphs)

    def _compile(self, module: fx.GraphModule, inputs: object, **ignored: object) -> Callable[..., Any]:
        found = self.graphs[-1] if self.graphs and self.graphs[-1] is not None else None
        number = len(self.graphs) - 1
        if found is None:
            left: Callable[..., Any] = module.forward
            return left
        runners = {
            ReferenceRun.EXACT: in_float64(found.written),
            ReferenceRun.FP32: Runner(found.written, AsTyped()),
            ReferenceRun.PLANNED: Runner(found.planned, wide()),
        }

        def call(*given: object) -> object:
            self._turn += 1
            turn = self._turn
            return _compute(runners[self.lane], given, found.spots, lambda name, one: self.see(turn, number, name, one))

        return call


class _RecordingPass(PlanningPass):
    """Keeps what was planned."""

    def __init__(
        self, edited: Edited, options: Options, digest: str, before: Before, into: list[Recorded | None]
    ) -> None:
        super().__init__(edited, options, digest, before)
        self._into = into

    def __call__(self, graph: fx.Graph) -> None:
        before = len(self._into)
        super().__call__(graph)
        is_body = any(node.op == "placeholder" and node.meta.get("desc") is None for node in graph.nodes)
        if len(self._into) == before and not is_body:
            self._into.append(None)  # left as it is

    def rewritten(self, program: Program) -> Planned:
        copied, owner = program.copied(), program.owner
        kept = fx.GraphModule(owner, copied)  # with what the graph reads of the module, which the compiler takes out
        for name, body in list(kept.named_children()):
            setattr(kept, name, copy.deepcopy(body))  # a body is edited in place
        planned = super().rewritten(program)
        result = program.copied()  # the compiler goes on to change its own
        self._into.append(
            Recorded(
                replace(program, graph=copied, owner=kept),
                replace(program, graph=result, owner=fx.GraphModule(owner, result)),
                dict(_spots(planned)),
            )
        )
        return planned


def _spots(planned: Planned) -> Iterator[tuple[str, Spot]]:
    plan, graph, holders = planned.plan, planned.reading.graph, planned.reading.holders
    fed = _fed(graph)
    for node in graph.nodes:
        told = plan.by_name.get(node.name)
        if node.kind is not Kind.OP or told is None or node.signature.dtype is None or node.id not in fed:
            continue
        made = [holders[value] for value in node.outputs if value is not None]
        last = next((one for one in reversed(made) if one is not None and _is_float(one)), None)
        if last is not None:
            yield (
                last.name,
                Spot(
                    module=graph.modules.get(node.id, ""),
                    node=node.name,
                    op=node.op,
                    dtype=str(told.precision.compute),
                    line=graph.lines.get(node.id),
                ),
            )


def _fed(graph: Graph) -> set[int]:
    """The nodes whose values hang on what comes in, and not on weights alone."""
    fed: set[int] = set()
    for node in graph.nodes:
        makers = {graph.values[value].producer for value in node.inputs if value is not None}
        if node.kind is Kind.INPUT or not fed.isdisjoint(makers):
            fed.add(node.id)
    return fed


def _is_float(node: fx.Node) -> bool:
    made = tensor_of(node)
    return made is not None and made.dtype.is_floating_point


def _compute(
    runner: Runner, given: Sequence[object], spots: Mapping[str, Spot], see: Callable[[str, torch.Tensor], None]
) -> object:
    """Run a graph on what generated code would be given, in the types that it would hand on."""
    inputs = [node for node in runner.program.graph.nodes if node.op == "placeholder"]
    fed = {node: one if node.users else None for node, one in zip(inputs, given, strict=True)}
    given_to: dict[Any, object] = dict(fed)
    written: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(node: fx.Node, numbers: torch.Tensor) -> None:
        if node.name in spots:
            see(node.name, numbers)
        if node.target is COPY and isinstance(into := given_to.get(node.args[0]), torch.Tensor):
            written.append((into, numbers))

    returned = runner.walk(fed, watch)
    for into, numbers in written:
        if into is not numbers:
            into.copy_(numbers)
    end = next(node for node in reversed(runner.program.graph.nodes) if node.op == "output")
    typed = fx.map_arg(end.args[0], lambda node: node.meta.get("val"))
    return _typed(returned, typed)


def _typed(made: Any, typed: Any) -> Any:
    if isinstance(made, tuple | list):
        return [_typed(one, kind) for one, kind in zip(made, typed, strict=True)]
    if isinstance(made, torch.Tensor) and isinstance(typed, torch.Tensor):
        return made.to(typed.dtype)
    return made


def _see_nothing(turn: int, graph: int, name: str, numbers: torch.Tensor) -> None:
    pass
