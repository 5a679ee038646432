"""Shape folding: Shape and Size of static shapes, Reshape targets with one open dimension."""

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.protos.attributes import read_int
from mezzo.onnx.protos.entries import add_initializer
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import Shape

# Bound on the indices of a Gather after Shape, which may be negative.
_MOST_DIMS = 64


def fold_shapes(scope: GraphScope) -> bool:
    """Replace computations of inferred dimensions by constants; True if there were any."""
    is_changed, removed = False, []
    for position, node in enumerate(scope.graph.node):
        if node.domain not in DEFAULT:
            continue
        numbers = None if scope.stays(node) else _dims_asked(scope, node)
        if (
            numbers is not None
            and node.output[0] not in scope.outputs
            and node.output[0] not in scope.inner
        ):
            tensor = numpy_helper.from_array(numbers)
            add_initializer(scope.model, scope.graph, tensor, node.output[0])
            removed.append(position)
        elif (
            node.op_type == "Reshape"
            and len(node.input) > 1
            and node.input[1] not in scope.constants
        ):
            is_changed |= _fix_target(scope, node)
    for position in reversed(removed):
        del scope.graph.node[position]
    return is_changed or bool(removed)


def _dims_asked(
    scope: GraphScope, node: onnx.NodeProto
) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None":
    """The dimensions that an operator outputs; None if not static, or something else."""
    match node.op_type:
        case "Shape":
            dims = _dims_of(scope, node)
        case "Size":
            static = scope.static_shape(node.input[0])
            return None if static is None else np.array(np.prod(static, dtype=np.int64))
        case "Gather" | "Slice":
            maker = scope.makers.get(node.input[0])
            dims = None if maker is None or maker.op_type != "Shape" else _dims_of(scope, maker)
            return None if dims is None else _picked(scope, node, dims)
        case _:
            return None
    if dims is None or None in dims:
        return None
    return np.array(dims, np.int64)


def _dims_of(scope: GraphScope, shape: onnx.NodeProto) -> Shape | None:
    dims = scope.shape(shape.input[0])
    if dims is None:
        return None
    return dims[read_int(shape, "start", 0) : read_int(shape, "end", len(dims))]


def _picked(
    scope: GraphScope, node: onnx.NodeProto, dims: Shape
) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None":
    """The dimensions that Gather or Slice selects; None if one of them or an operand is unknown."""
    places = np.arange(len(dims))
    if node.op_type == "Gather":
        indices = scope.numbers(node.input[1])
        if (
            indices is None
            or indices.size > _MOST_DIMS
            or not np.isin(indices, np.arange(-len(dims), len(dims))).all()
        ):
            return None
        selected = places[indices.astype(np.int64)]
    else:
        parts = [
            scope.integers(node, 1 + position, name)
            for position, name in enumerate(("starts", "ends", "axes"))
        ]
        steps = scope.integers(node, 4, "steps")
        starts, ends = parts[0], parts[1]
        if starts is None or ends is None or parts[2] is None or steps is None:
            return None
        if len(starts) != 1 or len(ends) != 1 or any(step != 1 for step in steps) or any(parts[2]):
            return None
        selected = places[starts[0] : ends[0]]
    sizes = [dims[place] for place in selected.reshape(-1)]
    return None if None in sizes else np.array(sizes, np.int64).reshape(selected.shape)


def _fix_target(scope: GraphScope, node: onnx.NodeProto) -> bool:
    """Make the target of a Reshape constant if at most one output dimension is dynamic (-1)."""
    dims = scope.shape(node.output[0])
    if dims is None or dims.count(None) > 1 or 0 in dims:
        return False
    target = np.array([-1 if dim is None else dim for dim in dims], np.int64)
    name = fresh_name(scope.taken, f"{node.output[0]}_shape")
    add_initializer(scope.model, scope.graph, numpy_helper.from_array(target), name)
    node.input[1] = name
    return True
