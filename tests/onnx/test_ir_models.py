"""Models of onnx-ir, an extra of mezzo: who hands one in has that library."""

import onnx
import onnx.parser
import onnx_ir

import mezzo

_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4] x) => (float[N,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [sm] y = Softmax<axis=-1>(h)
}
"""


def test_model_of_onnx_ir_is_converted_as_its_proto_is() -> None:
    model = onnx_ir.from_proto(onnx.parser.parse_model(_TEXT))
    theirs, ours = (mezzo.convert(source).model for source in (model, onnx_ir.to_proto(model)))
    assert isinstance(theirs, onnx.ModelProto)
    assert [node.op_type for node in theirs.graph.node] == ["Cast", "MatMul", "Cast", "Softmax"]
    assert theirs.graph == ours.graph
