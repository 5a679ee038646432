"""Custom operators in ONNX's own domains, which runtimes register there and ONNX does not define.

ONNX's checker refuses an operator of its domains that has no schema, and takes any in another domain. So a model is
checked with such operators in a private domain: all else in it is checked as ever.
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
    """Whether an operator stands in a domain of ONNX's and has no schema there."""
    if domain not in onnx_domains():
        return False
    try:
        onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return True
    return False


def with_private_domain(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy in which operators that ONNX does not define stand in a domain of their own; None where there are none."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    functions = {(function.domain, function.name) for function in copy.functions}
    moved = False
    for holder, owner in ((copy, copy.graph), *((function, function) for function in copy.functions)):
        if _move(owner, imported_opsets(holder), functions):
            holder.opset_import.append(onnx.helper.make_opsetid(_PRIVATE, 1))
            moved = True
    return copy if moved else None


def has_custom_operators(model: onnx.ModelProto) -> bool:
    """Whether some operator has no schema that is known here, ONNX's or ONNX Runtime's."""
    functions = {(function.domain, function.name) for function in model.functions}
    for holder, owner in ((model, model.graph), *((function, function) for function in model.functions)):
        versions = imported_opsets(holder)
        for node in all_nodes(owner):
            domain = canonical(node.domain)
            opset = versions.get(domain, 1)
            home = home_of_operator(domain, node.op_type, opset)
            if find_schema(home, node.op_type, opset) is None and (node.domain, node.op_type) not in functions:
                return True
    return False


def _move(owner: _Owner, versions: Mapping[str, int], functions: set[tuple[str, str]]) -> bool:
    """Move what is undefined, in bodies too. Returns whether anything was."""
    is_any = False
    for node in owner.node:
        domain = canonical(node.domain)
        version = versions.get(domain, 1)
        if (node.domain, node.op_type) not in functions and is_undefined(domain, node.op_type, version):
            node.domain = _PRIVATE
            is_any = True
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if _holds_graph(attribute) else ():
                is_any |= _move(body, versions, functions)
    return is_any


def _holds_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
