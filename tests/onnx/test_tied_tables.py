"""A table that an embedding and a head read makes no INT8 file larger than the model, however the head reads it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mezzo

# Of nodes in a result, with their names, scales of one number and zero points; columns have a scale and a zero point.
_BYTES_A_NODE, _BYTES_A_COLUMN = 300, 5


def tied(seed: int) -> onnx.ModelProto:
    """An embedding, a few products, and a head whose weight is the table behind a Transpose, Identities, or turned."""
    rng = np.random.default_rng(seed)
    rows, width = int(rng.choice([50, 700, 3000])), int(rng.choice([16, 64]))
    weights = {"table": rng.standard_normal((rows, width))}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["v0"])]
    for place in range(int(rng.integers(0, 3))):
        weights[f"w{place}"] = rng.standard_normal((width, width)) / np.sqrt(width)
        nodes.append(helper.make_node("MatMul", [f"v{place}", f"w{place}"], [f"v{place + 1}"]))
    last, head = nodes[-1].output[0], "table"
    for step in rng.choice(["Identity", "Cast"], int(rng.integers(0, 3))):
        attributes = {"to": TensorProto.FLOAT} if step == "Cast" else {}
        nodes.append(helper.make_node(str(step), [head], [f"{head}_"], **attributes))
        head = f"{head}_"
    if rng.random() < 0.5:
        nodes.append(helper.make_node("Transpose", [head], ["turned"], perm=[1, 0]))
        nodes.append(helper.make_node("MatMul", [last, "turned"], ["y"]))
    else:
        nodes.append(helper.make_node("Gemm", [last, head], ["y"], transB=1))
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", rows])]
    graph = helper.make_graph(nodes, "tied", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("seed", range(12))
def test_int8_file_with_a_tied_table_is_no_larger_than_the_model(seed: int, target: str) -> None:
    model = tied(seed)
    rows = model.graph.initializer[0].dims[0]
    data = {"ids": np.random.default_rng(seed).integers(0, rows, 64)}
    result = mezzo.convert(model, to="int8", target=target, data=data, check=False, correct="none", provenance=False)
    columns = sum(max(tensor.dims, default=0) for tensor in model.graph.initializer)
    allowed = _BYTES_A_NODE * len(result.model.graph.node) + _BYTES_A_COLUMN * columns
    assert result.model.ByteSize() <= model.ByteSize() + allowed, f"seed {seed}"
