"""Forward colouring: one walk from inputs to outputs, as compilers' passes do it.

Green (allow) converts; gray (infer, clear) follows when all its float inputs are low already; red (deny) goes back.
Source: TVM RFC 0001, "AMP pass"; graph inputs count as FP32 here, so gray alone never starts a conversion.
"""

from collections.abc import Sequence
from typing import ClassVar

from mezzo.graph import Kind, Node, Role
from mezzo.policy import Category
from mezzo.strategy import Choice, Problem, Strategy


class Forward(Strategy):
    name: ClassVar[str] = "forward"
    summary: ClassVar[str] = "post-order colouring: allow converts, infer follows low inputs, deny goes back (TVM)"

    def assign(self, problem: Problem) -> Sequence[bool]:
        graph = problem.graph
        is_low = [choice is Choice.LOW for choice in problem.choices]
        # A tie of loop state is judged before its body: what it carries back counts as agreeing, and if the body
        # disagrees the tie is demoted and the walk repeats. Each round demotes one node for good, or ends.
        demoted: set[int] = set()
        while True:
            for node in graph.nodes:
                if problem.choices[node.id] is Choice.FREE:
                    is_low[node.id] = node.id not in demoted and self._follows(problem, is_low, node)
            disagreeing = self._disagreeing(problem, is_low) - demoted
            if not disagreeing:
                return is_low
            demoted |= disagreeing

    def _follows(self, problem: Problem, is_low: Sequence[bool], node: Node) -> bool:
        if problem.categories[node.id] is Category.ALLOW:
            return True
        graph, has_low = problem.graph, False
        for value, role in zip(node.inputs, node.signature.inputs, strict=True):
            if value is None or role is not Role.GROUP:
                continue
            producer = graph.nodes[graph.values[value].producer]
            if producer.kind is Kind.SOURCE or producer.id > node.id:
                continue
            port = producer.outputs.index(value)
            if producer.signature.outputs[port] is not Role.GROUP or not is_low[producer.id]:
                return False
            has_low = True
        return has_low

    def _disagreeing(self, problem: Problem, is_low: Sequence[bool]) -> set[int]:
        """Nodes that cannot stay low: a linked node is high, or a loop hands back what is high."""
        graph = problem.graph
        high_groups = {
            problem.linked[n]
            for n, choice in enumerate(problem.choices)
            if choice is not Choice.ABSENT and not is_low[n]
        }
        found = set()
        for node in graph.nodes:
            if not is_low[node.id] or problem.choices[node.id] is not Choice.FREE:
                continue
            carries_high = node.kind is Kind.TIE and any(
                v is not None and graph.values[v].producer > node.id and not is_low[graph.values[v].producer]
                for v in node.inputs
            )
            if carries_high or problem.linked[node.id] in high_groups:
                found.add(node.id)
        return found
