"""What is planned in place of a model that is to be quantized: operators are folded into those before them."""

from collections.abc import Iterable
from dataclasses import replace

from mezzo.core.frontend import Model
from mezzo.core.graph import Graph
from mezzo.core.levels import float_of
from mezzo.core.nodes import Kind
from mezzo.core.plans import Plan
from mezzo.deciding.options import Options
from mezzo.deciding.planner import matched
from mezzo.deciding.rules import nodes_in


def fuse(model: Model, options: Options) -> tuple[Model, Options]:
    """The model to plan, with the options for it: both as they are where nothing is to be quantized.

    What the options leave out, or fix at a float, stays an operator of its own. What they only ask for runs as what it
    was folded into does, so patterns that select nothing else are done with.
    """
    wishes = options.wishes
    if wishes.line.quantized is None:
        return model, options
    reading = model.read(wishes.low)
    graph, quantized = reading.graph, wishes.line.dtypes[wishes.line.quantized]
    regions = [*wishes.keep_regions, *(region for region, dtype in wishes.fixed_regions if dtype is not quantized)]
    apart = {node.id for pattern in wishes.exclude for node in matched(graph, pattern)}
    fused = model.fused(reading, sorted(apart.union(*(nodes_in(graph, region) for region in regions))))
    if fused is model:
        return model, options
    left = fused.read(wishes.low).graph
    include = tuple(_still_asked(wishes.include, graph, left))
    notes = (*options.notes, _tell(graph, left))
    return fused, replace(options, wishes=replace(wishes, include=include), notes=notes)


def fused_as(model: Model, given: Plan) -> Model:
    """The model that a plan was made of: what has a line in it was folded into no other."""
    if given.line.quantized is None:
        return model
    reading = model.read(float_of(given.line), given.version)
    return model.fused(reading, [node.id for node in reading.graph.nodes if node.name in given.by_name])


def _tell(before: Graph, after: Graph) -> str:
    """What was folded, in words."""
    gone = [node for node in before.nodes if node.kind is Kind.OP and node.name not in after.by_name]
    ops = ", ".join(sorted({node.op for node in gone}))
    return f"{len(gone)} operators ({ops}) are folded into those before them, whose names stand for both"


def _still_asked(patterns: Iterable[str], before: Graph, after: Graph) -> Iterable[str]:
    """Patterns but for those that select only what is gone; a wrong one stays, to be told as one."""
    return (pattern for pattern in patterns if matched(after, pattern) or not matched(before, pattern))
