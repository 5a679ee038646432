"""Upgrade of a model from opset to opset: in each step all nodes are converted, or none."""

from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from functools import cache
from typing import NamedTuple

import onnx
import onnx.defs
import onnx.helper

from mezzo.onnx.opset_steps.site import BlockedError, Fresh, StepSite
from mezzo.onnx.opset_steps.table import STEPS
from mezzo.onnx.opset_steps.values import Knowledge, Path, Snapshot, owners, title_of
from mezzo.onnx.protos.entries import remove_where
from mezzo.onnx.protos.graphs import Owner, nodes_of, reads_in
from mezzo.onnx.protos.names import fresh_name, names_of
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.schema.contrib import ENDED_AT_10
from mezzo.onnx.schema.domains import DEFAULT


class Obstacle(NamedTuple):
    """A node that cannot be converted to an opset, and the reason."""

    node: str
    op: str
    version: int
    because: str


def upgrade_by_steps(
    model: onnx.ModelProto, until: int, skipped: Set[int] = frozenset()
) -> Sequence[Obstacle]:
    """Upgrade a model, with functions, to an opset. Returns the nodes that block it; if there are
    any, the model is of no opset any more. `skipped`: ids of nodes that stay as they are.
    """
    original = deepcopy(model)
    knowledge, fresh = Knowledge(original), _fresh_names(original)
    lowest = min((entry.version for entry in _imports(model, *model.functions)), default=until)
    operators = _operators(model, skipped)
    for version in range(max(lowest, 0) + 1, until + 1):  # a damaged file may import version -2^63
        affected = _affected(operators, version)
        if affected:
            obstacles = _step(model, version, affected, knowledge, fresh, skipped)
            if obstacles:
                return obstacles
            _drop_unread_constants(model, knowledge)
            operators = _operators(model, skipped)
        for entry in _imports(model, *model.functions):
            if entry.version == version - 1:
                entry.version = version
    needed = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", until))
    if needed is not None and model.ir_version < needed:
        model.ir_version = needed
    return ()


def _imports(
    *holders: onnx.ModelProto | onnx.FunctionProto,
) -> Iterator[onnx.OperatorSetIdProto]:
    """Imports of the default domain."""
    for holder in holders:
        yield from (entry for entry in holder.opset_import if entry.domain in DEFAULT)


def _steppers(
    model: onnx.ModelProto, snapshot: Snapshot, version: int
) -> Iterator[tuple[Path, Owner]]:
    """Graphs and functions at opset `version - 1`."""
    holders = {"": model} | {title_of(function): function for function in model.functions}
    stepping = {
        title
        for title, holder in holders.items()
        if any(entry.version == version - 1 for entry in _imports(holder))
    }
    return ((path, owner) for path, owner in snapshot.owners if path[0] in stepping)


def _operators(model: onnx.ModelProto, skipped: Set[int]) -> set[str]:
    """Operators of the default domain, subgraphs and functions included."""
    return {
        node.op_type
        for node in nodes_of(model)
        if node.domain in DEFAULT and id(node) not in skipped
    }


def _affected(operators: set[str], version: int) -> frozenset[str]:
    """Operators that a step changes incompatibly."""
    return frozenset(
        op for op in operators if version in STEPS.get(op, ()) or not keeps_meaning(op, version)
    )


def _step(
    model: onnx.ModelProto,
    version: int,
    affected: frozenset[str],
    knowledge: Knowledge,
    fresh: Fresh,
    skipped: Set[int],
) -> list[Obstacle]:
    """Convert the affected nodes in place. Returns those that cannot be converted."""
    obstacles = []
    snapshot = Snapshot(model, knowledge)
    for path, owner in _steppers(model, snapshot, version):
        added, values = list[onnx.NodeProto](), snapshot.values(path)
        for node in owner.node:
            is_affected = node.op_type in affected and node.domain in DEFAULT
            if not is_affected or id(node) in skipped:
                continue
            name = node.name or next(iter(node.output), "")
            convert = STEPS.get(node.op_type, {}).get(version)
            if convert is None:
                obstacles.append(
                    Obstacle(name, node.op_type, version, "mezzo has no conversion for it")
                )
                continue
            site = StepSite(values, fresh)
            try:
                convert(node, site)
            except BlockedError as error:
                obstacles.append(Obstacle(name, node.op_type, version, str(error)))
            added += site.added
        if added:
            owner.node.extend(added)
            sort_nodes(owner)
    return obstacles


def _drop_unread_constants(model: onnx.ModelProto, knowledge: Knowledge) -> None:
    """Remove unused Constants that an earlier step added."""
    graphs = [owner for _, owner in owners(model)]
    reads = {name for owner in graphs for name in reads_in(owner)}

    def is_unread(node: onnx.NodeProto) -> bool:
        is_added = node.op_type == "Constant" and node.name not in knowledge.node_names
        return is_added and node.output[0] not in reads

    for owner in graphs:
        remove_where(owner.node, is_unread)


def _fresh_names(model: onnx.ModelProto) -> Fresh:
    """A generator of unused names. Names in use are collected at the first call."""
    names_in_use: set[str] = set()

    def fresh(wish: str) -> str:
        if not names_in_use:
            names_in_use.update(names_of(model))
        return fresh_name(names_in_use, wish)

    return fresh


@cache
def keeps_meaning(op: str, version: int) -> bool:
    """Whether a step is compatible: it only adds types and optional ports or attributes.

    Operators that ONNX does not define are the runtime's, at any opset, except those that ONNX
    Runtime drops at opset 10.
    """
    if version not in _versions().get(op, ()):
        return version != 10 or op not in ENDED_AT_10
    try:
        old, new = onnx.defs.get_schema(op, version - 1, ""), onnx.defs.get_schema(op, version, "")
    except onnx.defs.SchemaError:
        return False
    if new.deprecated:
        return False
    return (
        _ports(old.inputs, new.inputs)
        and _ports(old.outputs, new.outputs)
        and _attributes(old, new)
    )


@cache
def _versions() -> Mapping[str, Set[int]]:
    """The opsets that changed each operator, by name."""
    versions: dict[str, set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            versions.setdefault(schema.name, set()).add(schema.since_version)
    return versions


_Ports = Sequence[onnx.defs.OpSchema.FormalParameter]


def _ports(before: _Ports, after: _Ports) -> bool:
    """Whether ports changed compatibly: more types, more optional ports, none newly required."""
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
    return all(
        not new.attributes[name].required for name in new.attributes.keys() - old.attributes.keys()
    )
