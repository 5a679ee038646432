"""What tests of the command line share: models, and what a command leaves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from mezzo.onnx.doctor import children

SMALL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x) => (float[2,2] y)
<float[4,2] w = {1,2,3,4,5,6,7,8}>
{
   [mm] h = MatMul(x, w)
   [sm] y = Softmax<axis=-1>(h)
}
"""
# A network of the demo's inputs and outputs in a tenth of its time: seven layers in place of eighty.
_CLASSIFIER = """<ir_version: 10, opset_import: ["" : 21]>
g (float[batch,1,8,8] image) => (float[batch,10] logits)
<float[8,1,3,3] w, float[128,64] k, float[64,32] m, float[32,10] v, float[10] b>
{
   c = Conv<pads=[1,1,1,1], strides=[2,2]>(image, w)
   f = Flatten(c)
   h = MatMul(f, k)
   t = Tanh(h)
   n = MatMul(t, m)
   s = Softmax(n)
   a = Add(s, n)
   logits = Gemm(a, v, b)
}"""
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.onnx"


def classifier() -> onnx.ModelProto:
    """A small network for the data of the demo model, with random weights."""
    model: onnx.ModelProto = onnx.parser.parse_model(_CLASSIFIER)
    for node in model.graph.node:
        node.name = f"/head/{node.op_type}" if node.op_type != "MatMul" else f"/head/{node.op_type}/{node.output[0]}"
    rng = np.random.default_rng(0)
    for port in model.graph.value_info:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        weight = rng.standard_normal(shape, np.float32) / np.float32(max(shape[:-1], default=4) ** 0.5)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, port.name))
    del model.graph.value_info[:]
    return model


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def ask_once(questions: Sequence[children.Question], progress: object) -> dict[children.Question, children.Answer]:
    """What `mezzo doctor` asks a dozen processes, asked once by all who only show it; test_doctor.py asks anew."""
    return _answers(tuple(questions))


@cache
def _answers(questions: tuple[children.Question, ...]) -> dict[children.Question, children.Answer]:
    return children.ask(questions, lambda *state: None)
