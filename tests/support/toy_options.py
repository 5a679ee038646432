"""What the tests of the planner ask of toy graphs."""

from dataclasses import replace

from pairs import F16_LINE, side_of

from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Choice
from mezzo.ir.graph import Graph
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import Judged, judge
from mezzo.planner.reasons import reasons
from mezzo.plugins.discovery import policy, strategies, target
from mezzo.tables.policy import NodeVerdict

TEXT = "in x 8\nconst w 64\nh = product x w\nm = move h\ne = explode m\np = plus m e\nout p"


def planning(**changes: object) -> PlanningOptions:
    return replace(
        PlanningOptions(
            line=F16_LINE, policy=policy("balanced"), strategy=strategies()["mincut"], target=target("any")
        ),
        **changes,
    )  # type: ignore[arg-type]


def told(judged: Judged, graph: Graph) -> dict[str, NodeVerdict]:
    return {node.name: judged.verdicts()[node.id] for node in graph.nodes}


def choices(graph: Graph, asked: PlanningOptions) -> dict[str, Choice]:
    found = side_of(judge(graph, asked).problem).choices
    return {node.name: choice for node, choice in zip(graph.nodes, found, strict=True)}


def why(graph: Graph, asked: PlanningOptions, low: set[str]) -> dict[str, Reason]:
    judged = judge(graph, asked)
    found = reasons(judged, [int(node.name in low) for node in graph.nodes], asked)
    return {node.name: reason for node, reason in zip(graph.nodes, found, strict=True)}


def changed(graph: Graph, name: str, **signature: object) -> Graph:
    """The graph with another signature for one node."""
    nodes = tuple(
        node._replace(signature=replace(node.signature, **signature)) if node.name == name else node  # type: ignore[arg-type]
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def notes_of(judged: Judged) -> tuple[str, ...]:
    """What the user hears, but for what estimates assume of inputs and operators."""
    of_estimates = ("where no data shows it, ", "sizes are not followed")
    return tuple(note for note in judged.notes if not note.startswith(of_estimates))
