"""Models that end onnx's own shape inference, and the process with it: each is asked of in a process of its own."""

import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

import mezzo

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
GATHER = """g (float[2,2,2] x, int64[2,1,7] i) => (float[2,2] y) { y = GatherND<batch_dims = 1>(x, i) }"""
SPLIT = """g (float[2,6] x) => (float[2,3] y, float[2,3] z) { y, z = Split<axis = 1, num_outputs = 2147483648>(x) }"""
CONVERTS = "import sys, mezzo; print(mezzo.convert(sys.argv[1], to='fp16').plan.nodes[0].name)"


NORM = """g (float[4,4] x, float[4] s) => (float[4,4] y) { y, m = LayerNormalization<axis = 2147483648>(x, s) }"""
GIVEN = f"""g (float[2,2,2] x) => (float[2,2] y) <int64[2,1,7] i = {{{", ".join("0" * 14)}}}>
{{ y = GatherND<batch_dims = 1>(x, i) }}"""
CONSTANT = """g (float[2,2,2] x) => (float[2,2] y) {
    i = Constant<value = int64[2,1,7] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}>()
    y = GatherND<batch_dims = 1>(x, i) }"""


def model(text: str, size: int = 7) -> onnx.ModelProto:
    """A model whose dimensions of 7 are `size` instead."""
    parsed = onnx.parser.parse_model(f"{HEAD} {text}")
    for dim in [dim for info in parsed.graph.input for dim in info.type.tensor_type.shape.dim]:
        if dim.dim_value == 7:
            dim.dim_value = size
    constants = [attribute.t for node in parsed.graph.node for attribute in node.attribute]
    for tensor in (*parsed.graph.initializer, *constants):
        tensor.dims[:] = [size if length == 7 else length for length in tensor.dims]
    return parsed


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *((GATHER, -(2**bits)) for bits in (0, 31, 62)),
        (GIVEN, -(2**31)),
        (CONSTANT, -(2**31)),
        (SPLIT, 7),
        (NORM, 7),
    ],
)
def test_what_crashes_inference_is_not_inferred(text: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(text, size).SerializeToString())
    run = subprocess.run([sys.executable, "-c", CONVERTS, str(path)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, "input x\n") or "mezzo.common.errors" in run.stderr, run.stderr


def test_negative_dimension_of_old_exporters_is_an_unknown_one() -> None:
    """What follows from the others is inferred as with a name in its place."""
    text = "g (float[7,8] x) => (float[7,8] y) { [one] s = Relu(x) [two] y = Exp(s) }"
    named = onnx.parser.parse_model(f"{HEAD} {text.replace('7', 'N')}")
    plans = [mezzo.convert(proto, to="fp16").plan for proto in (model(text, -1), named)]
    assert plans[0].nodes == plans[1].nodes


def test_type_of_an_output_goes_before_another_note_of_it() -> None:
    parsed = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[4] x) => (float[4] y) { [own] y = own.Mystery(x) }"""
    )
    parsed.graph.value_info.append(onnx.helper.make_tensor_sequence_value_info("y", onnx.TensorProto.BFLOAT16, ["N"]))
    plan = mezzo.convert(parsed, to="bf16").plan
    assert [(node.name, str(node.precision.compute)) for node in plan.nodes] == [
        ("input x", "f32"), ("own", "f32"), ("output y", "f32"),
    ]  # fmt: skip
