"""Puts a rewritten graph in the place of the one that a compiler handed over, which it holds on to."""

from torch import fx


def transplant(made: fx.Graph, into: fx.Graph) -> None:
    """Let `into` be what `made` is. Its placeholders stay the nodes that they are; `made` has the same, in order."""
    stays = [node for node in into.nodes if node.op == "placeholder"]
    for node in reversed(list(into.nodes)):
        if node.op != "placeholder":
            into.erase_node(node)
    copies = dict(zip([node for node in made.nodes if node.op == "placeholder"], stays, strict=True))
    for node, stay in copies.items():
        stay.meta = node.meta
    for node in made.nodes:
        if node.op != "placeholder":
            copies[node] = into.node_copy(node, lambda one: copies[one])
    into.lint()
