"""Says of a compiled model what its nodes run in, and why."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mezzo.api.explain import chain_of, find_meant
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.report.layout.printed import as_text, terminal_width
from mezzo.report.text.explained import Explained, draw_explained, report_explained
from mezzo.torch.compiler.compiled import account
from mezzo.torch.inspect.accounts import NOTHING, Account, GraphAccount
from mezzo.torch.inspect.graph_snapshots import Sketch
from mezzo.torch.train.attention import AS_PRODUCTS


class Explanation:
    """Nodes of a compiled model, each with the chain of causes behind it and its line of the program."""

    def __init__(self, word: str, nodes: tuple[Explained, ...]) -> None:
        self.word, self.nodes = word, nodes

    @property
    def chains(self) -> tuple[tuple[PlannedNode, ...], ...]:
        """Each node, the node that caused its precision, and so on."""
        return tuple(one.chain for one in self.nodes)

    def __repr__(self) -> str:
        width = terminal_width()
        return as_text(report_explained(self.word, self.nodes, width), width)

    def _repr_html_(self) -> str:
        return draw_explained(self.word, self.nodes)


def explain(compiled: Any, word: str) -> Explanation:
    """Why nodes run in what they run in.

    `word`: the path of a module, such as "encoder.layer.3", the name of a node, an operator, or a glob. A graph that
    was compiled for other shapes says the same again, and is told once.

    Raises InputError: nothing was compiled yet, or nothing of that name.
    """
    told = account(compiled)
    planned = [graph for graph in told.graphs if graph.plan is not None]
    plans = [(plan, one) for one in planned for plan in (one.plan, *one.bodies.values()) if plan is not None]
    if not plans:
        raise nothing_planned(told)
    found: dict[tuple[PlannedNode, ...], Explained] = {}
    for plan, graph in plans:
        run = dict(_ways(plan, graph))
        for chain in _chains(plan, word):
            placed = _placed(chain, plan, graph.sketch)
            found.setdefault(chain, replace(placed, run=run.get(chain[0].name, "")))
    if not found:
        find_meant(plans[0][0], word)  # which says what may have been meant
    return Explanation(word, tuple(found.values()))


def _ways(plan: Plan, graph: GraphAccount) -> Iterator[tuple[str, str]]:
    """How nodes are run, by their names, in words of them: an attention that runs as products may be rounded, too."""
    rounded = {one.node: one.way.value for one in graph.handed_on if one.plan is plan}
    yield from rounded.items()
    for one in graph.as_products:
        if one.plan is plan:
            yield one.node, "; it ".join([AS_PRODUCTS, *([rounded[one.node]] if one.node in rounded else [])])


def _placed(chain: tuple[PlannedNode, ...], plan: Plan, sketch: Sketch | None) -> Explained:
    """Where a node stands; of bodies, which have no sketch, no line is known."""
    name = chain[0].name
    if sketch is None or sketch.plan is not plan:
        return Explained(chain=chain, module=plan.names.modules.get(name, ""), line=None)
    number = sketch.graph.by_name.get(name)
    if number is None:
        return Explained(chain=chain, module="", line=None)
    return Explained(chain=chain, module=sketch.graph.modules.get(number, ""), line=sketch.graph.lines.get(number))


def nothing_planned(told: Account) -> InputError:
    """What to say of a model without a plan."""
    notes = dict.fromkeys(graph.note for graph in told.graphs if graph.note is not None)
    return InputError(f"no graph of the model was planned: {'; '.join(notes) or NOTHING}")


def _chains(plan: Plan, word: str) -> Iterator[tuple[PlannedNode, ...]]:
    try:
        meant = find_meant(plan, word)
    except InputError:
        return
    for node in meant.nodes:
        yield chain_of(plan, node)
