"""Insertion of calls into a compiler's graph, with fake results."""

from typing import Any

from torch import fx

from mezzo.aten.read.origins import inherited
from mezzo.aten.read.retype import fake_mode_of
from mezzo.aten.torch_internals import schema_of


class CallInserter:
    """Inserts calls at the insertion point; they inherit module and line from the node `of`."""

    def __init__(self, graph: fx.Graph, of: fx.Node | None = None) -> None:
        self.graph, self.mode = graph, fake_mode_of(graph)
        self.of = of

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(target, args, kwargs)
        fake_args, fake_kwargs = fx.map_arg((args, kwargs), lambda operand: operand.meta["val"])
        with self.mode:
            node.meta = {
                **({} if self.of is None else inherited(self.of)),
                "val": target(*fake_args, **fake_kwargs),
            }
        return node


def arguments_of(call: fx.Node) -> dict[str, Any]:
    """The arguments of a call by the names in the operator's schema; it has them all in order."""
    names = [argument.name for argument in schema_of(call.target).arguments]
    return dict(zip(names, call.args, strict=True))
