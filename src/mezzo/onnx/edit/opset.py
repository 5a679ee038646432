"""Raise a model's opset where a newer one allows a type, and only by steps that keep every
operator's meaning.
"""

from collections.abc import Iterable
from functools import cache

import onnx
import onnx.defs

from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.onnx.opset_steps.stated import mend_stated_shapes
from mezzo.onnx.opset_steps.upgrade import Upgraded, upgrade
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.schema import can_convert, first_legal_opset


def newest_opset() -> int:
    """The newest released opset that the installed onnx defines."""
    return onnx.defs.onnx_opset_version()


def newest_within(limit: int | None) -> int:
    """The newest opset that onnx defines and a runtime loads."""
    return newest_opset() if limit is None else min(limit, newest_opset())


def default_opset(model: onnx.ModelProto) -> int | None:
    """Opset of the default domain; None for a model that does not import it."""
    return next((o.version for o in model.opset_import if o.domain in DEFAULT), None)


def reach(model: onnx.ModelProto, until: int) -> tuple[int, Upgraded]:
    """The newest opset to which every node can go with its meaning kept, and the copy of the model
    that is there.
    """
    since = default_opset(model)
    assert since is not None, "asked only for models of the default domain"
    upgraded = upgrade(model, until)
    reached = default_opset(upgraded.model)
    assert reached is not None, "a copy imports what the model does"
    return reached, upgraded


def reachable_opset(model: onnx.ModelProto, until: int) -> int:
    """The newest opset to which every node can go with its meaning kept, rewritten where a row says
    how.
    """
    return reach(model, until)[0]


def helpful_opset(graph: Graph, wanted: Iterable[int], low: DType, since: int, until: int) -> int:
    """Smallest opset up to `until` that lets every wanted node run low which any opset up to it
    lets.

    `wanted` are ids of nodes that the policy and the target would grant `low` and the schema at
    `since` does not.
    """
    return max(helpful_opsets(graph, wanted, low, since, until), default=since)


def helpful_opsets(
    graph: Graph, wanted: Iterable[int], low: DType, since: int, until: int
) -> list[int]:
    """Smallest opset behind `since` at which a node may run low, of each wanted node that has one
    up to `until`.
    """
    opsets: list[int] = []
    seen: dict[tuple[object, ...], int | None] = {}
    for number in wanted:
        node = graph.nodes[number]
        inputs = tuple(
            (
                None
                if v is None
                else HIGH
                if (number, operand) in graph.widened
                else graph.values[v].dtype
            )
            for operand, v in enumerate(node.inputs)
        )
        key = (node.op, inputs, len(node.outputs))
        if key not in seen:
            seen[key] = first_legal_opset(
                "", node.op, since + 1, until, inputs, len(node.outputs), node.signature.dtype, low
            )
        opset = seen[key]
        if opset is not None:
            opsets.append(opset)
    return opsets


def smallest_opset(
    graph: Graph, held: Iterable[int], rewritten: Iterable[int], low: DType, since: int, until: int
) -> int:
    """Smallest opset from `since` to `until` that lets nodes run low: those that are not legal at
    `since`, those that steps have rewritten, and the casts between them and others.
    """
    needed = max(
        helpful_opset(graph, held, low, since, until),
        helpful_opset(graph, rewritten, low, since - 1, until),
    )
    return needed if needed <= since else max(needed, _first_cast(low, since, until))


@cache
def _first_cast(low: DType, since: int, until: int) -> int:
    """Smallest opset at which something makes `low`; `until` where none before does."""
    return next((version for version in range(since, until) if can_convert(low, version)), until)


def set_opset(model: onnx.ModelProto, opset: int) -> tuple[str, ...]:
    """Take the steps to a newer opset, in functions too, and declare the IR version that goes with
    it. Returns the outputs whose stated shape that opset shows to be wrong, and which state another
    now.
    """
    upgraded = upgrade(model, opset)
    assert not upgraded.obstacles, f"asked only for what can be reached: {upgraded.obstacles[0]}"
    model.CopyFrom(upgraded.model)
    return mend_stated_shapes(model)
