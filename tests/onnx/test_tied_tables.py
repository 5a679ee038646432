"""A table that an embedding and a head read makes no file larger than it has to be, however the head reads it."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from sweeps import swept

import mezzo

# Of nodes in a result, with their names, scales of one number and zero points; columns have a scale and a zero point.
_BYTES_A_NODE, _BYTES_A_COLUMN = 300, 5


def tied(seed: int, widths: tuple[int, int] = (16, 64), *, is_turned: bool = False) -> onnx.ModelProto:
    """An embedding, a few products, and a head whose weight is the table behind a Transpose, Identities, or turned;
    or a table that is the head's weight behind a Transpose, as onnxruntime-genai writes it.
    """
    rng = np.random.default_rng(seed)
    rows, width = int(rng.choice([50, 700, 3000])), int(rng.choice(widths))
    weights = {"table": rng.standard_normal((rows, width))}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["v0"])]
    for place in range(int(rng.integers(0, 3))):
        weights[f"w{place}"] = rng.standard_normal((width, width)) / np.sqrt(width)
        nodes.append(helper.make_node("MatMul", [f"v{place}", f"w{place}"], [f"v{place + 1}"]))
    last, head = nodes[-1].output[0], "table"
    if is_turned:
        weights["table"] = weights["table"].T
        nodes[0] = helper.make_node("Gather", ["rows", "ids"], ["v0"])
        nodes = [helper.make_node("Transpose", ["table"], ["rows"]), *nodes]
    for step in rng.choice(["Identity", "Cast"], 0 if is_turned else int(rng.integers(0, 3))):
        attributes = {"to": TensorProto.FLOAT} if step == "Cast" else {}
        nodes.append(helper.make_node(str(step), [head], [f"{head}_"], **attributes))
        head = f"{head}_"
    if is_turned:
        nodes.append(helper.make_node("MatMul", [last, head], ["y"]))
    elif rng.random() < 0.5:
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
@pytest.mark.parametrize("seed", range(swept(12)))
def test_int8_file_with_a_tied_table_is_no_larger_than_the_model(seed: int, target: str) -> None:
    model = tied(seed)
    rows = model.graph.initializer[0].dims[0]
    data = {"ids": np.random.default_rng(seed).integers(0, rows, 64)}
    result = mezzo.convert(model, to="int8", target=target, data=data, check=False, correct="none", provenance=False)
    columns = sum(max(tensor.dims, default=0) for tensor in model.graph.initializer)
    allowed = _BYTES_A_NODE * len(result.model.graph.node) + _BYTES_A_COLUMN * columns
    assert result.model.ByteSize() <= model.ByteSize() + allowed, f"seed {seed}"


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("to", ["int4", "int8w", "int4,fp16"])
@pytest.mark.parametrize("seed", range(swept(12)))
def test_table_and_head_share_one_copy_of_integers(seed: int, to: str, is_turned: bool) -> None:
    """ONNX Runtime's operators read the same integers, scales and zero points, so the table is stored once."""
    model = tied(seed, (24, 256), is_turned=is_turned)
    rows, width = [*model.graph.initializer[0].dims][:: -1 if is_turned else 1]
    result = mezzo.convert(model, to=to, check=False, provenance=False)
    ops = [node.op_type for node in result.model.graph.node]
    if rows * width < 1 << 16:
        assert "MatMulNBits" not in ops
        return
    assert "GatherBlockQuantized" in ops and "MatMulNBits" in ops and "Transpose" not in ops
    ((_, storage),) = [stored for stored in result.plan.in_blocks if stored[0] == "weight table"]
    assert storage.axis == (0 if is_turned else 1)
    if width % storage.block:  # a product's rows are filled up to whole blocks, and a table's are not
        return
    stored_bytes = sum(
        storage.size_bytes(shape) if shape == tuple(model.graph.initializer[0].dims) else 4 * int(np.prod(shape))
        for shape in (tuple(tensor.dims) for tensor in model.graph.initializer)
    )
    assert result.model.ByteSize() <= stored_bytes + _BYTES_A_NODE * len(ops)
    ids = np.random.default_rng(seed).integers(0, rows, 64)
    whole, found = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"ids": ids})[0].astype(np.float64)
        for each in (model, result.model)
    )
    error = np.linalg.norm(found - whole) / np.linalg.norm(whole)
    # Each of at most four weights is off by a step of 15 over 6 standard deviations, divided by 12 ** 0.5, for 4 bits.
    assert 0.0 < error < (0.03 if to == "int8w" else 2 * 6 / 15 / 12**0.5)


@pytest.mark.parametrize("is_turned", [False, True])
def test_openvino_reads_a_table_and_its_head_from_integers(is_turned: bool) -> None:
    """Each has a constant of its own, as OpenVINO computes a Reshape or a DequantizeLinear of both when it loads."""
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    model = tied(0, (256, 128), is_turned=is_turned)
    result = mezzo.convert(model, to="int4", target="openvino-cpu", check=False, provenance=False)
    constants = {tensor.name for tensor in result.model.graph.initializer}
    ops = {node.op_type: node for node in result.model.graph.node}
    assert {ops["GatherBlockQuantized"].input[0], ops["MatMulNBits"].input[1]} <= constants
    ids = np.random.default_rng(0).integers(0, 256, 64)
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(result.model.SerializeToString()), "CPU")
    kernels = [op.get_rt_info()["layerType"].astype(str) for op in compiled.get_runtime_model().get_ops()]
    types = [
        str(op.get_output_element_type(0)) for op in compiled.get_runtime_model().get_ops() if op.get_output_size()
    ]
    assert "Gather" in kernels and sum("uint4" in dtype for dtype in types) >= 2
    expected = onnxruntime.InferenceSession(result.model.SerializeToString()).run(None, {"ids": ids})[0]
    found = compiled({"ids": ids})[0]
    # Activations are rounded to INT8 or BF16, where the CPU can.
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.02
