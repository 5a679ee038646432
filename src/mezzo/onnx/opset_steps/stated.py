"""Correction of declared shapes that shape inference at a newer opset proves wrong."""

import onnx

from mezzo.onnx.opset_steps.values import without_stated_shapes
from mezzo.onnx.schema.shapes import infer, shape_of


def mend_stated_shapes(model: onnx.ModelProto) -> tuple[str, ...]:
    """Replace declared shapes that contradict inference, in place; returns corrected outputs.

    Newer opsets infer more shapes, so their check rejects declarations that older ones accept.
    """
    declared_infos = (*model.graph.value_info, *model.graph.output)
    names = {info.name for info in declared_infos}
    graph = infer(without_stated_shapes(model)).graph
    inferred = {
        info.name: info for info in (*graph.value_info, *graph.output) if info.name in names
    }
    corrected = []
    for info in declared_infos:
        if info.name not in inferred:
            continue
        declared, inferred_type = (each.type.tensor_type for each in (info, inferred[info.name]))
        if _contradicts(declared, inferred_type):
            declared.shape.CopyFrom(inferred_type.shape)
            corrected.append(info.name)
    outputs = {info.name for info in model.graph.output}
    return tuple(name for name in corrected if name in outputs)


def _contradicts(declared: onnx.TypeProto.Tensor, inferred: onnx.TypeProto.Tensor) -> bool:
    ours, theirs = shape_of(declared), shape_of(inferred)
    if ours is None or theirs is None:
        return False
    if len(ours) != len(theirs):
        return True
    pairs = zip(ours, theirs, strict=True)
    return any(a != b and None not in (a, b) for a, b in pairs)
