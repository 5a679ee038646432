"""Custom operators in ONNX's own domains, which runtimes register there but ONNX does not define.

ONNX's checker rejects operators without schema in its own domains, but accepts any in other
domains. So such operators are moved to a private domain for the check, the rest in full.
"""

from collections.abc import Mapping
from functools import cache

import onnx
import onnx.defs

from mezzo.onnx.schema.domains import canonical, imported_opsets
from mezzo.onnx.schema.schema import find_schema, home_of_operator
from mezzo.onnx.schema.shapes import all_nodes

_PRIVATE = "mezzo.custom"
_Owner = onnx.GraphProto | onnx.FunctionProto


@cache
def onnx_domains() -> frozenset[str]:
    """The domains whose operators ONNX defines."""
    return frozenset(schema.domain for schema in onnx.defs.get_all_schemas_with_history())


@cache
def is_undefined(domain: str, op: str, version: int) -> bool:
    """Whether an operator is in one of ONNX's domains without a schema there."""
    if domain not in onnx_domains():
        return False
    try:
        onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return True
    return False


def with_private_domain(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy with undefined operators moved to a private domain; None if there are none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    functions = {(function.domain, function.name) for function in copy.functions}
    is_moved = False
    for holder, owner in (
        (copy, copy.graph),
        *((function, function) for function in copy.functions),
    ):
        if _move(owner, imported_opsets(holder), functions):
            holder.opset_import.append(onnx.helper.make_opsetid(_PRIVATE, 1))
            is_moved = True
    return copy if is_moved else None


def has_custom_operators(model: onnx.ModelProto) -> bool:
    """Whether some operator has neither a schema of ONNX nor of ONNX Runtime."""
    functions = {(function.domain, function.name) for function in model.functions}
    for holder, owner in (
        (model, model.graph),
        *((function, function) for function in model.functions),
    ):
        versions = imported_opsets(holder)
        for node in all_nodes(owner):
            domain = canonical(node.domain)
            opset = versions.get(domain, 1)
            home = home_of_operator(domain, node.op_type, opset)
            if (
                find_schema(home, node.op_type, opset) is None
                and (node.domain, node.op_type) not in functions
            ):
                return True
    return False


def _move(owner: _Owner, versions: Mapping[str, int], functions: set[tuple[str, str]]) -> bool:
    """Move undefined operators, subgraphs included. Returns whether there were any."""
    is_any = False
    for node in owner.node:
        domain = canonical(node.domain)
        version = versions.get(domain, 1)
        if (node.domain, node.op_type) not in functions and is_undefined(
            domain, node.op_type, version
        ):
            node.domain = _PRIVATE
            is_any = True
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if _holds_graph(attribute) else ():
                is_any |= _move(body, versions, functions)
    return is_any


def _holds_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
