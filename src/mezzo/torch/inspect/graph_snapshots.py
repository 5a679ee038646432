"""What is kept of a planned graph, so that a report can draw it: names, sizes and lines, and nothing of its weights."""

from dataclasses import dataclass, replace

from mezzo.contracts.plans import Plan
from mezzo.ir.graph import Graph
from mezzo.report.views.outline import Outline, outline, outline_plan
from mezzo.torch.compiler.rewriting import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A graph as it was planned. Nodes count operators that compute floats."""

    graph: Graph
    plan: Plan
    low_nodes: int
    high_nodes: int

    def outline(self) -> Outline:
        """The graph with its plan, as a report draws it."""
        return outline(self.graph, [outline_plan(self.graph, "result", self.plan)])


def sketch(planned: Planned) -> Sketch:
    """Keep of a graph what a report draws. The compiler's nodes and the weights behind them may go."""
    low, high = planned.decided.count_nodes()
    graph = replace(planned.reading.graph, constants={}, wide_constants={}, integers={})
    return Sketch(graph=graph, plan=planned.plan, low_nodes=low, high_nodes=high)
