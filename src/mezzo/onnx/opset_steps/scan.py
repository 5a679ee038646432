"""Conversion of Scan from opset 8, where operands have a batch axis, to opset 9. Source: onnx 1.23,
Changelog.md.
"""

import onnx
from onnx import helper

from mezzo.onnx.opset_steps.site import BlockedError, StepSite, put, take


def scan_batch(node: onnx.NodeProto, site: StepSite) -> None:
    """Opset 9: nest two Scans, the outer one over the batch, the inner one over the sequence.

    States are [batch, ...], sequences [batch, steps, ...].
    """
    if node.input[0]:
        raise BlockedError(
            "its sequences have lengths of their own, which newer opsets do not have"
        )
    body, count = take(node, "body"), take(node, "num_scan_inputs")
    if body is None or count is None:
        raise BlockedError("it has no body")
    directions = take(node, "directions")
    operands, outputs = node.input[1:], list(node.output)
    states = len(operands) - count.i
    inner = [site.fresh(f"{name or node.op_type}_sample") for name in operands]
    results = [site.fresh(f"{name or node.op_type}_sample") for name in outputs]
    sequence = helper.make_node("Scan", inner, results, name=site.fresh(f"{outputs[0]}_sequence"))
    sequence.attribute.extend([body, count])
    if directions is not None:
        directions.name = "scan_input_directions"
        sequence.attribute.append(directions)
    body_inputs, body_outputs = body.g.input, body.g.output
    sample = helper.make_graph(
        [sequence],
        site.fresh(f"{outputs[0]}_batch"),
        [_sized(name, body_inputs[index], index >= states) for index, name in enumerate(inner)],
        [_sized(name, body_outputs[index], index >= states) for index, name in enumerate(results)],
    )
    node.input[:] = operands
    put(node, body=sample, num_scan_inputs=len(operands))


def _sized(name: str, info: onnx.ValueInfoProto, is_sequence: bool) -> onnx.ValueInfoProto:
    """A port of the inner Scan: the body's port, with a leading axis if it is a sequence."""
    tensor = info.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        dims = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in tensor.shape.dim
        ]
        shape = [None, *dims] if is_sequence else dims
    return helper.make_tensor_value_info(name, tensor.elem_type, shape)
