"""Says of a compiled model what its nodes run in, and why."""

from collections.abc import Iterator
from typing import Any

from mezzo.core.plans import Plan, PlannedNode
from mezzo.errors import InputError
from mezzo.torch.compiled import account
from mezzo.verbs.explain import chain_of, find_meant


class Explanation:
    """Nodes of a compiled model with the chain of causes behind each; its text has a line for each link."""

    def __init__(self, word: str, chains: tuple[tuple[PlannedNode, ...], ...]) -> None:
        self.word, self.chains = word, chains

    def __repr__(self) -> str:
        return "\n".join(line for chain in self.chains for line in _spell(chain))


def explain(compiled: Any, word: str) -> Explanation:
    """Why nodes run in what they run in.

    `word`: the path of a module, such as "encoder.layer.3", the name of a node, an operator, or a glob. A graph that
    was compiled for other shapes says the same again, and is told once.

    Raises InputError: nothing was compiled yet, or nothing of that name.
    """
    graphs = account(compiled).graphs
    plans = [plan for graph in graphs if graph.plan is not None for plan in (graph.plan, *graph.bodies.values())]
    if not plans:
        notes = dict.fromkeys(graph.note for graph in graphs if graph.note is not None)
        why = "; ".join(map(str, notes)) or "call it once first"
        raise InputError(f"no graph of the model was planned: {why}")
    chains = dict.fromkeys(chain for plan in plans for chain in _chains(plan, word))
    if not chains:
        find_meant(plans[0], word)  # which says what may have been meant
    return Explanation(word, tuple(chains))


def _chains(plan: Plan, word: str) -> Iterator[tuple[PlannedNode, ...]]:
    try:
        meant = find_meant(plan, word)
    except InputError:
        return
    for node in meant.nodes:
        yield chain_of(plan, node)


def _spell(chain: tuple[PlannedNode, ...]) -> Iterator[str]:
    for depth, node in enumerate(chain):
        yield f"{'  ' * depth}{node.name}  {node.op}  {node.precision.output}  {node.rule}: {node.because}"
