"""Raise a model's opset where a newer one allows a type, and only by steps that change nothing but types."""

from collections.abc import Iterable
from functools import cache

import onnx
import onnx.defs
import onnx.helper

from mezzo.dtypes import HIGH, DType
from mezzo.frontends.onnx.schema import first_legal_opset
from mezzo.graph import Graph

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
    return (
        _ports(old, old.inputs, new, new.inputs)
        and _ports(old, old.outputs, new, new.outputs)
        and _attributes(old, new)
    )


@cache
def _history(op: str) -> tuple[onnx.defs.OpSchema, ...]:
    return tuple(s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == "")


def _ports(old: onnx.defs.OpSchema, before: Iterable[object], new: onnx.defs.OpSchema, after: Iterable[object]) -> bool:
    first, second = list(before), list(after)
    if len(first) > len(second):
        return False
    for index, port in enumerate(second):
        if index >= len(first):
            if port.option.name != "Optional":  # type: ignore[attr-defined]  # a FormalParameter
                return False
        elif port.option != first[index].option or not set(first[index].types) <= set(port.types):  # type: ignore[attr-defined]
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
    """The newest opset to which every operator of the model can go unchanged in meaning."""
    since = default_opset(model)
    assert since is not None, "asked only for models of the default domain"
    ops = set(_ops(model.graph))
    for function in model.functions:
        ops |= set(_ops(function))
        imported = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), since)
        if imported != since:
            return since
    best = since
    for version in range(since + 1, until + 1):
        if not all(keeps_meaning(op, since, version) for op in ops):
            break
        best = version
    return best


def _ops(owner: onnx.GraphProto | onnx.FunctionProto) -> Iterable[str]:
    for node in owner.node:
        if node.domain in ("", "ai.onnx"):
            yield node.op_type
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _ops(attribute.g)


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


def set_opset(model: onnx.ModelProto, opset: int) -> None:
    """Declare a newer opset, in functions too, and the IR version that goes with it."""
    for owner in (model, *model.functions):
        for entry in owner.opset_import:
            if entry.domain in ("", "ai.onnx") and entry.version < opset:
                entry.version = opset
    needed = onnx.helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset))
    if needed is not None and model.ir_version < needed:
        model.ir_version = needed
