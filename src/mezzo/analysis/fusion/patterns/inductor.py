"""Fusion pattern of TorchInductor's generated kernels: all operators but matmuls and convolutions.
They compute in FP32 for any input and output type, and conversions are part of the pass over
memory.
"""

from mezzo.analysis.fusion.selector import fixed, tree
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import HEAVY, Cost, Transfer

_DIALECTS = frozenset({"aten", "prims"})
_COMPUTED = frozenset({Cost.POINTWISE, Cost.NORMALIZATION, Cost.REDUCTION})
# Views, which do not copy: a conversion after one is done by the kernel before it.
_VIEWS = frozenset(
    {
        "alias",
        "as_strided",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "lift",
        "narrow",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsafe_view",
        "_unsafe_view",
        "unsqueeze",
        "view",
        "view_as",
        "view_copy",
    }
)
# Exact in low precision; torch.autocast computes them, and sums, in the widest precision of their
# inputs.
_EXACT = frozenset({Transfer.KEEP, Transfer.MOVE, Transfer.JOIN, Transfer.RELU})
_FOLLOWING = _EXACT | {Transfer.ADD}
# Batch norms with their own statistics, and their backward: the output has the input's type.
_BATCH_NORMS = frozenset(
    {
        "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit.no_stats",
        "native_batch_norm_backward",
    }
)
_GRADIENTS = frozenset(
    {"elu_backward", "gelu_backward", "hardswish_backward", "leaky_relu_backward", "mish_backward"}
    | {"sigmoid_backward", "silu_backward", "tanh_backward", "threshold_backward"}
)  # fmt: skip


def _is_generated(view: FusionView, node: Node) -> bool:
    return node.id in view.once(_generated)


def _generated(view: FusionView) -> frozenset[int]:
    """Nodes in kernels that Inductor generates, and views of such kernels' results."""
    inside: set[int] = set()
    apart = view.once(_stored_low)
    for node in view.graph.nodes:
        row = view.rows[node.id]
        is_traced = node.signature.dialect in _DIALECTS
        if node.kind is not Kind.OP or row is None or not is_traced or not view.is_float(node):
            continue
        if row.cost is Cost.MOVEMENT and node.op in _VIEWS:
            maker = None if node.inputs[0] is None else view.graph.values[node.inputs[0]].producer
            is_inside = maker in inside
        else:
            is_inside = row.cost in _COMPUTED or row.cost is Cost.MOVEMENT
        if is_inside and node.id not in apart:
            inside.add(node.id)
    return frozenset(inside)


def _stored_low(view: FusionView) -> frozenset[int]:
    """Nodes whose results torch.autocast stores in low precision too: max pools, and sums and ReLUs
    with several readers, as in residual networks and for the backward pass; gradients of
    activations read by matmuls and by the gradient of a bias. One low-precision copy serves all
    readers; FP32 would be an additional copy. A ReLU of rounded numbers equals the rounded ReLU.
    """
    low = view.once(_low_in_autocast)
    sums: set[int] = set()
    ends: set[int] = set()
    for node in view.graph.nodes:
        row, result = view.rows[node.id], node.outputs[0] if node.outputs else None
        if row is None or result is None or result not in low:
            continue
        if row.cost is Cost.REDUCTION:
            ends.add(node.id)
        elif row.transfer is Transfer.ADD or (
            row.transfer in _EXACT and sums.issuperset(_tensors(view, node))
        ):
            sums.add(result)
            if len(view.graph.uses[result]) > 1:
                ends.add(node.id)
        elif (row.transfer is Transfer.RELU or node.op in _GRADIENTS) and _count_readers(
            view, result
        ) > 1:
            ends.add(node.id)
    return frozenset(ends)


def _count_readers(view: FusionView, value: int) -> int:
    """Number of readers of a value, through views."""
    count = 0
    for use in view.graph.uses[value]:
        reader = view.graph.nodes[use.node]
        viewed = reader.outputs[0] if reader.op in _VIEWS and reader.outputs else None
        count += 1 if viewed is None else _count_readers(view, viewed)
    return count


def _low_in_autocast(view: FusionView) -> frozenset[int]:
    """Values that torch.autocast computes in low precision: outputs of matmuls and convolutions,
    and of operators that follow their inputs' types.
    """
    low: set[int] = set()
    for node in view.graph.nodes:
        row = view.rows[node.id]
        if node.kind is not Kind.OP or row is None or not view.is_float(node):
            continue
        are_low = [value in low for value in _tensors(view, node)]
        is_following = (
            (row.transfer in _FOLLOWING or node.op in _GRADIENTS) and bool(are_low) and all(are_low)
        )
        is_scaling = (row.transfer is Transfer.GIVEN_STATISTICS or node.op in _BATCH_NORMS) and any(
            are_low
        )
        if row.cost in HEAVY or is_following or is_scaling:
            low.update(value for value in node.outputs if value is not None)
    return frozenset(low)


def _tensors(view: FusionView, node: Node) -> list[int]:
    """Operands other than scalar constants, which do not affect type promotion."""
    constants = view.graph.constants
    operands = ((value, constants.get(value)) for value in node.inputs if value is not None)
    return [value for value, facts in operands if facts is None or facts.elements != 1]


PATTERNS = (
    Pattern(
        name="inductor",
        summary="pointwise work, norms, reductions and moves that Inductor writes as loops",
        forms={"": fixed(tree(_is_generated))},
        starts_at_end=True,
    ),
)
