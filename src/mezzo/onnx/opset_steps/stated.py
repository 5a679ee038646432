"""Shapes that a file states of its values and that a newer opset's inference shows to be wrong."""

import onnx

from mezzo.onnx.opset_steps.values import without_stated_shapes
from mezzo.onnx.schema.shapes import infer


def mend_stated_shapes(model: onnx.ModelProto) -> tuple[str, ...]:
    """Replace stated shapes of the main graph, in place, that contradict those which follow from its inputs and
    constants. Newer opsets infer more, and what an older one let pass their check refuses. Returns the outputs' names.
    """
    graph = infer(without_stated_shapes(model)).graph
    inferred = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
    mended = []
    for info in (*model.graph.value_info, *model.graph.output):
        stated, known = info.type.tensor_type, inferred.get(info.name)
        if known is not None and _contradicts(stated, known):
            stated.shape.CopyFrom(known.shape)
            mended.append(info.name)
    outputs = {info.name for info in model.graph.output}
    return tuple(name for name in mended if name in outputs)


def _contradicts(stated: onnx.TypeProto.Tensor, known: onnx.TypeProto.Tensor) -> bool:
    if not stated.HasField("shape") or not known.HasField("shape"):
        return False
    if len(stated.shape.dim) != len(known.shape.dim):
        return True
    pairs = zip(stated.shape.dim, known.shape.dim, strict=True)
    return any(
        one.HasField("dim_value") and other.HasField("dim_value") and one.dim_value != other.dim_value
        for one, other in pairs
    )
