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
from mezzo.onnx.schema.schema import schema_of

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
    for holder, node, opsets in _operators(copy):
        domain = canonical(node.domain)
        if is_undefined(domain, node.op_type, opsets.get(domain, 1)):
            node.domain = _PRIVATE
            holders[id(holder)] = holder
    for holder in holders.values():
        holder.opset_import.append(onnx.helper.make_opsetid(_PRIVATE, 1))
    return copy if holders else None


def has_custom_operators(model: onnx.ModelProto) -> bool:
    """Whether some operator has neither a schema of ONNX nor of ONNX Runtime."""
    return any(schema_of(node, opsets) is None for _, node, opsets in _operators(model))


def _operators(
    model: onnx.ModelProto,
) -> Iterator[tuple[_Holder, onnx.NodeProto, dict[str, int]]]:
    """All nodes but calls of functions, with the model or function that imports their domains, and
    these imports.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    for holder in (model, *model.functions):
        opsets = imported_opsets(holder)
        for node in all_nodes(model.graph if holder is model else holder):
            if (node.domain, node.op_type) not in functions:
                yield holder, node, opsets
