"""Raise a model's opset where a newer one allows a type, and only by steps that keep every operator's meaning."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import onnx
import onnx.defs
import onnx.helper

from mezzo.core.graph import Graph
from mezzo.dtypes import HIGH, DType
from mezzo.frontends.onnx.migrations import MIGRATIONS, Fresh, Ranks
from mezzo.frontends.onnx.names import fresh_name
from mezzo.frontends.onnx.order import sort_nodes
from mezzo.frontends.onnx.schema import can_convert, first_legal_opset
from mezzo.frontends.onnx.shapes import value_shapes

# Steps that keep names and types alike and still change what an operator means, or what may be left out.
# Source: onnx 1.23, docs/Changelog.md, read per operator.
_MEANING_CHANGES = frozenset({
    ("BatchNormalization", 14), ("GroupNormalization", 21), ("Hardmax", 13), ("LogSoftmax", 13), ("Resize", 11),
    ("Resize", 13), ("Resize", 18), ("RoiAlign", 16), ("Scan", 9), ("Softmax", 13), ("Split", 18), ("Upsample", 9),
})  # fmt: skip


def newest_opset() -> int:
    """The newest released opset that the installed onnx defines."""
    return onnx.defs.onnx_opset_version()


@cache
def keeps_meaning(op: str, since: int, until: int) -> bool:
    """Whether an operator means the same at opset `until` as at `since`: equal ports and attributes, types only
    wider.
    """
    try:
        old, new = onnx.defs.get_schema(op, since, ""), onnx.defs.get_schema(op, until, "")
    except onnx.defs.SchemaError:
        return False
    if new.deprecated:
        return False
    versions = {s.since_version for s in _history(op) if old.since_version < s.since_version <= new.since_version}
    if any((op, version) in _MEANING_CHANGES for version in versions):
        return False
    if old.since_version == new.since_version:
        return True
    return _ports(old.inputs, new.inputs) and _ports(old.outputs, new.outputs) and _attributes(old, new)


@cache
def _history(op: str) -> tuple[onnx.defs.OpSchema, ...]:
    return tuple(s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == "")


_Ports = Sequence[onnx.defs.OpSchema.FormalParameter]


def _ports(before: _Ports, after: _Ports) -> bool:
    """Whether ports only grew: more types, more optional ports, and none that became mandatory."""
    if len(before) > len(after):
        return False
    for index, port in enumerate(after):
        is_optional = port.option == onnx.defs.OpSchema.FormalParameterOption.Optional
        if index >= len(before):
            if not is_optional:
                return False
        elif not set(before[index].types) <= set(port.types) or not (
            is_optional or port.option == before[index].option
        ):
            return False
    return True


def _attributes(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    for name, attribute in old.attributes.items():
        twin = new.attributes.get(name)
        if twin is None or twin.type != attribute.type:
            return False
        if twin.default_value.SerializeToString() != attribute.default_value.SerializeToString():
            return False
    return all(not new.attributes[name].required for name in new.attributes.keys() - old.attributes.keys())


def default_opset(model: onnx.ModelProto) -> int | None:
    """Opset of the default domain; None for a model that does not import it."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)


def reachable_opset(model: onnx.ModelProto, until: int) -> int:
    """The newest opset to which every operator can go with its meaning kept, rewritten where a row says how."""
    since = default_opset(model)
    assert since is not None, "asked only for models of the default domain"
    for function in model.functions:
        imported = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), since)
        if imported != since:
            return since
    ops: dict[str, list[onnx.NodeProto]] = {}
    for owner, node in _nodes(model):
        if node.op_type in MIGRATIONS or node.op_type not in ops:
            ops.setdefault(node.op_type, []).append(node)
        assert owner is not None, "every node stands somewhere"
    needs_ranks = any(op in ("Softmax", "LogSoftmax", "Hardmax") for op in ops) and since < 13
    ranks = {name: len(shape) for name, shape in value_shapes(model).items()} if needs_ranks else {}
    best = since
    for version in range(since + 1, until + 1):
        if not all(_can_reach(op, nodes, since, version, ranks) for op, nodes in ops.items()):
            break
        best = version
    return best


