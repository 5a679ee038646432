"""Writes calls into a compiler's graph, each with what it makes."""

from typing import Any

from torch import fx

from mezzo.aten.read.origins import inherited
from mezzo.aten.read.retype import fake_mode_of


class Builder:
    """Writes calls where the graph's insertion point stands. `of` is the node that they are made for: they stand in its
    module and at its line.
    """

    def __init__(self, graph: fx.Graph, of: fx.Node | None = None) -> None:
        self.graph, self.mode = graph, fake_mode_of(graph)
        self.of = of

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = self.graph.call_function(target, args, kwargs)
        given, named = fx.map_arg((args, kwargs), lambda node: node.meta["val"])
        with self.mode:
            made.meta = {**({} if self.of is None else inherited(self.of)), "val": target(*given, **named)}
        return made
