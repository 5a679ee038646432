"""Capture of the graphs that a module runs on data, with something else run in place of each."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from mezzo.aten.program import Program
from mezzo.planner.options import Options
from mezzo.torch.compiler.arguments import batches_of, call_with
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.passes import Before, PlanningPass
from mezzo.torch.compiler.rewriting import RewrittenGraph
from mezzo.torch.compiler.settings import CompilerSettings
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


class _CapturingBackend(Backend):
    """A backend that plans nothing and generates no code."""

    def __init__(self, settings: CompilerSettings, capture: Capture) -> None:
        super().__init__(replace(settings, is_frozen=False), self._compile)
        self._capture = capture
        self._runs: list[Callable[..., Any]] = []

    def make_pass(self, edited: Edited, options: Options, theirs: Before) -> PlanningPass:
        return _CapturingPass(
            edited,
            options,
            self.settings.digest,
            theirs,
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
        take: Callable[[Program], object],
    ) -> None:
        super().__init__(edited, options, digest, before)
        self._take = take

    def plan_program(self, program: Program) -> Sequence[RewrittenGraph]:
        graph = program.copied()
        self._take(replace(program, graph=graph, owner=fx.GraphModule(program.owner, graph)))
        return ()
