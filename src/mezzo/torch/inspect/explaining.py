"""`mezzo.torch.explain`: the precision of nodes in a compiled model, and the reasons."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mezzo.api.explain import chain_of, find_meant
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan, PlannedNode, PlannedWeight
from mezzo.report.layout.printed import as_text, terminal_width
from mezzo.report.text.explained import Explained, draw_explained, report_explained
from mezzo.report.text.weights import report_weights
from mezzo.torch.compiler.compiled import account
from mezzo.torch.generation.few_rows_attention import AS_LOOPS
from mezzo.torch.inspect.accounts import NOTHING, Account, GraphAccount
from mezzo.torch.inspect.graph_snapshots import GraphSnapshot
from mezzo.torch.train.attention import AS_PRODUCTS


class Explanation:
    """Nodes of a compiled model, each with its chain of causes and its source line; and the weights
    that they read, if some were to be stored in blocks.
    """

    def __init__(
        self, word: str, nodes: tuple[Explained, ...], weights: tuple[PlannedWeight, ...] = ()
    ) -> None:
        self.word, self.nodes, self.weights = word, nodes, weights

    @property
    def chains(self) -> tuple[tuple[PlannedNode, ...], ...]:
        """Each node, followed by the node that caused its precision, and so on."""
        return tuple(node.chain for node in self.nodes)

    def __repr__(self) -> str:
        width = terminal_width()
        explained = report_explained(self.word, self.nodes, width)
        return as_text([*explained, *report_weights(self.weights)], width)

    def _repr_html_(self) -> str:
        return draw_explained(self.word, self.nodes)


def explain(compiled: Any, word: str) -> Explanation:
    """Explain the precision of nodes.

    `word`: a module path such as "encoder.layer.3", a node name, an operator, or a glob. A graph
    recompiled for other shapes is listed once.

    Raises InputError: nothing was compiled yet, or nothing matches.
    """
    graphs_account = account(compiled)
    planned = [graph for graph in graphs_account.graphs if graph.plan is not None]
    plans = [
        (plan, graph_account)
        for graph_account in planned
        for plan in (graph_account.plan, *graph_account.bodies.values())
        if plan is not None
    ]
    if not plans:
        raise nothing_planned(graphs_account)
    explanations: dict[tuple[PlannedNode, ...], Explained] = {}
    weights: dict[PlannedWeight, None] = {}
    for plan, graph in plans:
        run = dict(_ways(plan, graph))
        for chain in _chains(plan, word):
            placed = _placed(chain, plan, graph.snapshot)
            weights |= dict.fromkeys(plan.weights_read(chain[0].name))
            explanations.setdefault(chain, replace(placed, run=run.get(chain[0].name, "")))
    if not explanations:
        find_meant(plans[0][0], word)  # raises with suggestions
    return Explanation(word, tuple(explanations.values()), tuple(weights))


def _ways(plan: Plan, graph: GraphAccount) -> Iterator[tuple[str, str]]:
    """Execution notes by node name; attention computed by matmuls may also round its outputs."""
    rounded = {entry.node: entry.way.value for entry in graph.fp32_outputs if entry.plan is plan}
    yield from rounded.items()
    yield from ((entry.node, AS_LOOPS) for entry in graph.as_loops if entry.plan is plan)
    for entry in graph.as_products:
        if entry.plan is plan:
            yield (
                entry.node,
                "; it ".join(
                    [AS_PRODUCTS, *([rounded[entry.node]] if entry.node in rounded else [])]
                ),
            )


def _placed(
    chain: tuple[PlannedNode, ...], plan: Plan, snapshot: GraphSnapshot | None
) -> Explained:
    """A node's module and line; subgraphs have no snapshot, so their lines are unknown."""
    name = chain[0].name
    if snapshot is None or snapshot.plan is not plan:
        return Explained(chain=chain, module=plan.names.modules.get(name, ""), line=None)
    number = snapshot.graph.by_name.get(name)
    if number is None:
        return Explained(chain=chain, module="", line=None)
    return Explained(
        chain=chain,
        module=snapshot.graph.modules.get(number, ""),
        line=snapshot.graph.lines.get(number),
    )


def nothing_planned(graphs_account: Account) -> InputError:
    """The error for a model without a plan."""
    notes = dict.fromkeys(graph.note for graph in graphs_account.graphs if graph.note is not None)
    return InputError(f"no graph of the model was planned: {'; '.join(notes) or NOTHING}")


def _chains(plan: Plan, word: str) -> Iterator[tuple[PlannedNode, ...]]:
    try:
        matched = find_meant(plan, word)
    except InputError:
        return
    for node in matched.nodes:
        yield chain_of(plan, node)
