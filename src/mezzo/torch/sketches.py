"""What is kept of a planned graph, so that a report can draw it: names, sizes and lines, and nothing of its weights."""

from dataclasses import dataclass, replace

from mezzo.core.graph import Graph
from mezzo.core.nodes import SourceLine
from mezzo.core.plans import Plan
from mezzo.core.source_lines import SourceLines, is_readable, line_of_traceback
from mezzo.torch.rewriting import Planned
from mezzo.views.outline import Outline, outline, outline_plan


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
    reading = planned.reading
    traces = [calls[0].meta.get("stack_trace") if calls else None for calls in reading.calls]

    def find(node: int) -> SourceLine | None:
        trace = traces[node]
        return line_of_traceback(trace) if is_readable(trace) else None

    low, high = planned.decided.count_nodes()
    graph = replace(reading.graph, constants={}, wide_constants={}, integers={}, lines=SourceLines(len(traces), find))
    return Sketch(graph=graph, plan=planned.plan, low_nodes=low, high_nodes=high)
