"""Snapshots of planned graphs for reports: names, sizes and lines, without weights."""

from dataclasses import dataclass, replace

from mezzo.contracts.plans import Plan
from mezzo.ir.graph import Graph
from mezzo.report.views.outline import Outline, outline, outline_plan
from mezzo.torch.compiler.rewriting import RewrittenGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSnapshot:
    """A planned graph. The counts are of operators that compute floats."""

    graph: Graph
    plan: Plan
    low_nodes: int
    high_nodes: int

    def outline(self) -> Outline:
        """The graph with its plan, in the form that reports draw."""
        return outline(self.graph, [outline_plan(self.graph, "result", self.plan)])


def take_snapshot(planned: RewrittenGraph) -> GraphSnapshot:
    """Take a snapshot of a planned graph, which keeps neither FX nodes nor weights alive."""
    low, high = planned.decided.count_nodes()
    graph = replace(planned.reading.graph, constants={}, wide_constants={}, integers={})
    return GraphSnapshot(graph=graph, plan=planned.plan, low_nodes=low, high_nodes=high)
