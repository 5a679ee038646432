"""Paths of modules in names of nodes: "layers.0.fc/linear" of PyTorch's programs, and
"/layers.0/fc/MatMul" of the ONNX files that PyTorch's exporters write.
"""

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.tables.ops import op_facts

TORCH = "aten"


def module_of(plan: Plan, node: PlannedNode) -> str:
    """The module of a node, with dots; "" for the model itself or a node without a path.

    A component that repeats the one before it, as "layer1/layer1.0" does, replaces it.
    """
    if node.name in plan.names.modules:
        return plan.names.modules[node.name]
    scopes = node.name.strip("/").split("/")[:-1]
    parts: list[str] = []
    for scope in scopes:
        if parts and scope.startswith(f"{parts[-1]}."):
            parts[-1] = scope
        else:
            parts.append(scope)
    return ".".join(parts)


def onnx_operator(plan: Plan, node: PlannedNode) -> str:
    """The ONNX operator that a node's operator is or is like; else the operator itself."""
    facts = op_facts(plan.dialect).get(node.op)
    return (facts and facts.like) or node.op
