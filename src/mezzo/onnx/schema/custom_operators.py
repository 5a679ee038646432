"""Custom operators in ONNX's own domains, which runtimes register there but ONNX does not define.

ONNX's checker rejects operators without schema in its own domains, but accepts any in other
domains. So such operators are moved to a private domain for the check, the rest in full.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import onnx
import onnx.defs

from mezzo.onnx.protos.graphs import all_nodes
from mezzo.onnx.schema.domains import canonical, imported_opsets
from mezzo.onnx.schema.schema import find_schema, home_of_operator

_PRIVATE = "mezzo.custom"
_Holder = onnx.ModelProto | onnx.FunctionProto


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
    copy = deepcopy(model)
    holders: dict[int, _Holder] = {}
    for holder, node, opset in _operators(copy):
        if is_undefined(canonical(node.domain), node.op_type, opset):
            node.domain = _PRIVATE
            holders[id(holder)] = holder
    for holder in holders.values():
        holder.opset_import.append(onnx.helper.make_opsetid(_PRIVATE, 1))
    return copy if holders else None


def has_custom_operators(model: onnx.ModelProto) -> bool:
    """Whether some operator has neither a schema of ONNX nor of ONNX Runtime."""
    for _, node, opset in _operators(model):
        home = home_of_operator(canonical(node.domain), node.op_type, opset)
        if find_schema(home, node.op_type, opset) is None:
            return True
    return False


def _operators(model: onnx.ModelProto) -> Iterator[tuple[_Holder, onnx.NodeProto, int]]:
    """All nodes but calls of functions: the model or function that imports the node's domain, the
    node, and the opset imported.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    for holder in (model, *model.functions):
        versions = imported_opsets(holder)
        for node in all_nodes(model.graph if holder is model else holder):
            if (node.domain, node.op_type) not in functions:
                yield holder, node, versions.get(canonical(node.domain), 1)