def _can_reach(op: str, nodes: Sequence[onnx.NodeProto], since: int, until: int, ranks: Ranks) -> bool:
    at = since
    for migration in MIGRATIONS.get(op, ()):
        if at < migration.version <= until:
            if not keeps_meaning(op, at, migration.version - 1) or not all(
                migration.can(node, ranks) for node in nodes
            ):
                return False
            at = migration.version
    return keeps_meaning(op, at, until)


_Owner = onnx.GraphProto | onnx.FunctionProto


def _nodes(model: onnx.ModelProto) -> Iterator[tuple[_Owner, onnx.NodeProto]]:
    """Nodes of the default domain, bodies and functions included, with what they stand in."""
    waiting: list[_Owner] = [model.graph, *model.functions]
    while waiting:
        owner = waiting.pop()
        for node in owner.node:
            if node.domain in ("", "ai.onnx"):
                yield owner, node
            waiting += [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def helpful_opset(graph: Graph, wanted: Iterable[int], low: DType, since: int, until: int) -> int:
    """Smallest opset up to `until` that lets every wanted node run low which any opset up to it lets.

    `wanted` are ids of nodes that the policy and the target would grant `low` and the schema at `since` does not.
    """
    best = since
    seen: dict[tuple[object, ...], int | None] = {}
    for number in wanted:
        node = graph.nodes[number]
        inputs = tuple(
            None if v is None else HIGH if (number, operand) in graph.widened else graph.values[v].dtype
            for operand, v in enumerate(node.inputs)
        )
        key = (node.op, inputs, len(node.outputs))
        if key not in seen:
            seen[key] = first_legal_opset(
                "", node.op, since + 1, until, inputs, len(node.outputs), node.signature.dtype, low
            )
        best = max(best, seen[key] or 0)
    return best


def smallest_opset(
    graph: Graph, held: Iterable[int], rewritten: Iterable[int], low: DType, since: int, until: int
) -> int:
    """Smallest opset from `since` to `until` that lets nodes run low: those that are not legal at `since`, those that
    steps have rewritten, and the casts between them and others.
    """
    needed = max(helpful_opset(graph, held, low, since, until), helpful_opset(graph, rewritten, low, since - 1, until))
    return needed if needed <= since else max(needed, _first_cast(low, since, until))


@cache
def _first_cast(low: DType, since: int, until: int) -> int:
    """Smallest opset at which something makes `low`; `until` where none before does."""
    return next((version for version in range(since, until) if can_convert(low, version)), until)


def set_opset(model: onnx.ModelProto, opset: int) -> None:
    """Take the steps to a newer opset, in functions too, and declare the IR version that goes with it."""
    since = default_opset(model)
    assert since is not None, "asked only for models of the default domain"
    touched: dict[int, _Owner] = {}
    fresh = _fresh_names(model)
    for owner, node in list(_nodes(model)):
        for migration in MIGRATIONS.get(node.op_type, ()):
            if since < migration.version <= opset:
                migration.take(node, owner, fresh)
                touched[id(owner)] = owner
    for owner in touched.values():
        sort_nodes(owner)
    for holder in (model, *model.functions):
        for entry in holder.opset_import:
            if entry.domain in ("", "ai.onnx") and entry.version < opset:
                entry.version = opset
    needed = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if needed is not None and model.ir_version < needed:
        model.ir_version = needed


def _fresh_names(model: onnx.ModelProto) -> Fresh:
    """Make names that no value of the model bears. The names in use are collected when the first is asked for."""
    taken: set[str] = set()

    def fresh(wish: str) -> str:
        if not taken:
            taken.update(name for _, node in _nodes(model) for name in (*node.input, *node.output))
        return fresh_name(taken, wish)

    return fresh
