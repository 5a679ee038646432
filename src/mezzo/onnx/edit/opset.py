"""Opset upgrade: find the smallest newer opset whose schemas allow low precision, and convert the
model by steps that preserve the semantics of every operator.
"""

from collections.abc import Iterable, Sequence, Set
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import onnx
import onnx.defs

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.schema import can_convert, first_legal_opset

if TYPE_CHECKING:
    from mezzo.onnx.opset_steps.upgrade import Obstacle


class Upgraded(NamedTuple):
    """A copy of a model at the newest opset that it reaches, and the nodes that block the next one,
    none if the requested opset is reached.
    """

    model: onnx.ModelProto
    obstacles: "Sequence[Obstacle]"


def newest_opset() -> int:
    """The newest released opset that the installed onnx defines."""
    return onnx.defs.onnx_opset_version()


def newest_within(limit: int | None) -> int:
    """The newest opset up to `limit`, which a runtime sets, that the installed onnx defines."""
    return newest_opset() if limit is None else min(limit, newest_opset())


def default_opset(model: onnx.ModelProto) -> int | None:
    """Opset of the default domain; None for a model that does not import it."""
    return next((o.version for o in model.opset_import if o.domain in DEFAULT), None)


def check_opsets(model: onnx.ModelProto, name: str) -> None:
    """Raises ModelError: the model or a function imports an opset of ONNX that the installed onnx
    does not define, so nothing is known of its operators.
    """
    newest = newest_opset()
    for holder in (model, *model.functions):
        for entry in holder.opset_import:
            if entry.domain in DEFAULT and not 1 <= entry.version <= newest:
                update = ", or pip install --upgrade onnx" if entry.version > newest else ""
                raise ModelError(
                    f"{name} imports opset {entry.version}, and onnx {onnx.__version__} defines"
                    f" opsets 1 to {newest}; export the model at one of them{update}"
                )


def upgrade(source: onnx.ModelProto, until: int) -> Upgraded:
    """Upgrade a copy of a model, with functions, towards an opset as far as all nodes convert."""
    model = deepcopy(source)
    obstacles = upgrade_in_place(model, until)
    if obstacles:
        model = deepcopy(source)
        upgrade_in_place(model, obstacles[0].version - 1)
    return Upgraded(model, obstacles)


def upgrade_in_place(
    model: onnx.ModelProto, opset: int, skipped: Set[int] = frozenset()
) -> "Sequence[Obstacle]":
    """Upgrade a model to an opset. Returns the nodes that block it; if there are any, the model is
    spoilt. `skipped`: ids of nodes that stay as they are.
    """
    from mezzo.onnx.opset_steps.upgrade import upgrade_by_steps

    return upgrade_by_steps(model, opset, skipped)


def mend_shapes(model: onnx.ModelProto) -> tuple[str, ...]:
    """Correct declared shapes that inference at the model's opset contradicts. Returns the graph
    outputs among them.
    """
    from mezzo.onnx.opset_steps.stated import mend_stated_shapes

    return mend_stated_shapes(model)


def reach(model: onnx.ModelProto, until: int) -> tuple[int, Upgraded]:
    """The newest opset up to `until` that preserves the semantics of every node, and the upgraded
    copy of the model.
    """
    since = default_opset(model)
    assert since is not None, "asked only for models of the default domain"
    upgraded = upgrade(model, until)
    reached = default_opset(upgraded.model)
    assert reached is not None, "a copy imports what the model does"
    return reached, upgraded


def helpful_opset(graph: Graph, wanted: Iterable[int], low: DType, since: int, until: int) -> int:
    """Smallest opset up to `until` at which no further `wanted` node gains `low` from newer ones.

    `wanted`: ids of nodes that policy and target, but not the schema at `since`, allow in `low`.
    """
    return max(helpful_opsets(graph, wanted, low, since, until), default=since)


def helpful_opsets(
    graph: Graph, wanted: Iterable[int], low: DType, since: int, until: int
) -> list[int]:
    """For each `wanted` node, the smallest opset after `since` whose schema allows `low`. Nodes
    without one up to `until` are omitted.
    """
    opsets: list[int] = []
    cached: dict[tuple[object, ...], int | None] = {}
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
        if key not in cached:
            cached[key] = first_legal_opset(
                "", node.op, since + 1, until, inputs, len(node.outputs), node.signature.dtype, low
            )
        opset = cached[key]
        if opset is not None:
            opsets.append(opset)
    return opsets


def smallest_opset(
    graph: Graph, held: Iterable[int], rewritten: Iterable[int], low: DType, since: int, until: int
) -> int:
    """Smallest opset from `since` to `until` that allows `low` for nodes that are not legal at
    `since` (`held`), for nodes that the upgrade has rewritten, and for Casts to and from them.
    """
    needed = max(
        helpful_opset(graph, held, low, since, until),
        helpful_opset(graph, rewritten, low, since - 1, until),
    )
    return needed if needed <= since else max(needed, _first_cast(low, since, until))


@cache
def _first_cast(low: DType, since: int, until: int) -> int:
    """Smallest opset that can convert to `low`; `until` if none before it can."""
    return next((version for version in range(since, until) if can_convert(low, version)), until)


def set_opset(model: onnx.ModelProto, opset: int) -> tuple[str, ...]:
    """Upgrade the model in place, with its functions, to an opset and the matching IR version.
    Returns graph outputs whose declared shapes proved wrong at that opset and were corrected.
    """
    obstacles = upgrade_in_place(model, opset)
    assert not obstacles, f"asked only for what can be reached: {obstacles[0]}"
    return mend_shapes(model)
